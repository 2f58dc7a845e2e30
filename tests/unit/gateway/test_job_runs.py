"""How a run of a job ends, as the service that began it learns (CRON-02)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from bubbles.app.gateway import Outlet
from bubbles.app.jobs import JobRuns
from bubbles.bus import InboundMessage, Kind, OutboundMessage
from bubbles.cron.contract import Job, JobDraft, Schedule, ScheduleKind
from bubbles.gateway.metrics import Metrics

EVERY = Schedule(kind=ScheduleKind.EVERY, text="1h")
JOB = Job(
    id="abc",
    draft=JobDraft(name="x", message="x", schedule=EVERY),
    session_key="work",
    next_run=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.mark.req("CRON-02")
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize(
    ("kinds", "failed", "outcome"),
    [((Kind.REPLY, Kind.END), False, "done"), ((Kind.END,), False, "silent"), ((Kind.END,), True, "failed")],
)
async def test_a_run_ends_with_its_turn_whatever_becomes_of_what_that_said(
    kinds: tuple[Kind, ...], outcome: str, *, failed: bool, is_kept: bool
) -> None:
    async def put(_: OutboundMessage) -> None:
        if not is_kept:
            raise RuntimeError("a bug")

    runs = JobRuns(Metrics())
    outlet = Outlet(put, runs)

    async def deliver(message: InboundMessage) -> None:
        for kind in kinds:
            said = OutboundMessage(
                address=message.address, text="", kind=kind, failed=failed, settles=(message.ticket,)
            )
            await asyncio.gather(outlet.send(said), return_exceptions=True)

    async with asyncio.timeout(2):
        assert await runs.run(deliver, JOB, "Look.") == outcome
