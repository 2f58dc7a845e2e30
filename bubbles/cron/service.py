"""Runs jobs when they are due (CRON-02 to CRON-05).

What is to be run is decided on what the file says at that moment, under its lock, and written there before it begins.
Nothing is run from memory: while the file cannot be read, nothing runs, and ``problems`` says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bubbles.cron import due
from bubbles.cron.contract import Job, JobError
from bubbles.cron.due import Begun
from bubbles.cron.jobsfile import Sheet, Stamp
from bubbles.cron.store import JobStore
from bubbles.cron.wording import text_of
from bubbles.errors import BubblesError

LOOK_S = 1.0
"""Between two looks at the file. It is looked at rather than watched: commands, tools, editors and other containers
write it, and no notice of the kernel comes from all of them. A look is one stat(2).
"""
REREAD_S = 60.0
"""After that it is read even if it looks the same: file systems of a network tell of changes late."""
JUMP_S = 2.0
"""The wall clock was set if it moved so much less than time did."""
OUTCOMES = frozenset({due.DONE, due.SILENT, due.FAILED})

_log = logging.getLogger(__name__)

Run = Callable[[Job, str], Awaitable[str]]
"""Runs a turn: the job as it is written down, the text of the message. Returns ``done``, ``silent`` or ``failed``."""


def _utc() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    wall: Callable[[], datetime] = _utc
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What came of a look into the file."""

    begun: tuple[Begun, ...]
    cut_off: tuple[Job, ...]
    missed: tuple[Job, ...]
    soonest: datetime | None
    jobs: int
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """Of the last look."""

    stamp: Stamp | None = field(default=None, init=False)
    """None: it failed, or there was none."""
    soonest: datetime | None = field(default=None, init=False)
    wall: datetime | None = field(default=None, init=False)
    at_s: float = field(default=0.0, init=False)
    read_s: float = field(default=0.0, init=False)


class CronService:
    """One runs for a data directory. All calls belong to one event loop."""

    def __init__(self, store: JobStore, run: Run, clocks: Clocks | None = None) -> None:
        self._store = store
        self._run = run
        self._clocks = clocks or Clocks()
        self._running: set[str] = set()
        self._began = False
        """Whether what an earlier process left was seen to."""
        self._seen = _Seen()
        self._jobs = 0
        self._problems: tuple[str, ...] = ()
        self._over: dict[str, tuple[Begun, str]] = {}
        """Runs whose end is not written down yet, with their outcomes."""
        self._unwritten: dict[str, str] = {}
        """Those of them of which that could not be done, and why."""
        self._writing = asyncio.Lock()
        """One thread at a time waits for the file, however many runs end at once."""
        self._leaving = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence each: what keeps jobs from running; empty if all is well."""
        return (*self._problems, *sorted(set(self._unwritten.values())))

    @property
    def readable(self) -> bool:
        """False: the file cannot be read or written, and no job runs. Else ``problems`` are of single jobs."""
        return self._seen.stamp is not None and not self._unwritten

    @property
    def jobs(self) -> int:
        """How many there were at the last look, heartbeats among them."""
        return self._jobs

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def last_tick(self) -> datetime | None:
        """When it last looked, by the wall clock; None: not yet."""
        return self._seen.wall

    @property
    def tick_age_s(self) -> float | None:
        """How long ago that was, whatever the wall clock does meanwhile. More than a few seconds: it hangs."""
        return None if self._seen.wall is None else self._clocks.monotonic() - self._seen.at_s

    async def run(self) -> None:
        """Until cancelled. Runs that are going on are cancelled then, and count as interrupted."""
        async with asyncio.TaskGroup() as runs:
            while True:
                await self._tick(runs)
                await self._clocks.sleep(self._pause_s())

    async def leave(self) -> None:
        """Begin nothing more, and return once all that runs has ended and is written down. ``run`` has to go on that
        long; whoever waits sets the limit.
        """
        self._leaving.set()
        async with self._writing:
            pass  # what is being begun just now is counted then
        await self._idle.wait()

    def _pause_s(self) -> float:
        if self._seen.soonest is None or self._seen.stamp is None or self._leaving.is_set():
            return LOOK_S
        left_s = (self._seen.soonest - self._clocks.wall()).total_seconds()
        return min(LOOK_S, max(left_s, 0.001))

    async def _tick(self, runs: asyncio.TaskGroup) -> None:
        now, at_s = self._clocks.wall(), self._clocks.monotonic()
        seen = self._seen
        clock_set = seen.wall is not None and (now - seen.wall).total_seconds() < at_s - seen.at_s - JUMP_S
        seen.wall, seen.at_s = now, at_s
        if self._leaving.is_set():
            return
        try:
            same = seen.stamp is not None and await self._store.stamp() == seen.stamp
            if (
                same
                and not clock_set
                and at_s - seen.read_s < REREAD_S
                and (seen.soonest is None or seen.soonest > now)
            ):
                return
            clock_set = clock_set or not self._began
            async with self._writing:
                if self._leaving.is_set():
                    return
                looked, stamp = await self._store.transact(lambda sheet: self._look(sheet, now, clock_set=clock_set))
        except JobError as error:
            # The clock may have been set in this very moment: the next look that succeeds has to know.
            self._began, seen.stamp = self._began and not clock_set, None
            self._tell((str(error),))
            return
        self._began, seen.stamp, seen.soonest, seen.read_s = True, stamp, looked.soonest, at_s
        self._jobs = looked.jobs
        self._tell(looked.problems)
        for job in looked.cut_off:
            _log.warning("job %s was cut off when the program ended: it counts as failed", job.id)
        for job in looked.missed:
            _log.warning("job %s was due while nothing ran, and is not made up any more", job.id)
        for begun in looked.begun:
            self._running.add(begun.job.id)
            self._idle.clear()
            runs.create_task(self._carry_out(begun))

    def _look(self, sheet: Sheet, now: datetime, *, clock_set: bool) -> _Look:
        """In a thread, while nobody else changes the file."""
        begun, cut_off, missed, waiting = [], [], [], []
        for kept in sheet.jobs:
            if kept.id in self._running:
                continue
            job = kept
            if job.running is not None:
                job = due.cut_off(job, now)
                cut_off.append(job)
            job, run = due.due(due.looked_at(job, now, clock_set=clock_set), now)
            if run is not None:
                begun.append(run)
            else:
                if job.last_outcome == due.MISSED and job.last_run != kept.last_run:
                    missed.append(job)
                if job.draft.enabled and job.next_run is not None:
                    waiting.append(job.next_run)
            sheet.put(job)
        return _Look(
            begun=tuple(begun),
            cut_off=tuple(cut_off),
            missed=tuple(missed),
            soonest=min(waiting, default=None),
            jobs=len(sheet.jobs),
            problems=sheet.problems,
        )

    async def _carry_out(self, begun: Begun) -> None:
        ident = begun.job.id
        try:
            outcome = await self._run(begun.job, text_of(begun))
            if outcome not in OUTCOMES:
                _log.error("job %s ended with the unknown outcome %r: it counts as failed", ident, outcome)
                outcome = due.FAILED
        except BubblesError as error:
            _log.error("job %s failed: %s", ident, error)
            outcome = due.FAILED
        except Exception:  # noqa: BLE001 - a job that fails in any way must not end the others
            _log.exception("job %s failed", ident)
            outcome = due.FAILED
        await self._end(begun, outcome)

    async def _end(self, begun: Begun, outcome: str) -> None:
        """Until it is written down the job does not run again."""
        ident = begun.job.id
        self._over[ident] = (begun, outcome)
        while True:
            try:
                async with self._writing:
                    if ident in self._over:  # else it went with another that ended at the same time
                        await self._write_down(dict(self._over))
                self._unwritten.pop(ident, None)
                return
            except JobError as error:
                if ident not in self._unwritten:
                    _log.error("how job %s ended cannot be written down yet: %s", ident, error)
                self._unwritten[ident] = str(error)
            await self._clocks.sleep(LOOK_S)

    async def _write_down(self, over: Mapping[str, tuple[Begun, str]]) -> None:
        now = self._clocks.wall()

        def work(sheet: Sheet) -> None:
            kept = {job.id: job for job in sheet.jobs}
            for ident in over.keys() & kept.keys():  # the others were removed while they ran
                job = due.ended(kept[ident], *over[ident], now)
                if job is None:
                    sheet.remove(ident)
                else:
                    sheet.put(job)

        await self._store.transact(work)
        # Here, with the file still ours: a look in between would not see when they are due again.
        for ident in over:
            del self._over[ident]
            self._running.discard(ident)
        if not self._running:
            self._idle.set()

    def _tell(self, problems: tuple[str, ...]) -> None:
        """In the log once, for as long as it stays the same."""
        for problem in problems:
            if problem not in self._problems:
                _log.error("%s", problem)
        self._problems = problems
