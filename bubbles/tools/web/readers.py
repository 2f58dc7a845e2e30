"""Work that takes seconds in a thread: pages that others may have made to take long, names that nobody answers for.

The end of the program waits for none of them. It would wait for threads of the event loop's own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

READERS = 2
"""Pages that are read at once: they take what processors there are."""

T = TypeVar("T")


class Readers:
    """Who waits can leave at any time; the place is free only when the thread is, which goes on to its end."""

    def __init__(self, places: int = READERS) -> None:
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

    threading.Thread(target=run, name="reader", daemon=True).start()
    return future
