"""Time that moves when a test says so, and a service in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bubbles.bus import Address
from bubbles.cron.contract import Job, JobDraft, Schedule, ScheduleKind
from bubbles.cron.service import Clocks, CronService
from bubbles.cron.store import JobStore

START = datetime(2026, 5, 1, 8, 0, 0, tzinfo=UTC)
CHAT = Address(channel="telegram", chat_id="7")


def every(text: str) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, text=text)


def cron(text: str, zone: str = "UTC") -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, text=text, zone=zone)


def at(text: str) -> Schedule:
    return Schedule(kind=ScheduleKind.AT, text=text, zone="UTC")


def draft(schedule: Schedule, **fields: Any) -> JobDraft:
    return JobDraft(**{"name": "plants", "message": "water the plants", "schedule": schedule, **fields})


class World:
    """A data directory, its clocks, and what was run in it and when."""

    def __init__(self, base: Path) -> None:
        self.wall = START
        self.monotonic = 0.0
        self.path = base / "cron" / "jobs.json"
        self.store = JobStore(base, lambda: self.wall)
        self.runs: list[tuple[str, datetime, str]] = []
        """Id, when, and the text."""
        self.begun: list[Job] = []
        """As each run was given it."""
        self.outcomes: dict[str, object] = {}
        """By id; ``done`` if nothing is said. An exception is raised."""
        self.held: dict[str, asyncio.Event] = {}
        """Runs of these jobs end when the event is set."""
        self._holding = 0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._service: CronService | None = None

    @property
    def service(self) -> CronService:
        assert self._service is not None
        return self._service

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[CronService]:
        clocks = Clocks(wall=lambda: self.wall, monotonic=lambda: self.monotonic, sleep=self._sleep)
        self._service, self._sleepers, self._holding = CronService(self.store, self._run, clocks), [], 0
        task = asyncio.create_task(self._service.run())
        try:
            await self._settled()
            yield self._service
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled()

    async def passes(self, seconds: float) -> None:
        """So much time, with everything in it that happens by itself."""
        end = self.monotonic + seconds
        await self._settled()
        while self._sleepers and (first := min(self._sleepers, key=lambda sleeper: sleeper[0]))[0] <= end:
            self._to(first[0])
            self._sleepers.remove(first)
            first[1].set_result(None)
            await self._settled()
        self._to(end)

    async def passes_until(self, text: str) -> None:
        await self.passes((datetime.fromisoformat(text) - self.wall).total_seconds())

    def sleeps(self, delta: timedelta) -> None:
        """The machine sleeps, or somebody sets its clock: nothing happens meanwhile."""
        self.wall += delta

    async def job(self, ident: str) -> Job:
        return next(job for job in (await self.store.listing()).jobs if job.id == ident)

    def times(self, ident: str) -> list[str]:
        return [f"{when:%d. %H:%M:%S}" for who, when, _ in self.runs if who == ident]

    def hold(self, ident: str) -> asyncio.Event:
        self.held[ident] = asyncio.Event()
        return self.held[ident]

    def _to(self, monotonic: float) -> None:
        self.wall += timedelta(seconds=monotonic - self.monotonic)
        self.monotonic = monotonic

    async def _sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.monotonic + seconds, woken))
        await woken

    async def _settled(self) -> None:
        """Until the service sleeps, and each run is held by the test, or sleeps too."""
        async with asyncio.timeout(5):
            while len(self._sleepers) + self._holding != 1 + self.service.running:  # noqa: ASYNC110 - threads are in it
                await asyncio.sleep(0)

    async def _run(self, job: Job, text: str) -> str:
        self.runs.append((job.id, self.wall, text))
        self.begun.append(job)
        if (held := self.held.get(job.id)) is not None:
            self._holding += 1
            await held.wait()
            self._holding -= 1
        outcome = self.outcomes.get(job.id, "done")
        if isinstance(outcome, BaseException):
            raise outcome
        return str(outcome)


@dataclass(slots=True)
class Damage:
    """The file of the jobs with a comma too many, and how it is mended."""

    path: Path
    text: str = field(default="", init=False)

    def __enter__(self) -> bytes:
        self.text = self.path.read_text()
        self.path.write_text(self.text.replace('"jobs": [', '"jobs": [,'))
        return self.path.read_bytes()

    def __exit__(self, *_: object) -> None:
        self.path.write_text(self.text)
