"""Jobs in words for a person: ``bubbles cron list``, ``/status`` and ``/heartbeat``. No control character is in them.

Moments are shown in the machine's own zone, with how far away they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bubbles.bus import Address
from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import Job, JobKind, Schedule, ScheduleKind

MAX_NAME = 40
MAX_WHEN = 80
MAX_TARGET = 80
MAX_OUTCOME = 40
STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""Seconds, and what so many are called."""
NOWHERE = "history alone"
OWN_ZONE = "machine's zone"


def schedule_of(schedule: Schedule) -> str:
    """Such as ``every 30m``, ``once at 2026-05-01T09:00 (Europe/Berlin)``, ``cron 0 9 * * 1-5 (machine's zone)``."""
    text = shown_line(schedule.text[:MAX_WHEN])
    if schedule.kind is ScheduleKind.EVERY:
        return f"every {text}"
    zone = f" ({shown_line(schedule.zone[:MAX_WHEN])})" if schedule.zone else ""
    if schedule.kind is ScheduleKind.AT:
        return f"once at {text}{zone}"
    return f"cron {text}{zone or f' ({OWN_ZONE})'}"


def next_of(job: Job, now: datetime) -> str:
    """Such as ``2026-05-01 09:00 (in 12 min)``; empty if there is none."""
    if job.asked is not None:
        return "now, as asked for"
    return "" if job.next_run is None or not job.draft.enabled else moment(job.next_run, now)


def due_of(job: Job, now: datetime) -> str:
    """Such as ``next 2026-05-01 09:00 (in 12 min)``, or why there is none."""
    due = next_of(job, now)
    return f"next {due}" if due else state_of(job)


def state_of(job: Job) -> str:
    if job.running is not None:
        return "runs"
    if not job.draft.enabled:
        return "over" if job.draft.schedule.kind is ScheduleKind.AT and job.last_outcome else "off"
    return "on" if job.next_run is not None else "not reckoned yet"


def last_of(job: Job, now: datetime) -> str:
    """How it went, and when; empty if it never ran."""
    outcome = shown_line(job.last_outcome[:MAX_OUTCOME])
    if job.failures > 1:
        outcome += f" {job.failures} times in a row"
    if job.last_run is None or not outcome:
        return outcome
    return f"{outcome}, {moment(job.last_run, now)}"


def target_of(address: Address | None) -> str:
    """Where the reply goes beside the history."""
    return NOWHERE if address is None else shown_line(f"{address.channel}:{address.chat_id}"[:MAX_TARGET])


def name_of(job: Job) -> str:
    name = job.draft.name
    return shown_line(name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…")


def moment(when: datetime, now: datetime) -> str:
    """Such as ``2026-05-01 09:00 (in 12 min)``. Both moments have a zone."""
    away_s = round((when - now).total_seconds())
    away = "now" if away_s == 0 else f"in {span(away_s)}" if away_s > 0 else f"{span(-away_s)} ago"
    return f"{when.astimezone():%Y-%m-%d %H:%M} ({away})"


def span(seconds: int) -> str:
    """In the largest unit of which there is one, rounded down: ``59 min``, ``2 h``, ``3 d``."""
    size, unit = next(((size, unit) for size, unit in STEPS if seconds >= size), STEPS[-1])
    return f"{seconds // size} {unit}"


def described(jobs: Sequence[Job], now: datetime, most: int = 10) -> list[str]:
    """A line for each job that is no heartbeat, at most so many."""
    own = [job for job in jobs if job.kind is not JobKind.HEARTBEAT]
    lines = [f"{job.id} {name_of(job)}: {schedule_of(job.draft.schedule)}, {due_of(job, now)}" for job in own[:most]]
    return [*lines, f"and {len(own) - most} more"] if len(own) > most else lines


def as_json(job: Job) -> dict[str, Any]:
    """For scripts; moments are RFC 3339."""
    draft = job.draft
    return {
        "id": job.id,
        "kind": str(job.kind),
        "name": draft.name,
        "message": draft.message,
        "schedule": {
            "kind": str(draft.schedule.kind),
            "text": draft.schedule.text,
            "zone": draft.schedule.zone,
        },
        "session": job.session_key,
        "to": None if draft.deliver_to is None else f"{draft.deliver_to.channel}:{draft.deliver_to.chat_id}",
        "delete_after_run": draft.delete_after_run,
        "enabled": draft.enabled,
        "next_run": _written(job.next_run),
        "last_run": _written(job.last_run),
        "last_outcome": job.last_outcome or None,
        "failures": job.failures,
        "running": job.running is not None,
    }


def _written(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="seconds")
