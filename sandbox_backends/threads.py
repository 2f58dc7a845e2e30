"""Blocking contexts, entered and left in a thread so that the event loop goes on."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(doing: asyncio.Future[T]) -> T:
    """The result of what cannot be broken off. Cancelled, however often, it waits all the same and raises that then."""
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return doing.result()
    if not doing.cancelled():
        doing.exception()  # seen
    raise cancelled


def begin(work: Callable[[], T]) -> asyncio.Future[T]:
    """``work`` in a thread. Not a task: a loop that ends cancels those, and whoever waits would not know the end."""
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(None, partial(context.run, work))


@asynccontextmanager
async def in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """``async with in_thread(context)`` is ``with context``. Cancelled while entering, it is left again.

    Neither step is cut short by a cancellation, nor by a second one.
    """
    entering = begin(context.__enter__)
    try:
        value = await to_the_end(entering)
    except asyncio.CancelledError:
        if not entering.cancelled() and entering.exception() is None:
            await to_the_end(begin(partial(context.__exit__, None, None, None)))
        raise
    try:
        yield value
    except BaseException:
        if not await to_the_end(begin(partial(context.__exit__, *sys.exc_info()))):
            raise
    else:
        await to_the_end(begin(partial(context.__exit__, None, None, None)))
