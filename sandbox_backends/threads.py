"""Blocking contexts, entered and left in a thread so that the event loop goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """``async with in_thread(context)`` is ``with context``. Cancelled while entering, it is left again."""
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        value = await asyncio.shield(entering)
    except asyncio.CancelledError:
        await asyncio.wait({entering})
        if entering.exception() is None:
            await asyncio.to_thread(context.__exit__, None, None, None)
        raise
    try:
        yield value
    except BaseException:
        if not await asyncio.shield(asyncio.to_thread(context.__exit__, *sys.exc_info())):
            raise
    else:
        await asyncio.shield(asyncio.to_thread(context.__exit__, None, None, None))
