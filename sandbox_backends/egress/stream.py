"""Bytes between two sockets, bounded: one chunk in hand each way, and a yield to the event loop for each.

The socket calls of asyncio are used, not its streams: those hold up to half a megabyte for each side of a connection
that is not being read, and that is the controller's memory at the mercy of what runs inside.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress

from sandbox_backends.egress.allow import IPAddress

CHUNK_BYTES = 64 * 1024

_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024


class AnswerError(Exception):
    """Ends a conversation: the client gets this status and sentence, if it has got nothing yet."""

    def __init__(self, status: int, sentence: str, phrase: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.phrase = phrase

    def response(self) -> bytes:
        """The whole answer as HTTP."""
        body = f"{self.sentence}\n".encode("ascii", "replace")
        # Programs show the phrase of a failed CONNECT and not its body: the mend stands in both.
        phrase = self.phrase or http.HTTPStatus(self.status).phrase
        return (
            f"HTTP/1.1 {self.status} {phrase}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        ).encode("ascii", "replace") + body


class ByteStream:
    """A non-blocking socket with what was read ahead. It never holds more than one chunk and one line."""

    __slots__ = ("_ahead", "_loop", "_socket", "touch", "written")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._ahead = bytearray()
        self.touch: Callable[[], None] = lambda: None
        """Called whenever bytes have moved."""
        self.written = False
        """Whether anything was sent."""

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """At least one byte and at most ``limit``; nothing at the end."""
        if self._ahead:
            data = bytes(self._ahead[:limit])
            del self._ahead[:limit]
            return data
        return await self._receive(limit)

    async def line(self, limit: int, *, status: int = 400) -> bytes:
        """Through the next line feed. ``EOFError`` at the end, ``AnswerError`` when ``limit`` bytes hold none."""
        searched = 0
        while (end := self._ahead.find(b"\n", searched)) < 0:
            searched = len(self._ahead)
            if searched >= limit:
                break
            data = await self._receive(limit - searched)
            if not data:
                raise EOFError
            self._ahead += data
        if not 0 <= end < limit:
            raise AnswerError(status, "A line is too long.")
        line = bytes(self._ahead[: end + 1])
        del self._ahead[: end + 1]
        return line

    async def write(self, data: bytes) -> None:
        self.written = True
        # The socket calls return at once when they can: without this a busy stream would have the loop to itself.
        await asyncio.sleep(0)
        await self._loop.sock_sendall(self._socket, data)
        self.touch()

    async def _receive(self, limit: int) -> bytes:
        data = await self._loop.sock_recv(self._socket, limit)
        self.touch()
        return data

    def end(self) -> None:
        """Tell the other side that nothing follows; it may still send."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone already

    async def say(self, error: AnswerError) -> None:
        """Answer, then read on for a moment: closing over unread bytes could take the answer away from the client."""
        with suppress(OSError):
            async with asyncio.timeout(_LINGER_S):
                await self.write(error.response())
                self.end()
                left = _LINGER_BYTES
                while left > 0 and (data := await self.read()):
                    left -= len(data)

    def close(self) -> None:
        self._socket.close()


async def pump(source: ByteStream, target: ByteStream) -> None:
    """Everything to the end, and then the end."""
    while data := await source.read():
        await target.write(data)
    target.end()


class Idle:
    """Puts a timeout off while bytes move, and not more often than it matters."""

    def __init__(self, timeout: asyncio.Timeout, idle_s: float) -> None:
        self._timeout = timeout
        self._idle_s = idle_s
        self._next = 0.0

    def touch(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next and not self._timeout.expired():
            self._timeout.reschedule(now + self._idle_s)
            self._next = now + self._idle_s / 50


async def connect(address: IPAddress, port: int) -> ByteStream:
    """Dial this very address; no name is looked up. Raises ``OSError``."""
    family = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
        return ByteStream(sock)
    except BaseException:
        sock.close()
        raise
