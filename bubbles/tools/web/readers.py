"""Work that takes seconds in a thread, for pages that others may have made to take long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

READERS = 2
"""Pages that are read at once: the threads are all there are for everything else too."""

T = TypeVar("T")


class Readers:
    """Who waits can leave at any time; the place is free only when the thread is, which goes on to its end."""

    def __init__(self, places: int = READERS) -> None:
        self._places = asyncio.Semaphore(places)

    async def run(self, work: Callable[[], T]) -> T:
        await self._places.acquire()
        future = asyncio.get_running_loop().run_in_executor(None, work)
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._places.release()
        if not future.cancelled():
            future.exception()  # who waited for it may be gone
