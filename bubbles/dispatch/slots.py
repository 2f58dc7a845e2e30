"""How many turns run at a time (CORE-05). A turn that waits for a person holds no place (APPR-03)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LEAST, MOST = 4, 16


def usual(processors: int | None) -> int:
    """Turns at a time where nothing is configured: they mostly wait for a model."""
    return max(LEAST, min(MOST, 2 * (processors or 1)))


class Slots:
    """All calls belong to one event loop."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._holders: set[str] = set()

    @asynccontextmanager
    async def held(self, session_key: str) -> AsyncIterator[None]:
        """A place for a turn of this session, waited for."""
        await self._take(session_key)
        try:
            yield
        finally:
            self._give(session_key)

    @asynccontextmanager
    async def away(self, session_key: str) -> AsyncIterator[None]:
        """The session's turn waits for a person: its place is free meanwhile, and waited for again after.

        A turn that is stopped meanwhile needs none any more, and does not wait for others to end.
        """
        if session_key not in self._holders:
            yield
            return
        self._give(session_key)
        stopped = False
        try:
            yield
        except asyncio.CancelledError:
            stopped = True
            raise
        finally:
            if not stopped:
                await self._take(session_key)

    async def _take(self, session_key: str) -> None:
        await self._free.acquire()
        self._holders.add(session_key)

    def _give(self, session_key: str) -> None:
        if session_key in self._holders:
            self._holders.discard(session_key)
            self._free.release()
