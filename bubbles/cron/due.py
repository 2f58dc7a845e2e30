"""What becomes of a job as time goes on: due, begun, over, cut off, missed (SPEC 7.3). Pure.

Everything here takes a job as it is kept and gives it as it is to be kept. Who runs it writes that down first, so that
a crash at any instant leaves a run that has begun or one that has not, and never one that begins again (CRON-04).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bubbles.cron.contract import Job, JobKind, ScheduleKind
from bubbles.cron.schedule import next_run

DONE, SILENT, FAILED, INTERRUPTED, MISSED = "done", "silent", "failed", "interrupted", "missed"
GOOD = frozenset({DONE, SILENT})

ON_TIME = timedelta(seconds=10)
"""Later than that, a run was missed and is made up."""
GRACE = timedelta(hours=1)
GRACE_ONCE = timedelta(days=1)
"""Of ``at``."""
BACK_OFF = tuple(timedelta(seconds=s) for s in (30, 60, 300, 900, 3_600))
"""After so many failures in a row the next run is not before that (CRON-05)."""
CLOCK_TRUST = timedelta(days=1)
"""What ran further in the future than that, ran by a clock that was wrong."""
_WINDOWS = (ON_TIME, timedelta(minutes=2), timedelta(minutes=15), GRACE)
"""In which the last moment is looked for, so that not every minute of an hour is gone through."""
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that is about to begin."""

    job: Job
    """As it is written down."""
    due: datetime | None
    """None: it was only asked for."""
    late: timedelta = timedelta(0)
    """Zero: it begins on time."""


def planned(job: Job, after: datetime) -> Job:
    """With its next run after ``after``, reckoned anew; for an ``at`` its moment, even if that is over."""
    anchor = job.anchor or after.replace(microsecond=0)
    if not job.draft.enabled:
        return replace(job, anchor=anchor, next_run=None)
    since = datetime.min.replace(tzinfo=after.tzinfo) if _is_once(job) else after
    return replace(job, anchor=anchor, next_run=next_run(job.draft.schedule, since, anchor))


def looked_at(job: Job, now: datetime, *, clock_set: bool) -> Job:
    """What was written by hand gets its next run. ``clock_set``: the clock may have been put back since."""
    if not job.draft.enabled or job.running is not None:
        return job
    if job.next_run is None:
        return planned(job, now)
    if not clock_set or _is_once(job):
        return job
    # A clock that was wrong by years must not stop a job for years. One that was put back a little must not run again
    # what has run already, nor end a back-off.
    ran = job.last_run if job.last_run is not None and job.last_run - now <= CLOCK_TRUST else now
    soonest = _after(job, max(now, ran))
    return job if soonest is None or job.next_run - soonest <= BACK_OFF[-1] else replace(job, next_run=soonest)


def due(job: Job, now: datetime) -> tuple[Job, Begun | None]:
    """The job as it is to be kept now, and the run that begins with that if one does."""
    job, asked = _asked(job, now)
    if not job.draft.enabled or job.next_run is None or job.next_run > now:
        begun = replace(job, running=now, last_run=now, last_outcome="") if asked else None
        return (job, None) if begun is None else (begun, Begun(job=begun, due=None))
    slot = _slot(job, now)
    rest = replace(job, next_run=None if _is_once(job) else _after(job, now))
    if slot is None and not asked:
        return _missed(rest, job.next_run), None
    begun = replace(rest, running=now, last_run=now, last_outcome="")
    late = timedelta(0) if slot is None or now - slot <= ON_TIME else now - slot
    return begun, Begun(job=begun, due=slot, late=late)


def ended(job: Job, begun: Begun, outcome: str, now: datetime) -> Job | None:
    """``job`` is as it is kept now: it may have been changed while it ran. None: it goes."""
    same = job.draft.schedule == begun.job.draft.schedule
    good, asked = outcome in GOOD, begun.due is None
    failures = 0 if good else job.failures + (not asked)
    job = replace(job, running=None, last_outcome=outcome, failures=failures)
    if _is_once(job):
        if not same or job.next_run is not None:
            return job
        # What was cut off has not run to its end: it stays, so that somebody sees it.
        if job.draft.delete_after_run and outcome != INTERRUPTED:
            return None
        return _off(job)
    if job.draft.delete_after_run and good and same:
        return None
    if not job.draft.enabled or job.next_run is None:
        return job
    if good or asked:
        # What fell due while it ran is left out.
        return job if job.next_run > now else replace(job, next_run=_after(job, now))
    earliest = now + BACK_OFF[min(failures, len(BACK_OFF)) - 1]
    return job if job.next_run >= earliest else replace(job, next_run=_after(job, earliest - _TICK))


def cut_off(job: Job, now: datetime) -> Job:
    """It ran when the program ended. What it missed since is not made up: it may be what ends the program (B071)."""
    kept = ended(job, Begun(job=job, due=job.running), INTERRUPTED, now)
    return job if kept is None else kept


def _asked(job: Job, now: datetime) -> tuple[Job, bool]:
    """Nobody waits for what was asked for an hour ago."""
    if job.asked is None:
        return job, False
    good = (job.draft.enabled or job.forced) and abs(now - job.asked) <= GRACE
    return replace(job, asked=None, forced=False), good


def _slot(job: Job, now: datetime) -> datetime | None:
    """The last moment at which it was due and may still be made up. The next run is over."""
    first = job.next_run
    if first is None:
        return None
    if _is_once(job):
        return first if now - first <= GRACE_ONCE else None
    grace = ON_TIME if job.kind is JobKind.HEARTBEAT else GRACE
    slot = first if now - first <= grace else None
    for back in (window for window in _WINDOWS if window <= grace):
        following = _after(job, max(first, now - back) - _TICK)
        if following is not None and following <= now:
            while following is not None and following <= now:
                slot, following = following, _after(job, following)
            break
    return slot


def _missed(job: Job, slot: datetime) -> Job:
    if job.kind is JobKind.HEARTBEAT:
        return job  # it was never to be made up, and how the last one went says more
    job = replace(job, last_run=slot, last_outcome=MISSED)
    return _off(job) if _is_once(job) else job


def _off(job: Job) -> Job:
    return replace(job, next_run=None, draft=replace(job.draft, enabled=False))


def _after(job: Job, moment: datetime) -> datetime | None:
    return next_run(job.draft.schedule, moment, job.anchor or moment)


def _is_once(job: Job) -> bool:
    return job.draft.schedule.kind is ScheduleKind.AT
