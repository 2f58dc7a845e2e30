"""What runs in the background, through the gate: its input, its end, and the sandbox under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.background import BackgroundWatch
from bubbles.controller.contract import DeclinedError, GateError
from bubbles.controller.controller import Controller, Started
from bubbles.controller.policy.contract import SHELL, Layer
from bubbles.controller.redaction import Redactor
from bubbles.controller.rulefiles import RuleShelf
from bubbles.controller.sandboxes import Sandboxes
from bubbles.controller.timeline.writing import Timeline
from bubbles.errors import BubblesError
from sandbox_backends.contract import ExecRequest, Outcome
from sandbox_backends.fake import FakeRun
from tests.flow.test_gate import HERE, Gate, Person, open_gate


async def reads_lines(run: FakeRun) -> int:
    """A shell that does nothing but say what it was given, until its input is closed."""
    while (line := await run.stdin.get()) is not None:
        run.write("stdout", b"got " + line)
    return 3


@asynccontextmanager
async def watched_gate(tmp_path: Path, person: Person | None = None) -> AsyncIterator[Gate]:
    """As ``open_gate``, with the ends of background processes on record."""
    async with open_gate(tmp_path, person=person) as gate:
        gate.backend.programs = {"bash": reads_lines}
        timeline = Timeline(gate.data_dir, Redactor(()), owner="me")
        shelf = RuleShelf(lambda _: ((Layer.ASSISTANT, gate.data_dir / "rules"),))
        async with BackgroundWatch(timeline) as watch, Sandboxes(lambda _: gate.backend) as sandboxes:
            gate.controller = Controller(
                sandboxes=sandboxes,
                rulebook=lambda session: shelf.rulebook(session).rulebook,
                broker=ApprovalBroker(lambda _: gate.person, timeout_s=5),
                timeline=timeline,
                watch=watch,
            )
            yield gate


async def start(gate: Gate) -> Started:
    request = ExecRequest(argv=(*SHELL, "python3 -i"), timeout_s=None)
    return await gate.controller.start(request, gate.place, HERE)


def happened(gate: Gate) -> list[tuple[str, Any]]:
    return [(event["event"], event.get("outcome")) for event in gate.events]


@pytest.mark.req("TOOL-02", "APPR-01", "AUD-01")
async def test_input_is_asked_about_like_a_command_and_then_written(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        started = await start(gate)
        await gate.controller.write_input(started.process, b"print(1)\n", "python3 -i", gate.place, HERE, cwd="sub")
        await gate.controller.write_input(started.process, b"", "python3 -i", gate.place, HERE, eof=True)
        result = await gate.controller.wait(started.process, gate.place, HERE, 5)
        assert result is not None
        assert (result.outcome, result.exit_code) == (Outcome.EXITED, 3)
        assert started.process.poll().data == b"got print(1)\n"
        card = gate.person.cards[-1]
        assert len(gate.person.cards) == 2  # closing the input asks nobody
        assert card.command == "print(1)\n"
        assert "python3 -i" in card.reason
        assert card.directory == str(tmp_path / "project" / "sub")
    assert happened(gate) == [
        ("approval_requested", None),
        ("approval_resolved", "approved"),
        ("command_started", None),
        ("approval_requested", None),
        ("approval_resolved", "approved"),
        ("command_finished", "written"),
        ("command_finished", "exited"),
    ]
    assert gate.events[-1]["call"] == gate.events[2]["call"]


@pytest.mark.req("TOOL-02", "DEC-02", "APPR-02")
async def test_input_that_is_declined_is_never_written(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        process = (await start(gate)).process
        gate.person.says = False
        for data in (b"print(1)\n", b"rm -rf /\n", b"\xff\x00"):
            with pytest.raises(DeclinedError):
                await gate.controller.write_input(process, data, "python3 -i", gate.place, HERE)
        assert process.poll().data == b""


@pytest.mark.req("AUD-01")
async def test_nothing_is_typed_that_cannot_be_recorded(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        process = (await start(gate)).process
        timeline = gate.data_dir / "timeline"
        timeline.rename(gate.data_dir / "away")
        timeline.write_text("in the way")
        with pytest.raises(BubblesError, match="cannot be written"):
            await gate.controller.write_input(process, b"rm -rf /\n", "python3 -i", gate.place, HERE)
        assert process.poll().data == b""


async def test_a_program_that_does_not_read_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        stuck = _Stuck()
        asking = asyncio.ensure_future(gate.controller.write_input(stuck, b"x", "cat", gate.place, HERE))
        await asyncio.wait({asking, asyncio.ensure_future(stuck.asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
        stuck.clock_runs_out()
        with pytest.raises(GateError, match="has not read its input"):
            await asking
        assert gate.events[-1]["outcome"] == "error"


class _Stuck:
    """A process whose pipe is full; the time that it has is over when a test says so."""

    id = "stuck"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._over = asyncio.Event()

    def clock_runs_out(self) -> None:
        self._over.set()

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        self.asked.set()
        await self._over.wait()
        raise TimeoutError

    def poll(self, since: int = 0) -> Any:
        raise NotImplementedError

    async def signal(self, number: int) -> None:
        raise NotImplementedError

    async def wait(self, timeout_s: float | None = None) -> None:
        raise NotImplementedError


@pytest.mark.req("AUD-01")
async def test_the_end_of_what_runs_on_is_recorded_when_the_program_ends(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        await start(gate)
        await start(gate)
    assert happened(gate)[-2:] == [("command_finished", "lost"), ("command_finished", "lost")]


@pytest.mark.req("AUD-01")
async def test_an_error_leaves_the_gate_as_it_is_with_every_end_recorded(tmp_path: Path) -> None:
    gates = []

    async def breaks() -> None:
        async with watched_gate(tmp_path) as gate:
            gates.append(gate)
            await start(gate)
            raise KeyError

    with pytest.raises(KeyError):
        await breaks()
    assert happened(gates[0])[-1] == ("command_finished", "lost")


async def test_what_is_started_but_cannot_be_told_of_is_ended(tmp_path: Path) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def goes_on(run: FakeRun) -> int:
        began.set()
        try:
            return await reads_lines(run)
        finally:
            ended.set()

    async with watched_gate(tmp_path) as gate:
        gate.backend.programs = {"bash": goes_on}
        starting = asyncio.ensure_future(start(gate))
        await began.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        async with asyncio.timeout(5):
            await ended.wait()


@pytest.mark.req("SBX-12")
async def test_a_reset_that_a_file_operation_found_is_told_with_the_next_command(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        await gate.controller.write_file("a.txt", b"x", gate.place, HERE)
        gate.backend.sessions[0].lose("it was unplugged")
        await gate.controller.write_file("a.txt", b"x", gate.place, HERE)
        assert "unplugged" in str((await start(gate)).reset)
        assert (await start(gate)).reset is None


@pytest.mark.req("SBX-12")
async def test_a_sandbox_opens_ahead_and_is_closed_by_its_session(tmp_path: Path) -> None:
    async with watched_gate(tmp_path) as gate:
        gate.controller.open_ahead(gate.place)
        await gate.controller.write_file("a.txt", b"x", gate.place, HERE)
        process = (await start(gate)).process
        await gate.controller.close("s1")
        result = await process.wait(5)
        assert result is not None
        assert result.outcome is Outcome.LOST
        assert len(gate.backend.sessions) == 1
        assert (await start(gate)).reset is None
