"""The server name in a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3), so that a tunnel leads where it was asked to.

An encrypted inner hello cannot be read and is ignored: the outer name is the one that counts.
"""

from __future__ import annotations

MAX_HELLO_BYTES = 16 * 1024
"""Hellos of today are under 4 KiB, with post-quantum keys and a session ticket."""
MAX_RECORDS = 64
REFUSED_ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
"""The TLS record of the fatal alert ``unrecognized_name``."""

_HANDSHAKE = 0x16


class IncompleteHelloError(Exception):
    """More bytes are needed: ``needed`` in all, at least."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def is_tls(data: bytes) -> bool:
    """Whether a stream that begins so is TLS."""
    return data[:1] == bytes([_HANDSHAKE])


def server_name(data: bytes) -> str | None:
    """The name that the client asks for, in lower case; ``None`` when it names none.

    Raises ``IncompleteHelloError`` until ``data`` holds the whole hello, however it is cut into records, and
    ``ValueError`` when it is none or is longer than ``MAX_HELLO_BYTES``.
    """
    hello = _Fields(_first_message(data))
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if not hello.left:
        return None
    extensions = _Fields(hello.vector(2))
    found: list[bytes] = []
    while extensions.left:
        kind, content = extensions.number(2), _Fields(extensions.vector(2))
        if kind != 0:
            continue
        names = _Fields(content.vector(2))
        while names.left:
            if names.number(1) != 0:
                raise ValueError("a server name of an unknown kind")
            found.append(names.vector(2))
    if len(found) > 1:
        raise ValueError("several server names")
    return found[0].decode("ascii").lower().removesuffix(".") if found else None


def _first_message(data: bytes) -> bytes:
    """The body of the first handshake message, joined from its records."""
    message, at = bytearray(), 0
    for _ in range(MAX_RECORDS):
        if len(message) >= 4:
            if message[0] != 1:
                raise ValueError("not a client hello")
            size = 4 + int.from_bytes(message[1:4], "big")
            if size > MAX_HELLO_BYTES:
                raise ValueError("the client hello is too long")
            if len(message) >= size:
                return bytes(message[4:size])
        header = data[at : at + 5]
        if header[:1] not in {b"", b"\x16"} or header[1:2] not in {b"", b"\x03"}:
            raise ValueError("not a handshake record")
        if len(header) < 5:
            raise IncompleteHelloError(at + 5)
        size = int.from_bytes(header[3:], "big")
        if not 0 < size <= 16384:
            raise ValueError("a record of a wrong size")
        if len(data) < at + 5 + size:
            raise IncompleteHelloError(at + 5 + size)
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
    raise ValueError("the client hello is cut into too many records")


class _Fields:
    """Reads length-prefixed fields; ``ValueError`` past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("the client hello is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))
