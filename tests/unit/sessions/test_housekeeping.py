"""Cleaning begins by itself, and is not done again by every program that starts."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from bubbles.sessions.housekeeping import STAMP, tended

DAY_S = 86_400


def old_file(data_dir: Path) -> Path:
    scratch = data_dir / "sessions" / "work" / "data" / "old.txt"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_text("x")
    os.utime(scratch, (time.time() - 4 * DAY_S,) * 2)
    return scratch


async def wait_for_the_stamp(data_dir: Path, newer_than: float = 0.0) -> None:
    def there() -> bool:
        stamp = data_dir / STAMP
        return stamp.exists() and stamp.stat().st_mtime > newer_than

    while not await asyncio.to_thread(there):  # noqa: ASYNC110 - another process would tell nobody either
        await asyncio.sleep(0.005)


@pytest.mark.req("SESS-04")
async def test_scratch_files_go_while_a_program_runs_and_once_in_a_while_only(tmp_path: Path) -> None:
    scratch = await asyncio.to_thread(old_file, tmp_path)
    async with tended(tmp_path):
        await wait_for_the_stamp(tmp_path)
    assert not await asyncio.to_thread(scratch.exists)
    scratch = await asyncio.to_thread(old_file, tmp_path)
    async with tended(tmp_path):
        await asyncio.sleep(0.05)
    assert await asyncio.to_thread(scratch.exists), "the last run was a moment ago"
    before = time.time() - 7 * 3600
    await asyncio.to_thread(os.utime, tmp_path / STAMP, (before, before))
    async with tended(tmp_path):
        await wait_for_the_stamp(tmp_path, before + 1)
    assert not await asyncio.to_thread(scratch.exists)


async def test_stamp_of_a_file_server_whose_clock_is_ahead_is_no_reason_to_clean_without_end(tmp_path: Path) -> None:
    async with tended(tmp_path, clock=lambda: time.time() - 3600):
        await wait_for_the_stamp(tmp_path)
        scratch = await asyncio.to_thread(old_file, tmp_path)
        await asyncio.sleep(0.1)
        assert await asyncio.to_thread(scratch.exists)


async def test_what_breaks_inside_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with tended(tmp_path):
            raise ZeroDivisionError
