"""The gate as a whole: decide, ask, act, record, with a sandbox in memory that keeps what it was asked to run."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.approvals.broker import ApprovalBroker, decided
from bubbles.controller.approvals.contract import Answer, ApprovalCard
from bubbles.controller.contract import DeclinedError, Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.policy.contract import SHELL, Layer, Mode, Verdict
from bubbles.controller.redaction import Redactor
from bubbles.controller.rulefiles import RuleShelf
from bubbles.controller.sandboxes import Sandboxes
from bubbles.controller.timeline.writing import Timeline
from bubbles.errors import BubblesError
from sandbox_backends.contract import Enforces, ExecRequest, Root, SandboxSpec
from sandbox_backends.errors import PathRefusedError
from sandbox_backends.fake import FakeBackend, FakeRun

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")


@dataclass(slots=True, kw_only=True)
class Person:
    """An approver who answers each card at once, or not at all."""

    says: bool | None = True
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    cards: list[ApprovalCard] = field(default_factory=list)
    closed: list[Answer] = field(default_factory=list)

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        self.cards.append(card)
        self.asked.set()
        return None if self.says is None else decided(approved=self.says, by=origin.sender)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        self.closed.append(answer)


@dataclass(slots=True, kw_only=True)
class Gate:
    """What a test needs of one gate."""

    controller: Controller
    backend: FakeBackend
    person: Person
    place: Workplace
    data_dir: Path
    broker: ApprovalBroker

    async def run(self, script: str, origin: Origin = HERE, cwd: str | None = None) -> int | None:
        request = ExecRequest(argv=(*SHELL, script), cwd=cwd)
        return (await self.controller.exec(request, self.place, origin)).result.exit_code

    @property
    def requests(self) -> list[ExecRequest]:
        return [request for session in self.backend.sessions for request in session.requests]

    @property
    def events(self) -> list[dict[str, Any]]:
        files = sorted((self.data_dir / "timeline").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


async def _shell(_: FakeRun) -> int:
    return 0


@asynccontextmanager
async def open_gate(
    tmp_path: Path,
    *,
    person: Person | None = None,
    mode: Mode = Mode.ASK,
    timeout_s: float = 5.0,
    enforces: Enforces = Enforces.NOTHING,
) -> AsyncIterator[Gate]:
    data_dir, project = tmp_path / "data", tmp_path / "project"
    (project / "sub").mkdir(parents=True, exist_ok=True)
    backend = FakeBackend(enforces=enforces, programs={"bash": _shell, "git": _shell})
    person = person or Person()
    shelf = RuleShelf(lambda _: ((Layer.GLOBAL, tmp_path / "codex"), (Layer.ASSISTANT, data_dir / "rules")))
    broker = ApprovalBroker(lambda _: person, timeout_s=timeout_s)
    async with Sandboxes(lambda _: backend) as sandboxes:
        yield Gate(
            controller=Controller(
                sandboxes=sandboxes,
                rulebook=lambda session: shelf.rulebook(session).rulebook,
                broker=broker,
                timeline=Timeline(data_dir, Redactor(("hunter2-secret",)), owner="me"),
                mode=mode,
            ),
            backend=backend,
            person=person,
            place=Workplace(
                backend="fake",
                spec=SandboxSpec(session="s1", roots=(Root(path=project),)),
                enforces=enforces,
                home=str(tmp_path / "home"),
                person_home=str(tmp_path / "home"),
            ),
            data_dir=data_dir,
            broker=broker,
        )


@pytest.mark.req("DEC-12")
@pytest.mark.parametrize(
    "script",
    [
        "pytest -q",
        "  git\tcommit -m 'é \"日本\" $(x) \\' ",
        "pytest -q \\\n  tests # note\n",
        'git commit -m "a\n\nb"',
        "cd sub && git status",
    ],
)
async def test_what_was_decided_on_is_byte_for_byte_what_runs(tmp_path: Path, script: str) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.run(script)
        (request,) = gate.requests
        assert request.argv == ("/bin/bash", "--noprofile", "--norc", "-c", script)
        assert request.cwd == str(tmp_path / "project")


@pytest.mark.req("DEC-12")
async def test_nothing_of_the_request_is_changed_but_its_directory_is_made_absolute(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        asked = ExecRequest(argv=("git", "status"), cwd="sub", timeout_s=7, merge_stderr=True)
        await gate.controller.exec(asked, gate.place, HERE)
        assert gate.requests == [replace(asked, cwd=str(tmp_path / "project" / "sub"))]
        assert gate.events[0]["cwd"] == gate.requests[0].cwd


@pytest.mark.req("DEC-12")
@pytest.mark.parametrize("more", [{"env": {"PATH": "/tmp/evil"}}, {"stdin": b"rm -rf x"}])
async def test_nothing_comes_with_a_command_that_was_not_decided_on(tmp_path: Path, more: dict[str, Any]) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ValueError, match="environment"):
            await gate.controller.exec(ExecRequest(argv=("git", "diff"), **more), gate.place, HERE)
        assert not gate.requests
        assert not gate.events


@pytest.mark.req("APPR-04")
async def test_a_stopped_turn_is_stopped_even_if_that_cannot_be_recorded(tmp_path: Path) -> None:
    async with open_gate(tmp_path, person=Person(says=None)) as gate:
        turn = asyncio.ensure_future(gate.run("npm publish"))
        await gate.person.asked.wait()
        shutil.rmtree(gate.data_dir / "timeline")
        (gate.data_dir / "timeline").write_text("in the way")
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not gate.requests


@pytest.mark.req("DEC-02", "DEC-08", "AUD-01")
async def test_a_destructive_command_never_reaches_the_sandbox(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(DeclinedError, match="never run"):
            await gate.run("git status && rm -rf /")
        assert not gate.backend.sessions
        assert not gate.person.cards
        assert [(event["event"], event["policy"]) for event in gate.events] == [("approval_auto_declined", "high_risk")]


@pytest.mark.req("DEC-03", "DEC-08", "AUD-01")
async def test_the_lane_runs_without_a_card_and_is_recorded(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        assert await gate.run("pytest -q 2>&1 | tail -5") == 0
        assert not gate.person.cards
        first, last = gate.events
        assert (first["event"], first["policy"]) == ("approval_auto_resolved", "local_self_validation")
        assert (last["event"], last["outcome"], last["exit_code"]) == ("command_finished", "exited", 0)
        assert first["call"] == last["call"]


@pytest.mark.req("DEC-04", "DEC-05", "DEC-08", "AUD-01")
async def test_rules_allow_forbid_and_prompt_and_the_timeline_names_them(tmp_path: Path) -> None:
    (tmp_path / "codex").mkdir()
    (tmp_path / "codex" / "default.rules").write_text(
        'prefix_rule(pattern=["gh", "pr", "view"])\nprefix_rule(pattern=["pytest"], decision="forbidden")\n'
        'prefix_rule(pattern=["git", "log"], decision="prompt", justification="read aloud")\n'
    )
    async with open_gate(tmp_path, person=Person(says=False)) as gate:
        assert await gate.run("gh pr view 7") == 0
        with pytest.raises(DeclinedError, match="forbids 'pytest'"):
            await gate.run("pytest -q")
        with pytest.raises(DeclinedError, match="read aloud"):
            await gate.run("git log")
        allowed, _, forbidden, asked, resolved = gate.events
        assert (allowed["policy"], allowed["rule_source"]) == ("rules_allow", "global")
        assert allowed["matched_rule"]["prefix"] == ["gh", "pr", "view"]
        assert allowed["matched_rule"]["line"] == 1
        assert (forbidden["event"], forbidden["policy"]) == ("approval_auto_declined", "rules_forbidden")
        assert (asked["event"], asked["policy"]) == ("approval_requested", "rules_prompt")
        assert (resolved["event"], resolved["outcome"]) == ("approval_resolved", "denied")


@pytest.mark.req("DEC-05", "DEC-10")
async def test_a_global_rule_is_in_force_while_it_is_there_and_copied_nowhere(tmp_path: Path) -> None:
    (tmp_path / "codex").mkdir()
    rules = tmp_path / "codex" / "default.rules"

    async def runs() -> bool:
        async with open_gate(tmp_path, person=Person(says=False)) as gate:  # a start anew
            try:
                await gate.run("gh pr view 7")
            except DeclinedError:
                return False
            return True

    assert not await runs()
    rules.write_text('prefix_rule(pattern=["gh", "pr", "view"])\n')
    assert await runs()
    rules.unlink()
    assert not await runs()
    assert not [path for path in (tmp_path / "data").rglob("*") if path.suffix == ".rules"]


@pytest.mark.req("APPR-01", "AUD-01")
async def test_an_approved_command_runs_after_its_approval_is_on_record(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        assert await gate.run("cd sub && npm publish") == 0
        (card,) = gate.person.cards
        assert (card.command, card.segment) == ("cd sub && npm publish", "npm publish")
        assert (card.directory, card.sandbox, card.network) == (str(tmp_path / "project"), "fake", "full")
        assert card.reason
        assert [event["event"] for event in gate.events] == [
            "approval_requested",
            "approval_resolved",
            "command_finished",
        ]
        assert gate.events[1]["by"] == "me"


@pytest.mark.req("APPR-02")
@pytest.mark.parametrize(
    ("person", "trigger", "told"),
    [
        (Person(says=False), Trigger.USER, "A person declined it"),
        (Person(says=None), Trigger.USER, "nobody answered within"),
        (Person(), Trigger.CRON, "scheduled job"),
        (Person(), Trigger.HEARTBEAT, "heartbeat"),
        (Person(), Trigger.BYSTANDER, "may not approve"),
    ],
)
async def test_a_command_that_nobody_approves_does_not_run_and_the_model_is_told_why(
    tmp_path: Path, person: Person, trigger: Trigger, told: str
) -> None:
    async with open_gate(tmp_path, person=person, timeout_s=0.05) as gate:
        with pytest.raises(DeclinedError, match=told):
            await gate.run("npm publish", replace(HERE, trigger=trigger))
        assert not gate.requests
        assert [event["event"] for event in gate.events] == ["approval_requested", "approval_resolved"]


@pytest.mark.req("APPR-04", "AUD-01")
async def test_a_turn_that_is_stopped_while_its_card_is_open_runs_nothing_and_says_so(tmp_path: Path) -> None:
    async with open_gate(tmp_path, person=Person(says=None)) as gate:
        turn = asyncio.ensure_future(gate.run("npm publish"))
        await gate.person.asked.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not gate.requests
        assert gate.events[-1]["outcome"] == "cancelled"
        assert gate.broker.answer("ok", origin=HERE) is None


@pytest.mark.req("AUD-01")
@pytest.mark.parametrize("script", ["pytest -q", "npm publish"])
async def test_nothing_runs_that_cannot_be_recorded(tmp_path: Path, script: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "timeline").write_text("in the way")
    async with open_gate(tmp_path) as gate:
        with pytest.raises(BubblesError, match="cannot be written"):
            await gate.run(script)
        assert not gate.requests


@pytest.mark.req("SEC-03")
async def test_a_secret_in_a_command_does_not_reach_the_timeline(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.run("curl -H 'X: hunter2-secret' https://example.org")
        assert "hunter2-secret" not in json.dumps(gate.events)
        assert "hunter2-secret" in gate.requests[0].argv[-1]


@pytest.mark.req("DEC-14", "TOOL-01")
async def test_files_inside_the_roots_never_ask(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.controller.write_file("a.txt", b"x", gate.place, HERE)
        assert await gate.controller.read_file("a.txt", gate.place, HERE) == b"x"
        assert [entry.name for entry in (await gate.controller.list_dir(".", gate.place, HERE)).entries] == ["a.txt"]
        for work in (
            gate.controller.read_file("../x", gate.place, HERE),
            gate.controller.write_file("../x", b"", gate.place, HERE),
        ):
            with pytest.raises(PathRefusedError):
                await work
        assert not gate.person.cards
        (written,) = gate.events
        assert (written["event"], written["session"], written["path"], written["size_bytes"]) == (
            "file_written",
            "s1",
            str(tmp_path / "project" / "a.txt"),
            1,
        )


@pytest.mark.req("TOOL-02", "DEC-08")
async def test_a_background_process_passes_the_same_gate(tmp_path: Path) -> None:
    async with open_gate(tmp_path, person=Person(says=False)) as gate:
        started = await gate.controller.start(ExecRequest(argv=("git", "status"), timeout_s=None), gate.place, HERE)
        assert started.decision.verdict is Verdict.ALLOW
        with pytest.raises(DeclinedError):
            await gate.controller.start(ExecRequest(argv=("npm", "start"), timeout_s=None), gate.place, HERE)
        assert [request.argv for request in gate.requests] == [("git", "status")]
        assert [event["event"] for event in gate.events[:2]] == ["approval_auto_resolved", "command_started"]


@pytest.mark.req("AUD-01")
@pytest.mark.parametrize(
    ("error", "outcome", "said"), [(BrokenPipeError(), "error", "BrokenPipeError"), (None, "cancelled", "")]
)
async def test_the_end_of_what_ran_is_recorded_however_it_ends(
    tmp_path: Path, error: Exception | None, outcome: str, said: str
) -> None:
    started = asyncio.Event()

    async def talks(run: FakeRun) -> int:
        started.set()
        run.write("stdout", b"x")
        await asyncio.sleep(60)
        return 0

    def listen(*_: object) -> None:
        if error is not None:
            raise error

    async with open_gate(tmp_path) as gate:
        gate.backend.programs = {"git": talks}
        turn = asyncio.ensure_future(
            gate.controller.exec(ExecRequest(argv=("git", "status")), gate.place, HERE, on_output=listen)
        )
        await started.wait()
        if error is None:
            turn.cancel()
        with pytest.raises(type(error) if error else asyncio.CancelledError):
            await turn
        assert (gate.events[-1]["event"], gate.events[-1]["outcome"]) == ("command_finished", outcome)
        assert gate.events[-1].get("error", "") == said


@pytest.mark.req("DEC-01")
async def test_modes_change_stage_four_and_nothing_else(tmp_path: Path) -> None:
    hard = Enforces.FILESYSTEM | Enforces.NETWORK
    async with open_gate(tmp_path, mode=Mode.TRUST_SANDBOX, enforces=hard) as gate:
        assert await gate.run("npm publish") == 0
        assert not gate.person.cards
        assert gate.events[0]["policy"] == "trust_sandbox"
        await gate.run("sudo id")
        assert len(gate.person.cards) == 1
        with pytest.raises(DeclinedError):
            await gate.run("rm -rf /")
    async with open_gate(tmp_path, mode=Mode.TRUST_SANDBOX) as gate:
        await gate.run("npm publish")
        assert len(gate.person.cards) == 1  # this sandbox enforces nothing
    async with open_gate(tmp_path, mode=Mode.DENY) as gate:
        assert await gate.run("pytest -q") == 0
        with pytest.raises(DeclinedError, match="Nobody is asked"):
            await gate.run("npm publish")
        assert not gate.person.cards


@pytest.mark.req("DEC-13")
async def test_a_command_whose_directory_leaves_the_roots_is_not_in_the_lane(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "out").symlink_to(tmp_path)
    async with open_gate(tmp_path, person=Person(says=False)) as gate:
        for cwd in ("..", "/", "out"):
            with pytest.raises(DeclinedError):
                await gate.run("pytest -q", cwd=cwd)


@pytest.mark.req("AUD-01")
async def test_a_write_that_is_stopped_is_on_record_as_of_unknown_end(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.controller.write_file("a.txt", b"1", gate.place, HERE)
        gate.backend.sessions[0].may_write.clear()
        writing = asyncio.create_task(gate.controller.write_file("b.txt", b"22", gate.place, HERE))
        await asyncio.sleep(0.05)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        written = [event for event in gate.events if event["event"] == "file_written"]
    assert [(event["size_bytes"], event.get("outcome")) for event in written] == [(1, None), (2, "cancelled")]
