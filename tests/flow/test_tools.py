"""The tools at work in every real place, behind the real gate: one open session a place for all tests here."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from bubbles.sessions.tokens import estimate
from tests.places import REAL
from tests.tool_desk import HERE, ToolDesk, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module", params=REAL)
def place(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("sandbox_image")
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(place: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolDesk]:
    """One task enters and leaves it: a fixture's two halves run in different ones."""
    ready: asyncio.Future[ToolDesk] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def keep() -> None:
        async with open_desk(tmp_path_factory.mktemp("tools") / place, place) as desk:
            desk.controller.open_ahead(desk.place)
            ready.set_result(desk)
            await leave.wait()

    keeper = asyncio.create_task(keep())
    await asyncio.wait((ready, keeper), return_when=asyncio.FIRST_COMPLETED)
    if keeper.done():
        keeper.result()
    yield ready.result()
    leave.set()
    await keeper


@pytest.fixture
def desk(opened: ToolDesk) -> Iterator[ToolDesk]:
    opened.person.says = True
    opened.person.cards.clear()
    yield opened
    subprocess.run(["find", str(opened.desk), "-mindepth", "1", "-delete"], check=True)


@pytest.mark.req("TOOL-01", "TOOL-02", "SBX-01", "DEC-14")
async def test_files_are_written_changed_read_and_seen_by_commands(desk: ToolDesk) -> None:
    assert await desk.ok("write_file", path="src/sum.py", content="print(1 + 1)\r\n") == "Created src/sum.py, 14 bytes."
    (desk.desk / "src" / "sum.py").chmod(0o755)
    await desk.ok("edit_file", path="src/sum.py", old="1 + 1)\n", new="2 + 2)\nprint('é')\n")
    assert (desk.desk / "src" / "sum.py").read_bytes() == "print(2 + 2)\r\nprint('é')\r\n".encode()
    assert (desk.desk / "src" / "sum.py").stat().st_mode & 0o777 == 0o755
    assert "print(2 + 2)\nprint('é')\n[lines end with CR LF" in await desk.ok(
        "read_file", path=f"{desk.desk}/src/sum.py"
    )
    assert await desk.ok("list_dir", path="src") == "sum.py  27"
    assert not desk.person.cards
    assert await desk.ok("exec", script="cd src && python3 sum.py") == "4\né\n"
    assert await desk.ok("exec", script="pwd; echo out; echo err >&2; exit 3", cwd="src") == (
        f"{desk.desk}/src\nout\nerr\n[exit status 3]"
    )
    assert desk.events[-1]["exit_code"] == 3


@pytest.mark.req("TOOL-01")
async def test_a_picture_and_a_link_and_a_fifo(desk: ToolDesk) -> None:
    (desk.desk / "p.png").write_bytes(PIXEL)
    (desk.desk / "l").symlink_to("p.png")
    os.mkfifo(desk.desk / "fifo")
    result = (await desk.call("read_file", path="l")).result
    assert [(image.media_type, image.data) for image in result.images] == [("image/png", PIXEL)]
    assert await desk.ok("list_dir") == "fifo  (neither a file nor a directory)\nl  (link)\np.png  70"
    assert "regular file" in await desk.refused("read_file", path="fifo")


@pytest.mark.req("CORE-07", "TOOL-02")
async def test_long_output_is_cut_and_all_of_it_can_be_read(desk: ToolDesk) -> None:  # B009
    finished = await desk.call("exec", script="seq 1 20000", call_id="toolu/../1")
    text = finished.result.text
    assert estimate(text) <= 8_000
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("19999\n20000\n")
    path = finished.full_text
    assert path is not None
    assert Path(path).parent == desk.folders.data / "tool-output"
    assert f"all of it is in {path}" in text
    assert Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 20_001))
    page = await desk.ok("read_file", path=path, first_line=10_000, lines=2)
    assert page.startswith("10000\n10001\n[lines 10000-10001 of 20,000")
    assert (await desk.ok("exec", script=f"wc -l <{path}")).strip() == "20000"


LATE = {
    "(while true; do echo x; sleep 1; done) & wait": "x\n",  # B003
    "for i in 1 2 3; do (while :; do :; done) & done; setsid sleep 98 & sleep 100": "",  # B005
    "sleep 30; touch late": "",  # B014, B007
    **{f"sleep 10{number}": "" for number in range(6)},  # B001
}
"""Scripts that are over their time, and what they printed."""
OVER = "[over the time limit of 0.5 s: everything it started was ended]"


@pytest.mark.req("TOOL-02", "SBX-06")
async def test_a_time_limit_ends_all_that_was_started_and_leaves_no_dead_behind(desk: ToolDesk) -> None:
    mark = f"BUBBLES_MARK={os.urandom(4).hex()}"

    async def late(script: str, said: str) -> None:
        text = await desk.refused("exec", script=f"{mark}; export BUBBLES_MARK; {script}", timeout_s=0.5)
        printed, ending = text[: -len(OVER)], text[-len(OVER) :]
        assert (ending, set(printed.split())) == (OVER, set(said.split()))  # on a busy machine it may say it again

    async with asyncio.timeout(15):
        await asyncio.gather(*(late(script, said) for script, said in LATE.items()))
    assert not await asyncio.to_thread(_left, mark)
    assert await desk.ok("exec", script="echo on") == "on\n"
    assert not (desk.desk / "late").exists()


def _left(mark: str) -> list[psutil.Process]:
    """What is there of commands with this mark, or dead and not waited for, and stays: killed ones take a moment."""
    marked = [process for process in psutil.process_iter() if mark in _traces(process)]
    below = psutil.Process().children(recursive=True)
    return list(psutil.wait_procs([*marked, *filter(_is_dead, below)], timeout=10)[1])


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.ppid() != os.getpid()
    except psutil.Error:
        return False


def _traces(process: psutil.Process) -> str:
    """What it was started with: a shell that forks without a new program keeps the words of the first, others have the
    environment.
    """
    try:
        return " ".join((*process.cmdline(), *(f"{name}={value}" for name, value in process.environ().items())))
    except psutil.Error:
        return ""


@pytest.mark.req("TOOL-02")
async def test_a_child_that_holds_the_output_delays_nothing(desk: ToolDesk) -> None:  # B004
    async with asyncio.timeout(15):
        text = await desk.ok("exec", script="exec > >(tee -a out.log) 2>&1; echo done")
    assert text.startswith("done\n") or "still running" in text  # tee may be too slow on a busy machine


@pytest.mark.req("SEC-03", "TOOL-02")
async def test_no_profile_and_no_key_of_ours_reaches_a_command(desk: ToolDesk) -> None:  # B120, B122
    for name in (".bash_profile", ".bashrc", ".profile"):
        Path(desk.place.person_home, name).write_text("export LEAK=canary\n")
        (desk.desk / name).write_text("export LEAK=canary\n")
    assert await desk.ok("exec", script="echo $LEAK") == "\n"
    assert "sk-canary" not in await desk.ok("exec", script="env")


@pytest.mark.req("TOOL-02")
async def test_a_process_in_the_background_is_polled_written_to_and_ended(desk: ToolDesk) -> None:
    said = await desk.ok("exec", script="while read line; do echo got $line; done; echo bye", background=True)
    ident = said.removesuffix(".").rpartition(" ")[2]
    said = await desk.ok("process", id=ident, action="write", input="hello", newline=True, wait_s=0)
    while "got hello" not in said:
        said = await desk.ok("process", id=ident, wait_s=0.02)
    assert desk.person.cards[-1].command == "hello\n"
    assert "while read line" in desk.person.cards[-1].reason
    assert "is running" in said
    said = await desk.ok("process", id=ident, action="write", eof=True, wait_s=10)
    assert "bye\n[process" in said
    assert "has ended: exit status 0" in said

    said = await desk.ok("exec", script="trap '' TERM; sleep 100 & wait; sleep 100", background=True)
    ident = said.removesuffix(".").rpartition(" ")[2]
    assert "has ended: ended by signal" in await desk.ok("process", id=ident, action="end", wait_s=0.05)


@pytest.mark.req("DEC-02", "TOOL-02")
async def test_what_is_declined_is_not_run_and_the_model_is_told_why(desk: ToolDesk) -> None:
    assert "never run" in await desk.refused("exec", script="rm -rf /")
    desk.person.says = False
    assert "A person declined it" in await desk.refused("exec", script="npm publish; touch ran")
    assert "A person declined it" in await desk.refused("exec", script="npm publish; touch ran", background=True)
    assert not (desk.desk / "ran").exists()


@pytest.mark.req("DEC-13", "SESS-07")
async def test_the_assistants_own_files_are_out_of_reach(desk: ToolDesk) -> None:  # B131, B125
    for path in (
        desk.data_dir / "config.json",
        desk.data_dir / "rules" / "default.rules",
        desk.folders.state / "session.jsonl",
        desk.folders.state / "todo.json",
        desk.data_dir / "sessions" / "s2" / "SOUL.md",
        Path(desk.place.person_home, ".ssh", "authorized_keys"),
    ):
        for name in (str(path), os.path.relpath(path, desk.desk)):
            assert "outside the session's directories" in await desk.refused("write_file", path=name, content="x")
            assert "outside the session's directories" in await desk.refused("read_file", path=name)
            assert not path.exists()
    assert "outside" in await desk.refused("read_file", path="~/.bubbles/config.json")
    assert not (desk.desk / "~").exists()
    await desk.ok("todo", items=[{"title": "kept apart"}])
    assert json.loads((desk.folders.state / "todo.json").read_text())["items"][0]["title"] == "kept apart"
    (desk.folders.state / "todo.json").unlink()


async def test_nobody_is_asked_about_a_directory_that_would_be_refused(desk: ToolDesk) -> None:
    (desk.desk / "out").symlink_to("/")
    for cwd in ("/", "..", "~"):
        assert "outside" in await desk.refused("exec", script="npm publish", cwd=cwd)
        assert "outside" in await desk.refused("exec", script="npm publish", cwd=cwd, background=True)
    assert not desk.person.cards
    assert "outside" in await desk.refused("exec", script="npm publish", cwd="out")
    assert "no such" in (await desk.refused("exec", script="pytest", cwd="nowhere")).lower()


async def test_a_place_that_was_closed_is_opened_anew_and_its_processes_are_gone(desk: ToolDesk) -> None:
    said = await desk.ok("exec", script="sleep 100", background=True)
    ident = said.removesuffix(".").rpartition(" ")[2]
    await desk.controller.close(HERE.session_key)
    assert f"process {ident} is gone" in await desk.ok("process", id=ident)
    assert await desk.ok("exec", script="echo on") == "on\n"
