"""The jobs, as commands, tools and the gateway see and change them (CRON-01, CRON-03)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from bubbles.bus import Address
from bubbles.controller.approvals.card import shown_line
from bubbles.cron import due, entries
from bubbles.cron.contract import (
    Job,
    JobChange,
    JobDraft,
    JobError,
    JobKind,
    JobsFileError,
    Listing,
    Schedule,
    ScheduleKind,
    UnknownJobError,
)
from bubbles.cron.jobsfile import MAX_BYTES, MAX_WRITTEN, JobsFile, Sheet, Stamp
from bubbles.cron.schedule import absolute, parse
from bubbles.cron.spans import span
from bubbles.sessions.key import is_key

T = TypeVar("T")
MAX_JOBS = 1_000
LETTERS = "bcdfghjkmnpqrstvwxz23456789"
"""Of ids: no vowels, so that no words come of it, and nothing that looks like something else."""
ID_LENGTH = 6
HEARTBEAT = "heartbeat"
HEARTBEAT_LEAST, HEARTBEAT_MOST = timedelta(minutes=1), timedelta(days=1)


def _utc() -> datetime:
    return datetime.now(UTC)


class JobStore:
    """Of a data directory. Any number of them, in any number of processes, may work on the same one.

    What changes something raises ``JobError``, and ``JobsFileError`` if the file cannot be read or written: nothing is
    changed then.
    """

    def __init__(self, data_dir: Path, clock: Callable[[], datetime] = _utc) -> None:
        self._file = JobsFile(data_dir)
        self._clock = clock

    async def listing(self) -> Listing:
        """Never raises ``JobsFileError``: what is wrong with the file is in it."""
        try:
            sheet = await asyncio.to_thread(self._file.read)
        except JobsFileError as error:
            return Listing(problems=(str(error),), readable=False)
        return Listing(jobs=sheet.jobs, problems=sheet.problems)

    async def add(self, draft: JobDraft, session_key: str, kind: JobKind = JobKind.JOB) -> Job:
        now = self._clock()
        return await self._change(lambda sheet: _added(sheet, draft, session_key, kind, now))

    async def change(self, job: str, change: JobChange, session_key: str | None = None) -> Job:
        """``session_key``: whose job it has to be; a heartbeat is nobody's. Else ``UnknownJobError``."""
        now = self._clock()

        def work(sheet: Sheet) -> Job:
            changed = _changed(_found(sheet, job, session_key), change, now)
            sheet.put(changed)
            return changed

        return await self._change(work)

    async def remove(self, job: str, session_key: str | None = None) -> Job:
        def work(sheet: Sheet) -> Job:
            found = _found(sheet, job, session_key)
            sheet.remove(found.id)
            return found

        return await self._change(work, most=MAX_BYTES)  # what is too large must be able to get smaller

    async def ask(self, job: str, *, force: bool = False) -> Job:
        """The gateway is to run it at once, whenever it is due; a disabled one only with ``force`` (CRON-03)."""
        now = self._clock()

        def work(sheet: Sheet) -> Job:
            found = _found(sheet, job, None)
            if not found.draft.enabled and not force:
                raise JobError(f"{found.id} is disabled: enable it, or run it with -f.")
            asked = replace(found, asked=now, forced=force)
            sheet.put(asked)
            return asked

        return await self._change(work)

    async def ran(self, job: str, outcome: str) -> Job | None:
        """Somebody else than the gateway has run it at once; None: it is gone with that, or was before."""
        now = self._clock()

        def work(sheet: Sheet) -> Job | None:
            found = sheet.find(job)
            if found is None:
                return None
            kept = due.ended(replace(found, last_run=now), due.Begun(job=found, due=None), outcome, now)
            if kept is None:
                sheet.remove(job)
            else:
                sheet.put(replace(kept, running=found.running))
            return kept

        return await self._change(work)

    async def heartbeat(self, session_key: str) -> Job | None:
        """That of the session. Raises ``JobsFileError``."""
        return _heartbeat(await asyncio.to_thread(self._file.read), session_key)

    async def set_heartbeat(self, session_key: str, every: Schedule | None, deliver_to: Address | None) -> Job | None:
        """``every``: one minute to a day; None turns it off (HB-01)."""
        if every is not None:
            _check_heartbeat(every)
        now = self._clock()

        def work(sheet: Sheet) -> Job | None:
            before = _heartbeat(sheet, session_key)
            if every is None:
                while (found := _heartbeat(sheet, session_key)) is not None:
                    sheet.remove(found.id)
                return None
            draft = JobDraft(name=HEARTBEAT, message="", schedule=every, deliver_to=deliver_to)
            if before is None:
                return _added(sheet, draft, session_key, JobKind.HEARTBEAT, now)
            job = due.planned(replace(before, draft=draft, anchor=None, failures=0), now)
            sheet.put(job)
            return job

        return await self._change(work)

    async def stamp(self) -> Stamp:
        """Differs whenever the file was written since. Raises ``JobsFileError``."""
        return await asyncio.to_thread(self._file.stamp)

    async def transact(self, work: Callable[[Sheet], T]) -> tuple[T, Stamp]:
        """For whoever runs the jobs: ``work`` on what is in the file now, in a thread, while nobody else changes it."""
        return await asyncio.to_thread(self._file.change, work)

    async def _change(self, work: Callable[[Sheet], T], most: int = MAX_WRITTEN) -> T:
        return (await asyncio.to_thread(self._file.change, work, most=most))[0]


def _added(sheet: Sheet, draft: JobDraft, session_key: str, kind: JobKind, now: datetime) -> Job:
    entries.check_texts(draft.name, draft.message, kind)
    if not is_key(session_key):
        raise JobError(f"session cannot be '{shown_line(session_key[:40])}': name one that there can be.")
    draft = _checked(draft, now)
    if len(sheet.entries) >= MAX_JOBS:
        raise JobError(f"There are {len(sheet.entries):,} jobs already, and no more than {MAX_JOBS:,}: remove some.")
    taken = sheet.idents
    while (ident := "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))) in taken:
        pass
    job = due.planned(Job(id=ident, draft=draft, session_key=session_key, next_run=None, kind=kind), now)
    sheet.put(job)
    return job


def _checked(draft: JobDraft, now: datetime) -> JobDraft:
    if draft.deliver_to is not None:
        entries.check_address(draft.deliver_to)
    schedule = absolute(replace(draft.schedule, text=draft.schedule.text.strip()), now)
    parse(schedule, now)
    return replace(draft, schedule=schedule)


def _changed(job: Job, change: JobChange, now: datetime) -> Job:
    named = ("name", "message", "schedule", "delete_after_run", "enabled")
    given = {name: value for name in named if (value := getattr(change, name)) is not None}
    deliver_to = None if change.deliver_nowhere else change.deliver_to or job.draft.deliver_to
    if change.schedule is not None:
        given["schedule"] = _in_its_zone(change.schedule, job)
    draft = replace(job.draft, **given, deliver_to=deliver_to)
    entries.check_texts(draft.name, draft.message, job.kind)
    if change.deliver_to is not None:
        entries.check_address(change.deliver_to)
    if change.schedule is not None:
        if job.kind is JobKind.HEARTBEAT:
            _check_heartbeat(draft.schedule)
        return due.planned(replace(job, draft=_checked(draft, now), anchor=None, failures=0), now)
    if not draft.enabled:
        return replace(job, draft=draft, next_run=None)
    if job.draft.enabled:
        return replace(job, draft=draft)
    parse(draft.schedule, now)  # an ``at`` may be over since it was disabled
    return due.planned(replace(job, draft=draft, failures=0), now)


def _in_its_zone(schedule: Schedule, job: Job) -> Schedule:
    """Who names another time and no zone means the zone that the job has."""
    if schedule.zone is not None or schedule.kind is ScheduleKind.EVERY:
        return schedule
    return replace(schedule, zone=job.draft.schedule.zone)


def _found(sheet: Sheet, ident: str, session_key: str | None) -> Job:
    job = sheet.find(ident)
    if job is not None and (session_key is None or (job.session_key == session_key and job.kind is JobKind.JOB)):
        return job
    if session_key is None and ident in sheet.idents:
        raise JobError(
            f"The entry of {shown_line(ident[:40])} makes no sense: mend it, or take it out of {sheet.path}."
        )
    raise UnknownJobError(ident)


def _heartbeat(sheet: Sheet, session_key: str) -> Job | None:
    jobs = (job for job in sheet.jobs if job.kind is JobKind.HEARTBEAT and job.session_key == session_key)
    return next(jobs, None)


def _check_heartbeat(schedule: Schedule) -> None:
    parse(schedule)
    if schedule.kind is not ScheduleKind.EVERY or not HEARTBEAT_LEAST <= span(schedule.text) <= HEARTBEAT_MOST:
        raise JobError(
            f"A heartbeat cannot be {schedule.kind} '{shown_line(schedule.text[:40])}': it is one minute at least and "
            "a day at most, such as 30m."
        )
