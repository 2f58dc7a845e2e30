"""What the cron tool sees of the jobs: those of the session that it is called in (TOOL-06)."""

from __future__ import annotations

from bubbles.bus import Origin
from bubbles.cron.contract import Job, JobChange, JobDraft, JobKind, JobsFileError
from bubbles.cron.store import JobStore


class SessionJobs:
    """``Jobs``. A heartbeat is of people alone, and is not there for it (HB-01)."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def add(self, draft: JobDraft, origin: Origin) -> Job:
        return await self._store.add(draft, origin.session_key)

    async def list(self, origin: Origin) -> tuple[Job, ...]:
        """Raises ``JobsFileError``: of a file that cannot be read nobody knows that there are no jobs in it."""
        listing = await self._store.listing()
        if not listing.readable:
            raise JobsFileError(" ".join(listing.problems))
        return tuple(job for job in listing.jobs if job.session_key == origin.session_key and job.kind is JobKind.JOB)

    async def change(self, job: str, change: JobChange, origin: Origin) -> Job:
        return await self._store.change(job, change, origin.session_key)

    async def remove(self, job: str, origin: Origin) -> None:
        await self._store.remove(job, origin.session_key)
