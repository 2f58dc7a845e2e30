"""Jobs in memory, for tests of what stands above."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bubbles.bus import Origin
from bubbles.cron.contract import Job, JobChange, JobDraft, JobError, Schedule, UnknownJobError

DUE = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class MemoryJobs:
    """``Jobs``. Every job is due at ``DUE``; the schedule ``nonsense`` is refused."""

    jobs: dict[str, Job] = field(default_factory=dict)

    async def add(self, draft: JobDraft, origin: Origin) -> Job:
        _check(draft.schedule)
        ident = f"j{len(self.jobs) + 1}"
        job = Job(id=ident, draft=draft, session_key=origin.session_key, next_run=DUE if draft.enabled else None)
        self.jobs[ident] = job
        return job

    async def list(self, origin: Origin) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.values() if job.session_key == origin.session_key)

    async def change(self, job: str, change: JobChange, origin: Origin) -> Job:
        found = self._own(job, origin)
        if change.schedule is not None:
            _check(change.schedule)
        named = ("name", "message", "schedule", "delete_after_run", "enabled")
        given = {name: value for name in named if (value := getattr(change, name)) is not None}
        deliver_to = None if change.deliver_nowhere else change.deliver_to or found.draft.deliver_to
        draft = replace(found.draft, **given, deliver_to=deliver_to)
        self.jobs[job] = replace(found, draft=draft, next_run=DUE if draft.enabled else None)
        return self.jobs[job]

    async def remove(self, job: str, origin: Origin) -> None:
        self._own(job, origin)
        del self.jobs[job]

    def _own(self, job: str, origin: Origin) -> Job:
        found = self.jobs.get(job)
        if found is None or found.session_key != origin.session_key:
            raise UnknownJobError(job)
        return found


def _check(schedule: Schedule) -> None:
    if schedule.text == "nonsense":
        raise JobError(f"{schedule.kind} cannot be 'nonsense': write a time.")
