"""HTTP/1 as the egress proxy reads it: one request head, strictly, and its body (RFC 9112).

Whatever two programs could read differently is refused with 400, so a request cannot be smuggled past the check: what
goes to the server is written anew from what was understood here. Every read is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox_backends.egress.allow import Host, host_text, read_host
from sandbox_backends.egress.stream import CHUNK_BYTES, AnswerError, ByteStream

MAX_HEAD_BYTES = 32 * 1024
MAX_RESPONSE_HEAD_BYTES = 64 * 1024

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,254})(?::([0-9]{1,5}))?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)
_REWRITTEN = frozenset({b"host", b"content-length"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """A request as understood."""

    method: bytes
    host: Host
    port: int
    path: bytes = b""
    """With its query; empty for CONNECT."""
    minor: bytes
    """``0`` or ``1``, of HTTP/1."""
    fields: tuple[tuple[bytes, bytes], ...] = ()
    """What goes to the server besides Host, Connection and the framing."""
    body_bytes: int | None = 0
    """Length of the body; ``None`` is chunked."""

    @property
    def is_connect(self) -> bool:
        return self.method == b"CONNECT"

    def outgoing(self) -> bytes:
        """The head for the server: Host is the host that was checked, framing is what was understood."""
        host = host_text(self.host) + ("" if self.port == 80 else f":{self.port}")
        lines = [b"%b %b HTTP/1.%b" % (self.method, self.path, self.minor), b"Host: %b" % host.encode("ascii")]
        lines += [b"%b: %b" % field for field in self.fields]
        if self.body_bytes is None:
            lines.append(b"Transfer-Encoding: chunked")
        elif self.body_bytes or self.method in {b"POST", b"PUT", b"PATCH"}:
            lines.append(b"Content-Length: %d" % self.body_bytes)
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def read_head(stream: ByteStream) -> bytes:
    """A request head through its empty line. ``AnswerError`` 400 or 431; ``EOFError`` when it never came."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        line = await stream.line(MAX_HEAD_BYTES - len(head), status=431)
        if not line.endswith(b"\r\n") or (line == b"\r\n" and not head):
            raise AnswerError(400, "The request is malformed: a line does not end in CR LF, or is missing.")
        head += line
    return bytes(head)


def parse_head(head: bytes) -> RequestHead:
    """Understands a head that ends in an empty line. Raises ``AnswerError`` 400 or 501 and nothing else."""
    first, *lines = head[:-4].split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise AnswerError(400, "The request line is malformed.")
    method, target, minor = found.groups()
    fields = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise AnswerError(400, "A header line is malformed.")
        fields.append((field[1], field[2].strip(b" \t")))
    names = [name.lower() for name, _ in fields]
    if names.count(b"host") > 1:
        raise AnswerError(400, "The request names its Host twice.")
    body_bytes = _body_length(fields, minor)
    host, port, path = _read_target(method, target.decode("ascii"))
    if method == b"CONNECT" and body_bytes != 0:
        raise AnswerError(400, "A CONNECT request has no body.")
    connection = b",".join(value for name, value in fields if name.lower() == b"connection")
    dropped = _HOP_BY_HOP | _REWRITTEN | {token.strip(b" \t").lower() for token in connection.split(b",")}
    return RequestHead(
        method=method,
        host=host,
        port=port,
        path=path,
        minor=minor,
        fields=tuple(
            field
            for name, field in zip(names, fields, strict=True)
            if name not in dropped and not name.startswith(b"proxy-")
        ),
        body_bytes=body_bytes,
    )


def _body_length(fields: list[tuple[bytes, bytes]], minor: bytes) -> int | None:
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or (codings and minor == b"0"):
        raise AnswerError(400, "The length of the request body is stated in more than one way.")
    if codings:
        if codings != [b"chunked"]:
            raise AnswerError(501, "The only transfer coding that is understood is chunked.")
        return None
    if not lengths:
        return 0
    if not _LENGTH.fullmatch(lengths[0]):
        raise AnswerError(400, "The Content-Length is not a number.")
    return int(lengths[0])


def _read_target(method: bytes, target: str) -> tuple[Host, int, bytes]:
    if method == b"CONNECT":
        authority, path, port = target, "", 0
    elif target[:7].lower() == "http://":
        end = min((at for at in (target.find(mark, 7) for mark in "/?#") if at >= 0), default=len(target))
        authority, path, port = target[7:end], target[end:], 80
        if "#" in path:
            raise AnswerError(400, "A request target has no fragment.")
        if not path and method == b"OPTIONS":
            path = "*"  # RFC 9112, 3.2.4
        elif not path.startswith("/"):
            path = "/" + path
    else:
        raise AnswerError(400, "This proxy takes CONNECT host:port and absolute http:// addresses only.")
    found = _AUTHORITY.fullmatch(authority)
    port = int(found[2] or port) if found else 0
    if found is None or not 0 < port < 65536:
        raise AnswerError(400, "The request target names no valid host and port.")
    try:
        return read_host(found[1]), port, path.encode("ascii")
    except ValueError:
        raise AnswerError(400, "The request target names no valid host and port.") from None


async def relay_body(head: RequestHead, source: ByteStream, target: ByteStream) -> None:
    """Send a request body on. ``AnswerError`` 400 for bad chunks, ``EOFError`` when the client leaves in the middle."""
    if head.body_bytes is not None:
        await _relay_exactly(head.body_bytes, source, target)
    else:
        await _relay_chunks(source, target)


async def _relay_chunks(source: ByteStream, target: ByteStream) -> None:
    while True:
        found = _CHUNK_LINE.fullmatch(await source.line(MAX_HEAD_BYTES))
        if found is None:
            raise AnswerError(400, "A chunk of the request body is malformed.")
        size = int(found[1], 16)
        if size == 0:
            break
        await target.write(b"%x\r\n" % size)
        await _relay_exactly(size, source, target)
        if await source.line(2) != b"\r\n":
            raise AnswerError(400, "A chunk of the request body is malformed.")
        await target.write(b"\r\n")
    left = MAX_HEAD_BYTES
    while (line := await source.line(left)) != b"\r\n":  # trailers are dropped (RFC 9112, 7.1.2)
        left -= len(line)
        if not line.endswith(b"\r\n") or not _FIELD.fullmatch(line[:-2]):
            raise AnswerError(400, "A trailer of the request body is malformed.")
    await target.write(b"0\r\n\r\n")


async def _relay_exactly(count: int, source: ByteStream, target: ByteStream) -> None:
    while count:
        data = await source.read(min(count, CHUNK_BYTES))
        if not data:
            raise EOFError
        count -= len(data)
        await target.write(data)


async def relay_response_head(source: ByteStream, target: ByteStream) -> None:
    """Send the heads of interim answers and of the final one on, saying that the connection ends with it.

    Otherwise a client would keep the connection for a next request, which this proxy never reads.
    """
    while True:
        head: list[bytes] = []
        left, dropping = MAX_RESPONSE_HEAD_BYTES, False
        while (line := await source.line(left, status=502)) not in {b"\r\n", b"\n"}:
            left -= len(line)
            if not line.startswith((b" ", b"\t")):  # a folded line belongs to the one before
                name = line.partition(b":")[0].strip().lower()
                dropping = bool(head) and name in {b"connection", b"keep-alive", b"proxy-connection"}
            if not dropping:
                head.append(line)
        if not head or not head[0].startswith(b"HTTP/1."):
            raise AnswerError(502, "The server did not answer in HTTP.")
        interim = head[0][8:10] == b" 1" and head[0][9:12] != b"101"
        if not interim:
            head.append(b"Connection: close\r\n")
        await target.write(b"".join(head) + b"\r\n")
        if not interim:
            return
