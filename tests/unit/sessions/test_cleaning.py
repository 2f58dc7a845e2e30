"""Three days without a change, and a file in data/ is gone; nothing else ever is."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.sessions.cleaning import MAX_DEPTH, Cleaned, clean_sessions

NOW = datetime(2026, 5, 10, tzinfo=UTC)
OLD = NOW - timedelta(days=3, seconds=1)
YOUNG = NOW - timedelta(days=2, hours=23)


def aged(path: Path, when: datetime = OLD) -> Path:
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    os.utime(path, (when.timestamp(), when.timestamp()), follow_symlinks=False)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    found = tmp_path / "bubbles" / "sessions" / "work" / "data"
    found.mkdir(parents=True)
    return found


async def clean(data: Path) -> Cleaned:
    return await clean_sessions(data.parents[2], now=lambda: NOW)


@pytest.mark.req("SESS-04")
async def test_old_files_go_with_the_directories_that_they_leave_empty(data: Path) -> None:
    aged(data / "old")
    aged(data / "a/b/old")
    aged(data / "mixed/old")
    young = [aged(data / "young", YOUNG), aged(data / "mixed/young", YOUNG), aged(data / "future", NOW + timedelta(9))]
    (data / "empty").mkdir()
    aged(data / "empty")
    done = await clean(data)
    assert (done.files, done.bytes, done.directories, done.warnings) == (3, 3, 2, ())
    assert all(path.exists() for path in young)
    assert sorted(path.name for path in data.iterdir()) == ["empty", "future", "mixed", "young"]
    assert await clean(data) == Cleaned()


@pytest.mark.req("SESS-04")
async def test_nothing_outside_data_is_touched(data: Path) -> None:
    desk, home = data.parent, data.parents[2]
    kept = [desk / "SOUL.md", desk / "notes.txt", desk / "skills/x/SKILL.md", home / "session_state/work/data/x"]
    kept += [home / "sessions/No Key/data/x", home / "data/x", home / "sessions/data/x"]
    for path in kept:
        aged(path)
    aged(home / "sessions/other/data/x")
    assert (await clean(data)).files == 1
    assert all(path.exists() for path in kept)


@pytest.mark.req("SESS-04", "SESS-09")
async def test_links_go_and_what_they_lead_to_stays(data: Path, tmp_path: Path) -> None:
    outside = aged(tmp_path / "outside/file")
    (data / "file").symlink_to(outside)
    (data / "folder").symlink_to(outside.parent)
    os.link(outside, data / "hard")
    os.mkfifo(data / "fifo")
    for name in ("file", "folder", "fifo", "hard"):
        aged(data / name)
    (data / "young link").symlink_to(outside)
    aged(data / "young link", YOUNG)
    assert (await clean(data)).files == 4
    assert [path.name for path in data.iterdir()] == ["young link"]
    assert outside.exists()


@pytest.mark.req("SESS-09")
@pytest.mark.parametrize("what", ["data", "desk"])
async def test_directory_that_is_a_link_is_not_cleaned_and_that_is_said(data: Path, tmp_path: Path, what: str) -> None:
    victim = aged(tmp_path / "victim/data/file")
    data.rmdir()
    if what == "data":
        data.symlink_to(victim.parent)
    else:
        data.parent.rmdir()
        data.parent.symlink_to(victim.parent.parent)
    done = await clean(data)
    assert victim.exists()
    assert len(done.warnings) == 1
    assert "work was not cleaned" in done.warnings[0]


async def test_what_is_not_a_directory_or_not_there_is_no_fault(data: Path, tmp_path: Path) -> None:
    assert await clean_sessions(tmp_path / "none", now=lambda: NOW) == Cleaned()
    data.rmdir()
    assert await clean(data) == Cleaned()
    data.write_text("a file")
    aged(data)
    assert len((await clean(data)).warnings) == 1
    assert data.exists()


async def test_deep_trees_are_cleaned_as_far_as_they_are_walked(data: Path) -> None:
    deep = data / "/".join("d" * (MAX_DEPTH + 20))
    deep.mkdir(parents=True)
    aged(deep / "deep")
    aged(data / "old")
    assert (await clean(data)).files == 1
    assert (deep / "deep").exists()


@pytest.mark.req("SESS-04", "SESS-09")
async def test_directory_that_is_swapped_for_a_link_meanwhile_never_leads_out(data: Path, tmp_path: Path) -> None:
    """B127"""
    outside = [aged(tmp_path / f"outside/file{number}") for number in range(50)]
    (data / "d").mkdir()
    (tmp_path / "link").symlink_to(outside[0].parent)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(data / "d", tmp_path / "aside")
            os.rename(tmp_path / "link", data / "d")
            os.rename(data / "d", tmp_path / "link")
            os.rename(tmp_path / "aside", data / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(100):
            await clean(data)
    finally:
        stop.set()
        thread.join()
    assert all(path.exists() for path in outside)


@pytest.mark.needs("root")
@pytest.mark.req("SESS-04")
async def test_files_of_a_sandbox_user_are_cleaned_too(data: Path) -> None:
    aged(data / "dir/theirs")
    for path in (data, data / "dir", data / "dir/theirs"):
        os.chown(path, 12345, 12345)
    (data / "dir").chmod(0)
    assert (await clean(data)).files == 1
