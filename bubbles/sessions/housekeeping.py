"""Cleans sessions now and then while a program runs, and not again for every program that starts (SESS-04)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bubbles.sessions.cleaning import clean_sessions

EVERY_S = 6 * 3600.0
STAMP = "cleaned"
"""In the data directory; its time is that of the last run, of whatever process."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def tended(
    data_dir: Path, every_s: float = EVERY_S, clock: Callable[[], float] = time.time
) -> AsyncIterator[None]:
    """While the context lasts, scratch files are removed when the last run is older than ``every_s`` seconds."""
    tending = asyncio.create_task(_tend(data_dir, every_s, clock))  # a group would wrap what the caller raises
    try:
        yield
    finally:
        tending.cancel()
        await asyncio.wait({tending})


async def _tend(data_dir: Path, every_s: float, clock: Callable[[], float]) -> None:
    while True:
        try:
            due_s = await asyncio.to_thread(_due_s, data_dir / STAMP, every_s, clock)
            if due_s > 0:
                await asyncio.sleep(due_s)
                continue
            await clean_sessions(data_dir)
            await asyncio.to_thread((data_dir / STAMP).touch, 0o600)
        except OSError as error:
            _log.warning("scratch files were not cleaned: %s", error)
        await asyncio.sleep(every_s)  # whatever the stamp says now: a file server's clock may be ahead of ours


def _due_s(stamp: Path, every_s: float, clock: Callable[[], float]) -> float:
    """Seconds until the next run is due; a stamp from the future counts for nothing."""
    try:
        age = clock() - stamp.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    return every_s - age if 0 <= age < every_s else 0.0
