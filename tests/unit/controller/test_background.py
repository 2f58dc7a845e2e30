"""A background process keeps its sandbox open while nothing else is done there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bubbles.bus import Address, Origin
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.background import BackgroundWatch
from bubbles.controller.contract import Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.policy.contract import SHELL, Layer
from bubbles.controller.redaction import Redactor
from bubbles.controller.rulefiles import load_rulebook
from bubbles.controller.sandboxes import Sandboxes
from bubbles.controller.timeline.writing import Timeline
from sandbox_backends.contract import Enforces, ExecRequest, Root, SandboxSpec
from sandbox_backends.fake import FakeBackend, FakeRun

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")


async def _until_input_ends(run: FakeRun) -> int:
    await run.read_all()
    return 0


async def test_a_sandbox_is_not_idle_while_a_background_process_runs_in_it(tmp_path: Path) -> None:
    backend = FakeBackend(programs={"bash": _until_input_ends})
    timeline = Timeline(tmp_path, Redactor(), owner="me")
    place = Workplace(
        backend="fake",
        spec=SandboxSpec(session="s1", roots=(Root(path=tmp_path),)),
        enforces=Enforces.NOTHING,
        home=str(tmp_path),
        person_home=str(tmp_path),
    )
    rules = tmp_path / "rules"
    await asyncio.to_thread(rules.mkdir)
    book = (await asyncio.to_thread(load_rulebook, [(Layer.GLOBAL, rules)])).rulebook
    async with BackgroundWatch(timeline) as watch, Sandboxes(lambda _: backend, idle_s=0.02) as sandboxes:
        controller = Controller(
            sandboxes=sandboxes,
            rulebook=lambda _: book,
            broker=ApprovalBroker(lambda _: None),
            timeline=timeline,
            watch=watch,
        )
        started = await controller.start(ExecRequest(argv=(*SHELL, "pytest -q"), timeout_s=None), place, HERE)
        await asyncio.sleep(0.2)
        assert await started.process.wait(0) is None
        assert [session.lost for session in backend.sessions] == [None]
        await started.process.write(b"", eof=True)
        ended = await started.process.wait(10)
        assert ended is not None
        assert ended.exit_code == 0
        async with asyncio.timeout(10):
            while backend.sessions[0].lost is None:  # noqa: ASYNC110 - a sandbox tells nobody that it was closed
                await asyncio.sleep(0.01)
