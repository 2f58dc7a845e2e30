"""A program that is killed while it writes a history, a disk that is full: what was acknowledged is there."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bubbles.sessions.contract import SessionDamagedError, TurnEnd
from tests.needs import give_up
from tests.unit.sessions.talk import Desk, act, check_valid, say, shown

ROOT = Path(__file__).parents[2]

WRITER = """
import asyncio, os, sys
from pathlib import Path
from bubbles.sessions.contract import TurnEnd
from bubbles.sessions.session import Sessions
from tests.unit.sessions.talk import reply, result, say

def done(what):
    os.write(1, what.encode() + b"\\n")

async def write(data_dir, run):
    session = await Sessions(Path(data_dir)).open("work")
    for number in range(10_000):
        turn = f"{run}.{number}"
        async with session.turn() as history:
            await say(history, f"say {turn}", turn)
            done(f"say {turn}")
            await reply(history, f"reply {turn}", f"c{turn}", turn=turn)
            done(f"reply {turn}")
            await history.begin_call(history.open_calls[0], turn=turn)
            done(f"begin {turn}")
            await result(history, f"c{turn}", f"result {turn} " + "x" * 30_000, turn=turn)
            done(f"result {turn}")
            if number % 20 == 19:
                await history.compact("S", kept_from=history.units[-4].seq, turn=turn)
            await history.end_turn(TurnEnd.DONE, turn=turn)
            done(f"end {turn}")

asyncio.run(write(*sys.argv[1:]))
"""


def killed_at_some_instant(desk: Desk, run: int, after_s: float) -> list[str]:
    """What a writer acknowledged until it was killed."""
    command = [sys.executable, "-c", WRITER, str(desk.folders.state.parents[1]), str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(after_s)  # the instant is the matter of the test
        writer.send_signal(signal.SIGKILL)
        return [first.decode().strip(), *writer.stdout.read().decode().splitlines()]


def written(desk: Desk) -> set[str]:
    """The same words for what stands in the file."""
    words = {"user": "say", "assistant": "reply", "call": "begin", "result": "result", "turn": "end"}
    lines = [line for line in desk.lines if line["kind"] in words and line.get("author") != "program"]
    return {f"{words[line['kind']]} {line['turn']}" for line in lines}


async def check_after_a_crash(desk: Desk, acknowledged: list[str]) -> None:
    whole = desk.file.read_bytes()
    session = await desk.session()
    async with session.turn() as history:
        check_valid(history.messages)
        found = shown(history.messages)
    assert set(acknowledged) <= written(desk)
    torn = sum(path.stat().st_size for path in desk.folders.state.glob("torn-*"))
    assert len(session.take_warnings()) == (torn > 0)
    kept = len(whole) - torn
    assert desk.file.read_bytes()[:kept] == whole[:kept]
    settled = desk.file.read_bytes()
    again = await desk.session()
    async with again.turn() as history:
        assert shown(history.messages) == found
    assert desk.file.read_bytes() == settled
    assert again.take_warnings() == ()
    for path in desk.folders.state.glob("torn-*"):
        path.unlink()


@pytest.mark.req("CTX-04", "CTX-03")
@pytest.mark.parametrize("count", [6, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(120)])])
async def test_what_was_acknowledged_before_a_kill_is_there_and_the_rest_is_settled_once(
    tmp_path: Path, count: int
) -> None:
    desk = Desk(tmp_path / "data")
    chance = random.Random(count)
    for run in range(count):
        acknowledged = killed_at_some_instant(desk, run, chance.uniform(0, 0.08))
        await check_after_a_crash(desk, acknowledged)


@pytest.mark.req("CTX-04")
async def test_history_cut_off_at_any_byte_of_its_last_lines_is_mended(tmp_path: Path) -> None:
    """As a power cut leaves it, at every place that differs."""
    desk = Desk(tmp_path / "data")
    async with (await desk.session()).turn() as history:
        await say(history, "go", "0")
        await act(history, "r", "a", turn="0")
    whole = desk.file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    cuts = {end + step for end in ends for step in (-2, -1, 0, 1, 30)} & set(range(ends[0], len(whole)))
    for cut in sorted(cuts):
        desk.file.write_bytes(whole[:cut])
        before = [
            f"{word} 0" for word, end in zip(["say", "reply", "begin", "result"], ends[1:], strict=False) if end <= cut
        ]
        await check_after_a_crash(desk, before)


@pytest.mark.req("CTX-04")
async def test_file_that_may_not_grow_stays_as_it_was_and_goes_on_when_it_may(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with (await desk.session()).turn() as history:
        await say(history, "one")
        before = desk.file.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
        try:
            with pytest.raises(SessionDamagedError, match=r"cannot be written .*nothing of it is lost"):
                await say(history, "x" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert desk.file.read_bytes() == before
        assert shown(history.messages) == ["user: one"]
        await say(history, "two")
        assert shown(history.messages) == ["user: one", "user: two"]


@pytest.mark.req("CTX-04")
@pytest.mark.needs("root", "linux")
async def test_full_disk_costs_the_line_alone(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=False).returncode:
        give_up("root", "this root may not mount a tmpfs")
    try:
        desk = Desk(place / "data")
        async with (await desk.session()).turn() as history:
            await say(history, "one")
            sizes: list[int] = []

            async def fill() -> None:
                for _ in range(100):
                    sizes.append(desk.file.stat().st_size)
                    await say(history, "x" * 9_000)

            with pytest.raises(SessionDamagedError, match="space"):
                await fill()
            assert desk.file.stat().st_size == sizes[-1]
            check_valid(history.messages)
            assert len(history.messages) > 5
            count = len(history.messages)
        (desk.folders.desk / "SOUL.md").unlink()
        async with (await desk.session()).turn() as history:
            assert len(history.messages) == count + 1
    finally:
        subprocess.run(["umount", str(place)], check=True)


ALTERNATING = """
import asyncio, sys
from pathlib import Path
from bubbles.sessions.contract import TurnEnd
from bubbles.sessions.session import Sessions
from tests.unit.sessions.talk import act, say, shown

async def take_turns(data_dir):
    session = await Sessions(Path(data_dir)).open("work")
    for number in range(5):
        await asyncio.to_thread(sys.stdin.readline)
        async with session.turn() as history:
            await say(history, "from the other", f"o{number}")
            await act(history, "r", "a", turn=f"o{number}")
            await history.end_turn(TurnEnd.DONE, turn=f"o{number}")
            seen = len(history.messages)
        print(seen, flush=True)

asyncio.run(take_turns(sys.argv[1]))
"""


@pytest.mark.req("CTX-04")
async def test_two_programs_that_alternate_on_one_session_see_each_others_lines(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    session = await desk.session()
    with subprocess.Popen(
        [sys.executable, "-c", ALTERNATING, str(desk.folders.state.parents[1])],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for number in range(5):
            other.stdin.write(b"\n")
            other.stdin.flush()
            assert int(other.stdout.readline()) == 4 * number + 3
            async with session.turn() as history:
                assert ": of a" in shown(history.messages)[-1]
                await say(history, "from here", f"h{number}")
                assert len(history.messages) == 4 * number + 4
                await history.end_turn(TurnEnd.DONE, turn=f"h{number}")
                check_valid(history.messages)
