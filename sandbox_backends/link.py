"""The controller's end of the framed stream to one runner.

Nothing that comes back is believed: a frame's size is checked before it is kept, its type, request id and every field
before they are used, the amount of output against what was asked for, and the time against a deadline. A stream that
breaks a rule is closed, which ends that sandbox and no other.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

from sandbox_backends.contract import StreamName
from sandbox_backends.errors import (
    FileError,
    InvalidRequestError,
    PathRefusedError,
    ProtocolError,
    SandboxError,
    SandboxLostError,
)
from sandbox_backends.runner import wire

Meta = dict[str, Any]
Sink = Callable[[StreamName, bytes], None]

HANDSHAKE_S = 30.0
FILE_CODES = frozenset(
    ("not_found", "not_a_file", "not_a_directory", "permission", "no_space", "too_long", "invalid", "io", "refused")
)


def field(meta: Meta, name: str, kind: type, low: float = -(2**63), high: float = 2**63) -> Any:
    """``meta[name]`` if it is of this type and within bounds; ProtocolError otherwise."""
    value: Any = meta.get(name)
    if kind is float and type(value) is int and abs(value) < 2**63:
        value = float(value)
    if type(value) is not kind or (isinstance(value, int | float) and not low <= value <= high):
        raise ProtocolError(f"the sandbox's runner sent a bad answer: {name} is {str(value)[:40]!r}")
    return value


class Call:
    """One request in flight."""

    __slots__ = ("ack", "budget", "done", "request", "sink")

    def __init__(self, request: int, sink: Sink | None, budget: int | None) -> None:
        self.request = request
        self.done: asyncio.Future[Meta] = asyncio.get_running_loop().create_future()
        self.ack: asyncio.Future[bool] | None = None
        self.sink = sink
        self.budget = budget

    def output(self, meta: Meta, data: bytes) -> None:
        stream = meta.get("stream")
        if stream not in ("stdout", "stderr") or not data:
            raise ProtocolError("the sandbox's runner sent output that is none")
        if self.budget is not None:
            self.budget -= len(data)
            if self.budget < 0:
                raise ProtocolError("the sandbox's runner sent more output than it was asked for")
        if self.sink is not None:
            self.sink(cast(StreamName, stream), data)

    def fail(self, error: BaseException) -> None:
        for future in (self.done, self.ack):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # it may be that nobody waits any more


class Link(asyncio.Protocol):
    """Requests out, answers in; many at once. Create with :meth:`connect`."""

    def __init__(self) -> None:
        self._parser = wire.FrameParser(wire.MAX_META_FROM_RUNNER)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._next = 1
        self._writable = asyncio.Event()
        self._writable.set()
        self._opening: Call | None = Call(0, None, 0)  # HELLO, then READY
        self.lost: SandboxLostError | None = None
        self.closed = asyncio.Event()
        self.explain: Callable[[], Awaitable[str]] | None = None
        """Asked once when the connection ends by itself; every call then fails with the reason it gives."""
        self._explaining: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, sock: socket.socket) -> Link:
        """Take over a connected socket."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(cls, sock=sock)
        return link

    # -- the handshake --

    async def hello(self) -> Meta:
        """What the runner says of its place, checked."""
        meta = await self._opened()
        if field(meta, "version", int) != wire.VERSION:
            raise ProtocolError(f"the sandbox's runner speaks version {meta['version']}, not {wire.VERSION}")
        field(meta, "uid", int, 0, 2**32)
        for name in ("machine", "python", "caps"):
            field(meta, name, str)
        self._opening = Call(0, None, 0)
        return meta

    async def init(self, meta: Meta, program: bytes) -> None:
        """Tell the runner its roots and limits; ``program`` is the system call filter it puts on itself."""
        self._send(wire.INIT, 0, meta, program)
        await self._opened()
        self._opening = None

    async def _opened(self) -> Meta:
        assert self._opening is not None
        return await self.result(self._opening, HANDSHAKE_S)

    # -- requests --

    def begin(
        self, kind: int, meta: Meta, data: bytes = b"", *, sink: Sink | None = None, budget: int | None = 0
    ) -> Call:
        """Send a request. ``budget`` bounds the bytes of output that may come back (``None``: any)."""
        self._check()
        request = self._next
        self._next = self._next % 0xFFFFFFFF + 1
        frame = wire.pack(kind, request, meta, data)
        if len(frame) - len(data) > wire.MAX_META_TO_RUNNER:
            raise InvalidRequestError(
                "the request's argv, environment and paths are together longer than any place takes"
            )
        call = self._calls[request] = Call(request, sink, budget)
        self._write(frame)
        return call

    async def result(self, call: Call, within_s: float | None) -> Meta:
        """The answer. Past ``within_s`` the sandbox counts as lost; cancelled, the answer is thrown away when it comes.

        Raises FileError or PathRefusedError as the runner reports, SandboxLostError.
        """
        overdue = None
        if within_s is not None:
            late = SandboxLostError(f"the sandbox did not answer within {within_s:.0f} s")
            overdue = asyncio.get_running_loop().call_later(within_s, self._break, late)
        try:
            return await call.done
        except asyncio.CancelledError:
            call.sink, call.budget = None, None
            raise
        finally:
            if overdue is not None:
                overdue.cancel()

    async def call(
        self,
        kind: int,
        meta: Meta,
        data: bytes = b"",
        *,
        sink: Sink | None = None,
        budget: int = 0,
        within_s: float = 60.0,
    ) -> Meta:
        return await self.result(self.begin(kind, meta, data, sink=sink, budget=budget), within_s)

    async def send(self, kind: int, call: Call, meta: Meta, data: bytes = b"", *, within_s: float = 60.0) -> None:
        """A further frame of a request, when the stream has room for it.

        The runner takes what comes at once, whatever its commands do: past ``within_s`` the sandbox counts as lost.
        """
        if not self._writable.is_set():
            try:
                await asyncio.wait_for(self._writable.wait(), within_s)
            except TimeoutError:
                raise self._break(SandboxLostError(f"the sandbox did not answer within {within_s:.0f} s")) from None
        self._check()
        self._send(kind, call.request, meta, data)

    async def stdin(self, call: Call, data: bytes, eof: bool) -> bool:
        """Feed a command; True once the bytes are in its pipe, False when it no longer reads."""
        if call.ack is not None and not call.ack.done():
            await asyncio.wait((call.ack,))  # of a write that was cancelled: one piece at a time is on its way
        if call.done.done():
            return False
        call.ack = asyncio.get_running_loop().create_future()
        await self.send(wire.STDIN, call, {"eof": eof}, data)
        return not await call.ack

    def signal(self, call: Call, number: int) -> None:
        """Signal the command's process group; SIGKILL ends its whole tree. Nothing happens if it has ended.

        A file that is being written is given up by any signal.
        """
        if self.lost is None and call.request in self._calls:
            self._send(wire.SIGNAL, call.request, {"signal": number})

    def close(self) -> None:
        """End the connection, and with it the runner and all it started."""
        self._break(SandboxLostError("the sandbox is closed"))
        if self._explaining is not None:
            self._explaining.cancel()

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1 << 20)

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        try:
            for kind, request, meta, body in self._parser.feed(data):
                self._receive(kind, request, meta, body)
        except wire.FrameError as error:
            self._break(ProtocolError(f"the sandbox's runner broke the protocol: {error}"))
        except ProtocolError as error:
            self._break(error)

    def connection_lost(self, _: Exception | None) -> None:
        if self.lost is None and self.explain is not None:
            self._explaining = asyncio.get_running_loop().create_task(self._lose(self.explain))
        else:
            self._break(SandboxLostError("the sandbox's main process ended"))
        self.closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- inside --

    def _check(self) -> None:
        if self.lost is not None:
            raise type(self.lost)(*self.lost.args)  # a new one: a raised exception gathers the stacks it went through

    async def _lose(self, explain: Callable[[], Awaitable[str]]) -> None:
        try:
            why = await explain()
            self._break(SandboxLostError(f"the sandbox is gone, with its processes and temporary files: {why}"))
        finally:
            self._break(SandboxLostError("the sandbox's main process ended"))

    def _send(self, kind: int, request: int, meta: Meta, data: bytes = b"") -> None:
        self._write(wire.pack(kind, request, meta, data))

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def _receive(self, kind: int, request: int, meta: Meta, data: bytes) -> None:
        opening = kind in (wire.HELLO, wire.READY) or (kind == wire.FAIL and request == 0)
        call = self._opening if opening else self._calls.get(request)
        if call is None or (opening and (request != 0 or call.done.done())):
            raise ProtocolError("the sandbox's runner answered a request that was not made")
        if kind == wire.OUT:
            try:
                call.output(meta, data)
            except ProtocolError:
                raise
            except Exception as error:  # noqa: BLE001 - a caller's callback failed: its own command pays, no other
                call.sink, call.budget = None, None
                self.signal(call, 9)
                call.fail(error)
        elif kind == wire.ACK:
            if call.ack is not None and not call.ack.done():
                call.ack.set_result(bool(field(meta, "closed", bool)))
        elif kind in (wire.DONE, wire.HELLO, wire.READY):
            self._calls.pop(request, None)
            if call.ack is not None and not call.ack.done():
                call.ack.set_result(True)
            if not call.done.done():
                call.done.set_result(meta)
        elif kind == wire.FAIL:
            failure = self._failure(meta)
            self._calls.pop(request, None)
            call.fail(failure)
        else:
            raise ProtocolError(f"the sandbox's runner sent a frame of unknown type {kind}")

    @staticmethod
    def _failure(meta: Meta) -> SandboxError:
        code, message = field(meta, "code", str), field(meta, "message", str)
        if code not in FILE_CODES:
            raise ProtocolError("the sandbox's runner sent a failure of no known code")
        return PathRefusedError(message) if code == "refused" else FileError(code, message)

    def _break(self, error: SandboxLostError) -> SandboxLostError:
        """End it all, once; the first reason stands."""
        if self.lost is None:
            self.lost = error
            if self._transport is not None:
                self._transport.abort()
            calls, self._calls = list(self._calls.values()), {}
            for call in [*calls, *([self._opening] if self._opening else [])]:
                call.fail(error)
            self._writable.set()
        return self.lost
