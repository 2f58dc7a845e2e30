"""A job as an entry of jobs.json, and back. Pure.

What an entry has beside what is known here stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from bubbles.bus import Address
from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import Job, JobDraft, JobError, JobKind, Schedule, ScheduleKind
from bubbles.cron.schedule import parse
from bubbles.sessions.key import is_key

T = TypeVar("T")
MAX_NAME = 100
MAX_MESSAGE = 8_000
MAX_ID = 64
MAX_CHAT = 200
MAX_OUTCOME = 40
_KINDS = ", ".join(ScheduleKind)


def check_texts(name: str, message: str, kind: JobKind = JobKind.JOB) -> None:
    """Raises ``JobError``. The message of a heartbeat is the program's own, and may be left out."""
    for what, text, most in (("name", name, MAX_NAME), ("message", message, MAX_MESSAGE)):
        if not text.strip() and not (what == "message" and kind is JobKind.HEARTBEAT):
            raise JobError(f"{what} is blank: say in words what the job is.")
        if len(text) > most:
            raise JobError(f"{what} has {len(text):,} characters: {most:,} are taken; make it shorter.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JobError(f"{what} is not text that can be written as UTF-8: leave out what is broken.") from None


def written(job: Job, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry of a job, with all that is not known in ``before``."""
    draft, before = job.draft, before or {}
    to = draft.deliver_to
    known: dict[str, Any] = {
        "id": job.id,
        "kind": None if job.kind is JobKind.JOB else str(job.kind),
        "name": draft.name,
        "message": draft.message,
        "session": job.session_key,
        "schedule": _merged(before.get("schedule"), _schedule(draft.schedule), (*ScheduleKind, "zone")),
        "deliverTo": to and _merged(before.get("deliverTo"), {"channel": to.channel, "chatId": to.chat_id}, ()),
        "deleteAfterRun": draft.delete_after_run,
        "enabled": draft.enabled,
        "anchor": _shown(job.anchor),
        "nextRun": _shown(job.next_run),
        "nextRunFor": None if job.next_run is None else _mark(draft.schedule),
        "lastRun": _shown(job.last_run),
        "lastOutcome": job.last_outcome or None,
        "failures": job.failures or None,
        "running": _shown(job.running),
        "asked": _shown(job.asked),
        "forced": job.forced or None,
    }
    return _merged(before, {name: value for name, value in known.items() if value is not None}, known)


def read(entry: object) -> Job:
    """Raises ``JobError`` for what makes no sense."""
    if not isinstance(entry, dict):
        raise JobError("it is no object: write {...}.")
    ident = _get(entry, "id", str)
    if not 1 <= len(ident) <= MAX_ID or not ident.isascii() or not ident.isalnum():
        raise JobError(f"id has to be 1 to {MAX_ID} letters and digits.")
    kind = _one_of(_get(entry, "kind", str, JobKind.JOB.value), JobKind)
    name, message = _get(entry, "name", str), _get(entry, "message", str)
    check_texts(name, message, kind)
    session = _get(entry, "session", str)
    if not is_key(session):
        raise JobError(f"session cannot be '{shown_line(session[:MAX_ID])}': write the key of a session.")
    schedule = _read_schedule(_get(entry, "schedule", dict))
    failures = _get(entry, "failures", int, 0)
    if failures < 0:
        raise JobError("failures cannot be less than 0.")
    next_run = _moment(entry, "nextRun")
    return Job(
        id=ident,
        draft=JobDraft(
            name=name,
            message=message,
            schedule=schedule,
            deliver_to=_address(_get(entry, "deliverTo", dict, {})),
            delete_after_run=_get(entry, "deleteAfterRun", bool, False),
            enabled=_get(entry, "enabled", bool, True),
        ),
        session_key=session,
        # Somebody who edits the schedule in the file does not reckon when it is due.
        next_run=next_run if entry.get("nextRunFor") in (None, _mark(schedule)) else None,
        kind=kind,
        anchor=_moment(entry, "anchor"),
        last_run=_moment(entry, "lastRun"),
        last_outcome=_get(entry, "lastOutcome", str, "")[:MAX_OUTCOME],
        failures=failures,
        running=_moment(entry, "running"),
        asked=_moment(entry, "asked"),
        forced=_get(entry, "forced", bool, False),
    )


def _merged(before: object, now: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
    """What is known first, in the order of ``now``, then the rest of ``before``."""
    rest = before if isinstance(before, Mapping) else {}
    return {**now, **{name: value for name, value in rest.items() if name not in known and name not in now}}


def _schedule(schedule: Schedule) -> dict[str, Any]:
    return {str(schedule.kind): schedule.text, **({"zone": schedule.zone} if schedule.zone is not None else {})}


def _mark(schedule: Schedule) -> str:
    """Of which schedule a moment came."""
    return f"{schedule.kind} {schedule.text}{f' {schedule.zone}' if schedule.zone else ''}"


def _read_schedule(found: dict[str, Any]) -> Schedule:
    given = [kind for kind in ScheduleKind if kind in found]
    if len(given) != 1:
        raise JobError(f"schedule needs one of {_KINDS}, and has {' and '.join(given) or 'none of them'}.")
    schedule = Schedule(
        kind=given[0], text=_get(found, given[0], str).strip(), zone=_get(found, "zone", str, "") or None
    )
    parse(schedule)
    return schedule


def _address(found: dict[str, Any]) -> Address | None:
    if not found:
        return None
    address = Address(channel=_get(found, "channel", str), chat_id=_get(found, "chatId", str))
    check_address(address)
    return address


def check_address(address: Address) -> None:
    """Raises ``JobError``. Whether there is such a channel is not known here."""
    for what, text in (("channel", address.channel), ("chatId", address.chat_id)):
        if not text or len(text) > MAX_CHAT or not text.isprintable():
            raise JobError(f"deliverTo: {what} cannot be '{shown_line(text[:MAX_ID])}': write the platform's own id.")


def _get(entry: Mapping[str, Any], name: str, kind: type[T], otherwise: T | None = None) -> T:
    value = entry.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        what = {str: "text", bool: "true or false", int: "a whole number", dict: "an object"}[kind]
        raise JobError(f"{name} is missing." if value is None else f"{name} has to be {what}.")
    return value


def _one_of(text: str, kinds: Callable[[str], JobKind]) -> JobKind:
    try:
        return kinds(text)
    except ValueError:
        raise JobError(f"kind cannot be '{shown_line(text[:MAX_ID])}': it is job or heartbeat.") from None


def _moment(entry: Mapping[str, Any], name: str) -> datetime | None:
    text = _get(entry, name, str, "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(text)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise JobError(
            f"{name} cannot be '{shown_line(text[:MAX_ID])}': write a moment with an offset, or take it out."
        ) from None


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
