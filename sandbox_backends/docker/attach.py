"""Attached to a container's main process by a connection taken over from the engine's HTTP (attach hijack).

What the process says on stderr is kept, and its end is seen at once. Where a unix socket cannot be shared with a
container the frames themselves travel here, in stdin and stdout: :meth:`Attached.carry`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from sandbox_backends.errors import BackendUnavailableError

KEPT_COMPLAINTS = 4000
STDIN, STDOUT, STDERR = 0, 1, 2
_HEAD = struct.Struct("!BxxxI")
"""Before each piece of output: the stream's number and the length of the piece (Docker Engine API, ContainerAttach)."""
ANSWER_S = 30.0


class _Side(asyncio.Protocol):
    """One of two connections that are each other's other end: what one cannot take in, the other does not read."""

    _transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def hold(self, held: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()


class Attached(_Side):
    """Both ends of the conversation with one container. Create with :func:`attach`."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """The container's main process ended, or the engine did."""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray()
        self._complaints = bytearray()
        self._carried: _Carried | None = None

    @property
    def complaints(self) -> str:
        """The end of what it said on stderr, in one line."""
        return self._complaints.decode("utf-8", "replace").strip().replace("\n", "; ")

    async def request(self, head: str) -> None:
        assert self._transport is not None
        self._transport.write(head.encode())
        async with asyncio.timeout(ANSWER_S):
            answer = await self._answer
        status = answer.split(b"\r\n", 1)[0]
        if status.split(b" ")[1:2] not in ([b"101"], [b"200"]):
            raise BackendUnavailableError(f"The Docker engine refused to attach: {status.decode('latin-1')}.")

    async def carry(self) -> socket.socket:
        """A socket whose other end is the container's stdin and stdout."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        carried = self._carried = _Carried(self)
        await asyncio.get_running_loop().create_connection(lambda: carried, sock=theirs)
        return ours

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol --

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._answer.done():
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            self._answer.set_result(bytes(head))
            self._buffer = rest
        self._sort_out()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_result(b"HTTP/1.1 0 the connection was closed")
        if self._carried is not None:
            self._carried.close()
        self.ended.set()

    def pause_writing(self) -> None:
        if self._carried is not None:
            self._carried.hold(True)

    def resume_writing(self) -> None:
        if self._carried is not None:
            self._carried.hold(False)

    # -- the output of the container --

    def _sort_out(self) -> None:
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            stream, length = _HEAD.unpack_from(self._buffer, at)
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            piece = bytes(self._buffer[at + _HEAD.size : end])
            if stream == STDERR:
                self._complaints += piece
                del self._complaints[:-KEPT_COMPLAINTS]
            elif self._carried is not None:
                self._carried.write(piece)
            at = end
        del self._buffer[:at]


class _Carried(_Side):
    """Our side of the socket pair: what is read here goes to the container's stdin."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached

    def data_received(self, data: bytes) -> None:
        self._attached.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._attached.close()

    def pause_writing(self) -> None:
        self._attached.hold(True)

    def resume_writing(self) -> None:
        self._attached.hold(False)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def attach(socket_path: str, api: str, container: str, *, stdin: bool) -> Attached:
    """Attach to a container that was created and not started yet. Raises BackendUnavailableError."""
    loop = asyncio.get_running_loop()
    try:
        _, attached = await loop.create_unix_connection(Attached, socket_path)
    except OSError as error:
        raise BackendUnavailableError(f"The Docker engine went away ({error.strerror}).") from error
    streams = "stream=1&stdout=1&stderr=1" + ("&stdin=1" if stdin else "")
    head = f"POST /v{api}/containers/{container}/attach?{streams} HTTP/1.1\r\nHost: docker\r\n"
    try:
        await attached.request(head + "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n")
    except TimeoutError:
        attached.close()
        raise BackendUnavailableError("The Docker engine does not answer.", "Restart it.") from None
    except BaseException:
        attached.close()
        raise
    return attached
