"""The jobs with several processes at them, and with a gateway that is killed at any instant."""

from __future__ import annotations

import asyncio
import fcntl
import random
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from bubbles.cron.contract import Job, JobDraft, JobsFileError, Schedule, ScheduleKind
from bubbles.cron.jobsfile import JobsFile
from bubbles.cron.store import JobStore
from tests.integration.cron_processes import DEADLY, START

SCRIPT = Path(__file__).with_name("cron_processes.py")
ROOT = Path(__file__).parents[2]
WRITERS, TIMES = 3, 6
KILLS = 8
FAST = 150.0
"""Seconds of the jobs in one of ours: a job that is due every 10 s is due 15 times a second."""


async def started(*arguments: object) -> Process:
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    words = map(str, (SCRIPT, *arguments))
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, *words, cwd=ROOT, stdout=PIPE)


def draft(every: str, message: str = "x", schedule: Schedule | None = None) -> JobDraft:
    return JobDraft(name=every, message=message, schedule=schedule or Schedule(kind=ScheduleKind.EVERY, text=every))


JOB = Job(id="a", draft=draft("1h"), session_key="cli", next_run=START, anchor=START)


@pytest.mark.req("CRON-04")
async def test_processes_that_write_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:  # B075
    writers = [await started("write", tmp_path, f"w{number}", TIMES) for number in range(WRITERS)]
    own = JobStore(tmp_path)
    mine = [await own.add(draft("1h"), "cli") for _ in range(TIMES)]
    printed = [(await writer.communicate())[0].decode().split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert [len(idents) for idents in printed] == [TIMES] * WRITERS
    listing = await own.listing()
    assert listing.problems == ()
    found = {job.id: job for job in listing.jobs}
    assert found.keys() == {job.id for job in mine} | {ident for idents in printed for ident in idents}
    for number, idents in enumerate(printed):
        assert {found[ident].draft.message for ident in idents} == {f"w{number} was here"}
    assert {path.name for path in (tmp_path / "cron").iterdir()} == {"jobs.json", "jobs.lock"}


@pytest.mark.req("CRON-04")
@pytest.mark.timeout(60)
async def test_a_gateway_killed_at_any_instant_runs_nothing_twice(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    since, log = time.time(), tmp_path / "log"
    store = JobStore(tmp_path, lambda: START)
    for _ in range(6):
        await store.add(draft("10s"), "cli")
    minute = Schedule(kind=ScheduleKind.AT, text=(START + timedelta(minutes=1)).isoformat())
    once = [await store.add(draft("at", schedule=minute), "cli") for _ in range(3)]
    for number in range(KILLS):
        gateway = await started("serve", tmp_path, log, FAST, since)
        assert gateway.stdout is not None
        assert await gateway.stdout.readline() == b"ready\n"
        async with asyncio.timeout(10):
            while number == 0 and not log.exists():  # noqa: ASYNC110 - another process; so that something did run
                await asyncio.sleep(0.005)
        await asyncio.sleep(chance.uniform(0, 0.15))
        gateway.send_signal(signal.SIGKILL)
        assert await gateway.wait() == -signal.SIGKILL
        assert (await store.listing()).problems == ()
    lines = (await asyncio.to_thread(log.read_text)).splitlines()
    assert not [line for line, times in Counter(lines).items() if times > 1]
    ran = Counter(line.split()[0] for line in lines)
    print(f"{len(lines)} runs")
    assert all(ran[job.id] <= 1 for job in once)


@pytest.mark.req("CRON-04", "CRON-05")
async def test_a_job_that_kills_the_gateway_is_not_run_again_by_the_next_one(tmp_path: Path) -> None:  # B071
    since, log = time.time(), tmp_path / "log"
    store = JobStore(tmp_path, lambda: START)
    job = await store.add(draft("1m", DEADLY), "cli")
    gateway = await started("serve", tmp_path, log, FAST, since)
    assert await gateway.wait() == -signal.SIGKILL
    fast_again = time.time() - 62 / FAST  # the next one starts a moment later, by its clock
    gateway = await started("serve", tmp_path, log, FAST / 100, fast_again)
    assert gateway.stdout is not None
    await gateway.stdout.readline()
    async with asyncio.timeout(5):
        while (found := (await store.listing()).jobs[0]).running is not None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    gateway.kill()
    await gateway.wait()
    assert (await asyncio.to_thread(log.read_text)).count(job.id) == 1
    assert (found.last_outcome, found.failures) == ("interrupted", 1)


def test_who_holds_the_lock_for_ever_does_not_hang_the_others(tmp_path: Path) -> None:
    file = JobsFile(tmp_path, wait_s=0.05)
    file.change(lambda sheet: sheet.put(JOB))
    with open(tmp_path / "cron" / "jobs.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert file.read().jobs == (JOB,)  # reading needs no lock
        with pytest.raises(JobsFileError, match=r"another process has held jobs\.lock for 0\.05 s"):
            file.change(lambda sheet: sheet.remove(JOB.id))
    assert file.read().jobs == (JOB,)
    file.change(lambda sheet: sheet.remove(JOB.id))
    assert file.read().jobs == ()
