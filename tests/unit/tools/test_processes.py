"""Processes in the background: whose they are, how many, what is seen of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bubbles.tools.contract import ToolError
from bubbles.tools.processes import KEPT_S, MAX_RUNNING, Process, ProcessArgs, Processes
from sandbox_backends.contract import ExecRequest
from sandbox_backends.fake import FakeBackend, FakeRun
from tests.tool_desk import HERE, ToolDesk, open_fake_desk

pytestmark = pytest.mark.req("TOOL-02")

OTHER = replace(HERE, session_key="s2")


async def shell(run: FakeRun) -> int:
    """Answers each line; ``quit`` ends it."""
    while (line := await run.stdin.get()) is not None:
        run.write("stdout", b"got " + line)
        if line == b"quit\n":
            return 4
    return 0


@asynccontextmanager
async def a_desk(tmp_path: Path) -> AsyncIterator[tuple[ToolDesk, FakeBackend]]:
    backend = FakeBackend(programs={"bash": shell})
    async with open_fake_desk(tmp_path, backend, result_tokens=200) as desk:
        yield desk, backend


def timeless(said: str) -> str:
    return re.sub(r", for [\d.]+ s by now", "", said)


async def test_a_process_is_started_written_to_looked_at_and_ends(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        assert await desk.ok("exec", script="server", background=True) == "Started in the background as process p1."
        said = await desk.ok("process", id="p1", action="write", input="hello", newline=True, wait_s=0.01)
        assert timeless(said) == "got hello\n[process p1 is running; what comes next: since=10]"
        assert desk.person.cards[-1].command == "hello\n"
        assert (
            timeless(await desk.ok("process", id="p1", since=10))
            == "[process p1 is running; what comes next: since=10]"
        )
        said = await desk.ok("process", id="p1", action="write", input="quit\n", wait_s=60)
        assert said == "got quit\n[process p1 has ended: exit status 4; that is all of its output]"
        assert await desk.ok("process", id="p1") == (
            "got hello\ngot quit\n[process p1 has ended: exit status 4; that is all of its output]"
        )
        assert "has ended, so nothing was written" in await desk.refused("process", id="p1", action="write", input="x")


async def test_what_is_typed_is_declined_like_a_command(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        await desk.ok("exec", script="server", background=True)
        desk.person.says = False
        assert "A person declined it" in await desk.refused("process", id="p1", action="write", input="x")
        assert timeless(await desk.ok("process", id="p1")) == "[process p1 is running; what comes next: since=0]"


@pytest.mark.req("DEC-01", "APPR-01")
async def test_a_line_typed_in_pieces_is_decided_on_and_shown_as_the_line_it_becomes(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):

        async def typed(text: str, *, newline: bool = False) -> str:
            done = await desk.call("process", id="p1", action="write", input=text, newline=newline, wait_s=0)
            result = done.result
            return result.text if result.is_error else "written"

        await desk.ok("exec", script="server", background=True)
        assert await typed("shut") == "written"
        assert "declined without asking" in await typed("down -h now", newline=True)
        assert await typed(" up") == "written"
        desk.person.says = False
        assert "A person declined it" in await typed("per", newline=True)
        desk.person.says = True
        assert await typed("", newline=True) == "written"
        assert await typed("next") == "written"
        asked = [card.command for card in desk.person.cards[1:]]
        assert asked == ["shut", "shut up", "shut upper\n", "shut up\n", "next"]
        for _ in range(2):
            said = await typed("x" * 9_000)
        assert "a line of over 10,000 characters" in said


async def test_input_can_be_closed_without_a_question(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        await desk.ok("exec", script="server", background=True)
        cards = len(desk.person.cards)
        assert "has ended: exit status 0" in await desk.ok("process", id="p1", action="write", eof=True, wait_s=60)
        assert len(desk.person.cards) == cards
        await desk.ok("exec", script="server", background=True)
        assert "nothing to write" in await desk.refused("process", id="p2", action="write")
        assert "go with action write" in await desk.refused("process", id="p2", input="x")


async def test_a_process_is_ended(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        await desk.ok("exec", script="server", background=True)
        assert "has ended: ended by signal 15" in await desk.ok("process", id="p1", action="end")


async def test_another_sessions_process_and_one_that_never_was_are_told_alike(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        await desk.ok("exec", script="server", background=True)
        said = {
            (await desk.call("process", origin=OTHER, id=ident, action=action)).result.text.replace(ident, "ID")
            for ident in ("p1", "p7", "x")
            for action in ("poll", "write", "end")
        }
        assert said == {"No process 'ID' is known here: there are none. Those that ended long ago are forgotten."}
        assert "is running" in await desk.ok("process", id="p1")


async def test_no_more_run_than_may(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, backend):
        for _ in range(MAX_RUNNING):
            await desk.ok("exec", script="server", background=True)
        asked = len(desk.person.cards)
        assert "end one of them first" in await desk.refused("exec", script="server", background=True)
        assert len(desk.person.cards) == asked
        assert len(backend.sessions[0].requests) == MAX_RUNNING
        await desk.ok("process", id="p3", action="end")
        await desk.ok("exec", script="server", background=True)
        assert "p3" not in await desk.refused("process", id="nothing")  # it made room


async def test_what_has_ended_is_forgotten_after_a_while(tmp_path: Path) -> None:
    clock = [0.0]
    async with a_desk(tmp_path) as (desk, _):
        request = ExecRequest(argv=("/bin/bash", "--noprofile", "--norc", "-c", "server"), timeout_s=None)
        processes = Processes(now=lambda: clock[0])
        started = await desk.controller.start(request, desk.place, HERE)
        processes.add(started.process, "server", None, HERE)
        clock[0] += 10 * KEPT_S
        assert processes.find("p1", HERE).id == "p1"  # it runs
        await started.process.signal(15)
        await started.process.wait()
        assert processes.find("p1", HERE).process is started.process
        clock[0] += KEPT_S + 1
        with pytest.raises(ToolError):
            processes.find("p1", HERE)


async def test_a_process_is_gone_with_its_sandbox_and_said_to_be(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, backend):
        await desk.ok("exec", script="server", background=True)
        backend.sessions[0].lose("it was unplugged")
        assert "p1 is gone: the sandbox that it ran in was closed" in await desk.ok("process", id="p1")
        assert "gone" in await desk.ok("process", id="p1", action="end")
        said = await desk.ok("exec", script="x", background=True)
        assert said.startswith("[the sandbox was opened anew: it was unplugged. Earlier processes")


async def test_output_comes_page_by_page_without_a_character_broken(tmp_path: Path) -> None:
    text = "".join(f"{number} é漢\n" for number in range(400))

    async def talks(run: FakeRun) -> int:
        run.write("stdout", text.encode())
        return 0

    async with a_desk(tmp_path) as (desk, backend):
        backend.programs = {"bash": talks}
        await desk.ok("exec", script="server", background=True)
        await desk.ok("process", id="p1", wait_s=60)
        seen, since = "", 0
        while True:
            part, _, remark = (await desk.ok("process", id="p1", since=since)).rpartition("[")
            seen += part if part.endswith("\n") and "more" not in remark else part.removesuffix("\n")
            if "since=" not in remark:
                break
            since = int(remark.rpartition("since=")[2].rstrip("]"))
        assert seen.replace("\n", "") == text.replace("\n", "")
        assert "\\x" not in seen
        newest = await desk.ok("process", id="p1")
        assert "399 é漢\n[process p1 has ended: exit status 0; this is the end of " in newest
        assert f"{len(text.encode()):,} bytes of output; that is all" in newest


async def test_waiting_is_cancelled_with_the_turn_and_the_process_goes_on(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as (desk, _):
        await desk.ok("exec", script="server", background=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await desk.call("process", id="p1", wait_s=600)
        assert "is running" in await desk.ok("process", id="p1")


async def test_a_process_that_does_not_mind_is_killed(tmp_path: Path) -> None:
    signals: list[int] = []

    class Stubborn:
        id = "x"

        async def signal(self, number: int) -> None:
            signals.append(number)

        async def wait(self, timeout_s: float | None = None) -> None:
            return None

    async with a_desk(tmp_path) as (desk, _):
        tool = Process(desk.controller, lambda _: desk.place, Processes(), 200)
        await tool._end(Stubborn(), 0)  # type: ignore[arg-type]
    assert signals == [15, 9]
    assert ProcessArgs(id="x").action == "poll"
