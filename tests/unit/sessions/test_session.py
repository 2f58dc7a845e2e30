"""A session as a place: what is made, who may work on it, what a model's tricks in its desk come to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from bubbles.sessions.contract import SessionBusyError, SessionDamagedError, SessionError, TurnEnd
from bubbles.sessions.key import chat_key
from bubbles.sessions.session import REMEMBERED, Sessions
from tests.unit.sessions.talk import Desk, say, shown


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


@pytest.mark.req("SESS-01", "SESS-08", "SESS-07")
async def test_new_session_has_what_belongs_to_it(tmp_path: Path) -> None:
    skill = tmp_path / "template" / "weather"
    skill.mkdir(parents=True)
    (tmp_path / "template" / "README.md").write_text("about")
    (skill / "SKILL.md").write_text("# Weather")
    (skill / "run.sh").write_text("echo sun")
    (skill / "run.sh").chmod(0o755)
    (skill / "secret").symlink_to("/etc/hostname")
    sessions = Sessions(tmp_path / "data", skills=tmp_path / "template")
    session = await sessions.open("work")
    async with session.turn():
        pass
    desk, state = session.folders.desk, session.folders.state
    assert (desk, state) == (tmp_path / "data/sessions/work", tmp_path / "data/session_state/work")
    assert sorted(path.name for path in desk.iterdir()) == sorted(
        ["SOUL.md", "MEMORY.md", "data", "skills", "session.jsonl", "config.json"]
    )
    assert "Bubbles" in (desk / "SOUL.md").read_text()
    assert sorted(path.name for path in (desk / "skills").rglob("*")) == ["SKILL.md", "run.sh", "weather"]
    assert os.access(desk / "skills/weather/run.sh", os.X_OK)
    assert (desk / "session.jsonl").readlink() == state / "session.jsonl"
    assert (desk / "config.json").readlink() == state / "config.json"
    assert (state / "config.json").read_text() == "{}\n"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert state.stat().st_mode & 0o777 == 0o700
    assert session.take_warnings() == ()


async def test_what_a_person_changed_or_removed_stays_so(desk: Desk) -> None:
    async with (await desk.session()).turn():
        pass
    (desk.folders.desk / "SOUL.md").write_text("mine")
    (desk.folders.desk / "MEMORY.md").unlink()
    (desk.folders.desk / "skills").rmdir()
    await desk.read()
    assert (desk.folders.desk / "SOUL.md").read_text() == "mine"
    assert not (desk.folders.desk / "MEMORY.md").exists()
    assert not (desk.folders.desk / "skills").exists()
    desk.file.unlink()
    await desk.read()
    assert (desk.folders.desk / "SOUL.md").read_text() == "mine"


@pytest.mark.req("SESS-07", "SESS-09")
@pytest.mark.parametrize("what", ["file", "directory", "link", "fifo", "nothing"])
async def test_link_that_was_replaced_comes_back_and_what_replaced_it_has_no_effect(
    desk: Desk, what: str, tmp_path: Path
) -> None:
    """B125, B131"""
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "hi")
        await history.end_turn(TurnEnd.DONE, turn="t1")
    before = desk.file.read_bytes()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("session.jsonl", "config.json"):
        planted = desk.folders.desk / name
        planted.unlink()
        if what == "file":
            planted.write_text('{"sandbox": "local"}\n')
        elif what == "directory":
            planted.mkdir()
        elif what == "link":
            planted.symlink_to(victim)
        elif what == "fifo":
            os.mkfifo(planted)
    async with session.turn() as history:
        assert shown(history.messages) == ["user: hi"]
    assert desk.file.read_bytes() == before
    assert (desk.folders.state / "config.json").read_text() == "{}\n"
    assert (desk.folders.desk / "session.jsonl").readlink() == desk.file
    assert victim.read_text() == "precious"
    aside = sorted(desk.folders.desk.glob("*.replaced-*"))
    warnings = session.take_warnings()
    assert len(aside) == len(warnings) == (0 if what == "nothing" else 2)
    assert all("has no effect" in warning for warning in warnings)
    if what == "file":
        assert aside[0].read_text() == '{"sandbox": "local"}\n'
    await session.prepare()
    assert session.take_warnings() == ()


@pytest.mark.req("SESS-09")
async def test_desk_that_is_a_link_is_not_used(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    desk.folders.desk.parent.mkdir(parents=True)
    desk.folders.desk.symlink_to(tmp_path / "other")
    with pytest.raises(SessionError, match="work"):
        await desk.session()
    assert list((tmp_path / "other").iterdir()) == []


async def test_folder_that_cannot_be_made_is_said_in_one_sentence(desk: Desk) -> None:
    desk.folders.state.parents[1].mkdir(parents=True)
    desk.folders.state.parent.write_text("")
    with pytest.raises(SessionDamagedError, match=r"The folders of session work cannot be used: .*session_state"):
        await desk.session()


@pytest.mark.req("CTX-04", "CORE-05")
async def test_second_turn_in_one_program_is_refused_at_once_and_the_next_is_not(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "one")
        for second in (session, await desk.session()):
            with pytest.raises(
                SessionBusyError, match=r"session work is in use by another turn of this program \(since"
            ):
                async with second.turn():
                    pass
        await say(history, "two")
        assert shown(history.messages) == ["user: one", "user: two"]
    async with session.turn():
        pass


HOLDER = """
import asyncio, sys
from pathlib import Path
from bubbles.sessions.session import Sessions
async def hold():
    session = await Sessions(Path(sys.argv[1]), program="bubbles gateway").open("work")
    async with session.turn():
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(hold())
"""


@pytest.mark.req("CTX-04")
async def test_other_program_that_has_the_session_is_named_and_one_that_was_killed_is_in_nobodys_way(
    desk: Desk,
) -> None:
    await desk.session()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(desk.folders.state.parents[1])],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        session = await desk.session()
        with pytest.raises(SessionBusyError, match=rf"in use by process {holder.pid} \(bubbles gateway, since"):
            async with session.turn():
                pass
        holder.kill()
        holder.wait()
        async with session.turn() as history:
            assert shown(history.messages) == []


async def test_cancelled_turn_leaves_no_lock_behind(desk: Desk) -> None:
    session = await desk.session()

    async def take() -> None:
        async with session.turn():
            await asyncio.Event().wait()

    for steps in range(12):
        task = asyncio.create_task(take())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with session.turn():
        pass


async def test_failure_inside_a_turn_leaves_the_session_free(desk: Desk) -> None:
    session = await desk.session()

    async def break_off() -> None:
        async with session.turn() as history:
            await say(history, "one")
            raise RuntimeError("broke")

    with pytest.raises(RuntimeError, match="broke"):
        await break_off()
    async with session.turn() as history:
        assert len(history.messages) == 2


async def test_lock_that_somebody_removed_is_made_again(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn():
        (desk.folders.state / "lock").unlink()
    async with session.turn():
        assert (desk.folders.state / "lock").read_text().startswith(f"{os.getpid()} ")


async def test_sessions_that_exist_are_listed(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "data")
    assert await sessions.keys() == ()
    for key in ("work", chat_key("telegram", "-5"), "home"):
        async with (await sessions.open(key)).turn():
            pass
    (tmp_path / "data/session_state/No Key").mkdir()
    (tmp_path / "data/session_state/empty").mkdir()
    assert await sessions.keys() == ("home", "telegram._2d5", "work")


@pytest.mark.parametrize("key", ["../x", "Work", "", ".", "a/b", "a.b.c", "x" * 101])
async def test_what_is_no_key_is_no_session(tmp_path: Path, key: str) -> None:
    with pytest.raises(SessionError, match="is no session's key"):
        await Sessions(tmp_path).open(key)
    assert list(tmp_path.iterdir()) == []


async def test_session_is_the_same_object_until_many_others_were_used(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    first = await sessions.open("s0")
    for number in range(REMEMBERED):
        assert await sessions.open("s0") is first
        await sessions.open(f"s{number}")
    for number in range(REMEMBERED):
        await sessions.open(f"other{number}")
    assert await sessions.open("s0") is not first


async def test_two_programs_may_make_a_session_at_once(tmp_path: Path) -> None:
    for number in range(20):
        desk = Desk(tmp_path / str(number))
        made = await asyncio.gather(*(desk.session() for _ in range(8)))
        assert all(session.take_warnings() == () for session in made)
        assert not list(desk.folders.desk.glob("*replaced*"))
        assert (desk.folders.desk / "session.jsonl").is_symlink()


@pytest.mark.req("SESS-09")
async def test_what_keeps_putting_something_in_the_place_of_a_link_keeps_nobody_out(desk: Desk) -> None:
    session = await desk.session()
    link, stop = desk.folders.desk / "session.jsonl", threading.Event()

    def plant() -> None:
        while not stop.is_set():
            with suppress(OSError):
                os.close(os.open(link, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
            with suppress(OSError):
                link.unlink()

    planters = [threading.Thread(target=plant) for _ in range(3)]
    for planter in planters:
        planter.start()
    try:
        for _ in range(50):
            await session.prepare()
    finally:
        stop.set()
        for planter in planters:
            await asyncio.to_thread(planter.join)
    assert all("link" in warning for warning in session.take_warnings())
    await session.prepare()
    assert link.readlink() == desk.file
