"""How many turns run at a time (CORE-05). A turn that waits for a person holds no place (APPR-03)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from bubbles.bus import Origin

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
    async def held(self, holder: str) -> AsyncIterator[None]:
        """A place for a turn of this session, or for one of its tasks, waited for."""
        await self._take(holder)
        try:
            yield
        finally:
            self._give(holder)

    @asynccontextmanager
    async def away(self, holder: str) -> AsyncIterator[None]:
        """What holds it waits for a person: its place is free meanwhile, and waited for again after.

        A turn that is stopped meanwhile needs none any more, and does not wait for others to end.
        """
        if holder not in self._holders:
            yield
            return
        self._give(holder)
        stopped = False
        try:
            yield
        except asyncio.CancelledError:
            stopped = True
            raise
        finally:
            if not stopped:
                await self._take(holder)

    async def _take(self, holder: str) -> None:
        await self._free.acquire()
        self._holders.add(holder)

    def _give(self, holder: str) -> None:
        if holder in self._holders:
            self._holders.discard(holder)
            self._free.release()


class Lanes:
    """Turns have their slots, and tasks in the background others of the same number: however many tasks there are, no
    conversation waits for one (TOOL-05).
    """

    def __init__(self, count: int) -> None:
        self.turns = Slots(count)
        self.tasks = Slots(count)

    def held(self, origin: Origin) -> AbstractAsyncContextManager[None]:
        """A place for whatever makes the origin's calls."""
        return self._of(origin).held(_holder(origin))

    def away(self, origin: Origin) -> AbstractAsyncContextManager[None]:
        return self._of(origin).away(_holder(origin))

    def _of(self, origin: Origin) -> Slots:
        return self.tasks if origin.task else self.turns


def _holder(origin: Origin) -> str:
    """A session's turn holds a place by the session's key."""
    return f"{origin.session_key} {origin.task}" if origin.task else origin.session_key
