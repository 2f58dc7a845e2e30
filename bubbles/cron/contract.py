"""What a job is, and what the cron tool needs of whoever keeps them (CRON-01, TOOL-06). Open this file first.

JobError (a BubblesError)
├── UnknownJobError    the same for an id that is nobody's and for one of another session
└── JobsFileError      the file of the jobs cannot be read or written: nothing was changed
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bubbles.bus import Address, Origin
from bubbles.errors import BubblesError


class JobError(BubblesError):
    """The job cannot be as it was asked for; one sentence that names the field, the value and the mend."""

    exit_code = 2


class UnknownJobError(JobError):
    def __init__(self, job: str) -> None:
        super().__init__(f"There is no job {job[:40]!r} in this session: list shows those that there are.")


class JobsFileError(JobError):
    """Names the file, the line if there is one, and the mend."""

    exit_code = 1


class ScheduleKind(enum.StrEnum):
    AT = "at"
    """Once, at a moment."""
    EVERY = "every"
    """Again and again, counted from its anchor."""
    CRON = "cron"
    """When a line of five fields says, in a time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job is due, as it was written."""

    kind: ScheduleKind
    text: str
    """``at``: RFC 3339 with an offset, or without one in ``zone``. ``every``: ``90s``, ``30m``, ``2h``, ``1d``.
    ``cron``: five fields."""
    zone: str | None = None
    """Of the IANA data base; None is the machine's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDraft:
    """What is asked for."""

    name: str
    message: str
    """What the assistant is told when it is due; it begins a whole turn (CRON-02)."""
    schedule: Schedule
    deliver_to: Address | None = None
    """Where the reply goes beside the session's history; None: nowhere else."""
    delete_after_run: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """What of a job becomes different; None stays as it is."""

    name: str | None = None
    message: str | None = None
    schedule: Schedule | None = None
    deliver_to: Address | None = None
    deliver_nowhere: bool = False
    """The reply goes to the history alone from now on."""
    delete_after_run: bool | None = None
    enabled: bool | None = None


class JobKind(enum.StrEnum):
    JOB = "job"
    HEARTBEAT = "heartbeat"
    """Of people alone: no tool sees it (HB-01)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it is kept. Moments have a zone."""

    id: str
    draft: JobDraft
    session_key: str
    next_run: datetime | None
    """None: disabled, or over."""
    kind: JobKind = JobKind.JOB
    anchor: datetime | None = None
    """From which ``every`` counts."""
    last_run: datetime | None = None
    """When it last ran, or was to run."""
    last_outcome: str = ""
    """``done``, ``silent``, ``failed``, ``interrupted``, ``missed``; empty: it never ran, or it runs now."""
    failures: int = 0
    """In a row."""
    running: datetime | None = None
    """Since when it runs; one that outlived its process was cut off."""
    asked: datetime | None = None
    """When somebody asked for a run at once that has not begun yet."""
    forced: bool = False
    """What was asked for holds for a disabled job too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that is in the file of the jobs."""

    jobs: tuple[Job, ...] = ()
    problems: tuple[str, ...] = ()
    """A sentence each: an entry that makes no sense and is passed over, or why nothing can be read."""
    readable: bool = True
    """False: nothing can be read, and nothing is written."""


class Jobs(Protocol):
    """The jobs of the session of ``origin``: those of others are not seen and not touched (TOOL-06)."""

    async def add(self, draft: JobDraft, origin: Origin) -> Job:
        """Raises ``JobError``."""
        ...

    async def list(self, origin: Origin) -> tuple[Job, ...]: ...

    async def change(self, job: str, change: JobChange, origin: Origin) -> Job:
        """Raises ``UnknownJobError``, ``JobError``."""
        ...

    async def remove(self, job: str, origin: Origin) -> None:
        """Raises ``UnknownJobError``."""
        ...
