"""Run as processes of their own by ``test_cron_store.py``.

``write <data> <name> <times>``        changes the jobs again and again, and prints the ids that it left there
``serve <data> <log> <fast> <since>``  runs the jobs by a clock that goes ``fast`` times as fast, until it is killed
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bubbles.cron.contract import Job, JobChange, JobDraft, Schedule, ScheduleKind
from bubbles.cron.service import Clocks, CronService
from bubbles.cron.store import JobStore

START = datetime(2026, 5, 1, 8, tzinfo=UTC)
HOURLY = Schedule(kind=ScheduleKind.EVERY, text="1h")
DEADLY = "kill"
"""Message of a job whose run ends the program."""


async def write(data: Path, name: str, times: int) -> None:
    store = JobStore(data)
    kept: list[str] = []
    for number in range(times):
        job, gone = await asyncio.gather(
            *(store.add(JobDraft(name=f"{name}{number}", message=text, schedule=HOURLY), "cli") for text in ("x", "y"))
        )
        await store.change(job.id, JobChange(message=f"{name} was here"))
        await store.remove(gone.id)
        listing = await store.listing()
        assert listing.problems == ()
        assert {*kept, job.id} <= {found.id for found in listing.jobs}
        assert gone.id not in {found.id for found in listing.jobs}
        kept.append(job.id)
    print(*kept)


async def serve(data: Path, log: Path, fast: float, since: float) -> None:
    def wall() -> datetime:
        return START + timedelta(seconds=(time.time() - since) * fast)

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / fast)

    async def run(job: Job, _text: str) -> str:
        with open(log, "ab", buffering=0) as stream:
            # Each run has a next run of its own: that of its slot.
            stream.write(f"{job.id} {job.next_run and job.next_run.isoformat()}\n".encode())
        if job.draft.message == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        await sleep(1)
        return "done"

    print("ready", flush=True)
    await CronService(
        JobStore(data, wall), run, Clocks(wall=wall, monotonic=lambda: time.monotonic() * fast, sleep=sleep)
    ).run()


if __name__ == "__main__":
    what, data, *rest = sys.argv[1:]
    if what == "write":
        asyncio.run(write(Path(data), rest[0], int(rest[1])))
    else:
        asyncio.run(serve(Path(data), Path(rest[0]), float(rest[1]), float(rest[2])))
