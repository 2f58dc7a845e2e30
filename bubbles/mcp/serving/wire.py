"""The messages of one client, as the SDK's server takes and gives them, over two open files.

What is read is never more than can be answered: while a client does not read its answers, nothing more is taken from
it. What the client sends of cards that it has answered comes over the same way as its calls, so calls that wait for a
person must never stop the reading; that there are only so many of them is the business of ``calls``.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from bubbles.mcp.serving.lines import MAX_LINE_BYTES, LinesIn, LinesOut, OverlongError

MAX_OPEN = 2_048
MAX_OPEN_BYTES = 64 << 20
"""Of requests without an answer. Twice what calls may hold: more than that are answers that nobody reads."""
GRACE_S = 0.5
"""How long answers may take that are due when the client has said its last: it may have closed one side only."""
MAX_TOLD = 200
MAX_FORGIVEN = 1 << 20
"""Bytes of a wrong line that is looked through for the id of what it asks."""


class Ledger:
    """Requests that have no answer yet."""

    def __init__(self) -> None:
        self._sizes: dict[RequestId, deque[int]] = defaultdict(deque)
        """By id; a client may use one twice."""
        self._count = 0
        self._bytes = 0
        self._shrunk = asyncio.Event()

    @property
    def full(self) -> bool:
        return self._count >= MAX_OPEN or self._bytes >= MAX_OPEN_BYTES

    def opened(self, ident: RequestId, size: int) -> None:
        self._sizes[ident].append(size)
        self._count += 1
        self._bytes += size

    def closed(self, ident: RequestId) -> None:
        sizes = self._sizes.get(ident)
        if not sizes:
            return
        self._bytes -= sizes.popleft()
        self._count -= 1
        if not sizes:
            del self._sizes[ident]
        self._shrunk.set()

    def wake(self) -> None:
        self._shrunk.set()

    async def changed(self) -> None:
        self._shrunk.clear()
        await self._shrunk.wait()

    async def empty(self) -> None:
        while self._count:
            await self.changed()


class Wire:
    """Both directions. Use as a context, which neither opens nor closes the files."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.ledger = Ledger()
        self.out = LinesOut(write_fd, self._gone)
        self.lines = LinesIn(read_fd, self._ended)
        self.incoming = Incoming(self)
        self.outgoing = Outgoing(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.out.close()

    def _ended(self) -> None:
        """The client has said its last. Who does not read now what is due would keep the program from ending."""
        self.ledger.wake()
        asyncio.get_running_loop().call_later(GRACE_S, self.out.close)

    def _gone(self) -> None:
        self.lines.close()


class Incoming:
    """A ``ReadStream`` of the SDK."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def receive(self) -> SessionMessage | Exception:
        """Raises anyio.EndOfStream."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                await self._refuse(*_fault(error, line))
                continue
            if not isinstance(message, JSONRPCRequest):
                return SessionMessage(message)
            return self._request(message, len(line))
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self._wire.ledger.empty()
        raise anyio.EndOfStream

    def _request(self, message: JSONRPCRequest, size: int) -> SessionMessage:
        """With its size as what the SDK calls the transport's context."""

        async def unanswered() -> None:
            self._wire.ledger.closed(message.id)

        self._wire.ledger.opened(message.id, size)
        return SessionMessage(message, ServerMessageMetadata(request_context=size, on_request_unanswered=unanswered))

    async def _line(self) -> bytes | None:
        wire = self._wire
        while True:
            while wire.ledger.full:
                if wire.lines.ended:
                    return None
                await wire.ledger.changed()
            try:
                return await wire.lines.next()
            except OverlongError:
                told = f"The message is over {MAX_LINE_BYTES >> 20} MiB, the most that is taken: send less at once."
                await self._refuse(None, INVALID_REQUEST, told)

    async def _refuse(self, ident: RequestId | None, code: int, told: str) -> None:
        message = JSONRPCError(jsonrpc="2.0", id=ident, error=ErrorData(code=code, message=told))
        with suppress(anyio.BrokenResourceError):
            await self._wire.outgoing.send(SessionMessage(message))

    async def aclose(self) -> None:
        self._wire.lines.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """A ``WriteStream`` of the SDK."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, item: SessionMessage, /) -> None:
        """Raises anyio.BrokenResourceError."""
        message = item.message
        try:
            await self._wire.out.send(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                self._wire.ledger.closed(message.id)

    async def aclose(self) -> None:
        """What is on its way still goes out: the wire's context ends that."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _fault(error: ValidationError, line: bytes) -> tuple[RequestId | None, int, str]:
    """What is answered to a line that is no message; the id only if it asked for something and has one."""
    kind = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if kind["type"] == "json_invalid":
        told = f"The line is no JSON text: {kind['msg'].removeprefix('Invalid JSON: ')[:MAX_TOLD]}."
        return _ident(_forgiven(line)), PARSE_ERROR, told
    told = "The line is no JSON-RPC 2.0 message: one object with jsonrpc, method and id."
    return _ident(from_json(line)), INVALID_REQUEST, told


def _forgiven(line: bytes) -> object:
    """What it means to a reader who takes half a character too, as some clients write it; they wait for an answer."""
    if len(line) > MAX_FORGIVEN:
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _ident(found: object) -> RequestId | None:
    ident = found.get("id") if isinstance(found, dict) and "method" in found else None
    return ident if isinstance(ident, int | str) and not isinstance(ident, bool) and _can_be_sent(ident) else None


def _can_be_sent(ident: RequestId) -> bool:
    return isinstance(ident, int) or not any("\ud800" <= letter <= "\udfff" for letter in ident)
