"""Work that may take long and cannot be told to stop: pages that are made to be hard to read, names to look up.

Each in a thread of its own, for which the end of the program does not wait. It would for those of the event loop, which
are few, and all there are for everything else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Who waits can leave at any time; the place is free only when the thread is, which goes on to its end."""

    def __init__(self, places: int) -> None:
        """``places``: how many work at once; others wait."""
        self._places = asyncio.Semaphore(places)

    async def run(self, work: Callable[[], T]) -> T:
        await self._places.acquire()
        future = _begun(work)
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._places.release()
        if not future.cancelled():
            future.exception()  # who waited for it may be gone


def _begun(work: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            ended = partial(future.set_result, work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            ended = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return future
