"""The two ends of a connection as the SDK takes them: what is written never waits, and both end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage

from bubbles.mcp.client.closing import Closing
from bubbles.mcp.client.filter import MessageFilter

MAX_QUEUED_BYTES = 32 << 20
MAX_QUEUED = 1_000
DEAF = "it does not read what it is sent"


class Outbox:
    """A write stream of the SDK's: messages wait here for their turn, a bounded many. ``deliver`` sends one."""

    def __init__(
        self, deliver: Callable[[SessionMessage, bytes], Awaitable[None]], messages: MessageFilter, closing: Closing
    ) -> None:
        self._deliver = deliver
        self._messages = messages
        self._fate = closing
        self._waiting: asyncio.Queue[tuple[SessionMessage, bytes]] = asyncio.Queue(MAX_QUEUED)
        self._bytes = 0

    async def send(self, item: SessionMessage, /) -> None:
        """Raises ``anyio.BrokenResourceError`` once the connection has ended, ``ValueError`` for what is no JSON."""
        if self._fate.reason is not None:
            raise anyio.BrokenResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if self._waiting.full() or self._bytes + len(text) > MAX_QUEUED_BYTES:
            self._fate.end(DEAF)
            raise anyio.BrokenResourceError
        self._messages.sends(item.message)
        self._bytes += len(text)
        self._waiting.put_nowait((item, text))

    async def pump(self) -> None:
        """Send one after the other, until cancelled."""
        while True:
            item, text = await self._waiting.get()
            await self._deliver(item, text)
            self._bytes -= len(text)

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return
