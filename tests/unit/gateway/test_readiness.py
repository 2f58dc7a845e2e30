"""What keeps the gateway from being ready (OPS-02)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from bubbles.app.readiness import STALE_S, Watched, readiness
from bubbles.cron.contract import Job
from bubbles.cron.service import Clocks, CronService
from bubbles.cron.store import JobStore
from bubbles.gateway.ledger import Ledger

pytestmark = pytest.mark.req("OPS-02")


async def never(_job: Job, _text: str) -> str:
    raise AssertionError("there are no jobs")


async def test_it_says_in_turn_what_is_missing(tmp_path: Path) -> None:
    now_s, taking, looked = 0.0, asyncio.Event(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        looked.set()
        await asyncio.Event().wait()

    cron = CronService(JobStore(tmp_path), never, Clocks(monotonic=lambda: now_s, sleep=sleep))
    async with Ledger(tmp_path / "ledger.db") as ledger:

        def why(problem: str = "") -> str:
            nobody = cast(Any, None)  # there is no channel, so nobody is asked whom it turned away
            watched = Watched(
                supervisors={}, broken={}, intake=nobody, cron=cron, ledger=ledger, taking=taking, problem=problem
            )
            found = readiness(watched)
            assert found.ready is (found.why == "")
            return found.why

        assert why() == "it takes no messages: it is being started or stopped; jobs: they were not looked at yet"
        taking.set()
        work = asyncio.create_task(cron.run())
        await looked.wait()
        assert why() == ""
        assert why("No model is set.") == "No model is set."
        now_s = STALE_S + 5
        assert why() == "jobs: nobody has looked at them for 65 s"
        work.cancel()
        await asyncio.wait({work})
