"""When a job is due: of what was written, and of the moment after which. Pure, but that a zone is read from the disk.

Moments have a zone; those that come out are in UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Protocol

from bubbles.controller.approvals.card import shown_line
from bubbles.cron import line as lines
from bubbles.cron.contract import JobError, Schedule, ScheduleKind
from bubbles.cron.spans import span
from bubbles.cron.zones import first, repeated, zone_of

FAR = timedelta(days=36_525)
"""An ``at`` is not further away: nobody means that, and the calendar ends."""
_SHOWN = 60
_AT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))? ?(Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE
)


class Timing(Protocol):
    """A schedule that makes sense."""

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        """The first moment after ``after``; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Once:
    moment: datetime

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        del anchor
        return self.moment if self.moment > after else None


@dataclass(frozen=True, slots=True)
class Again:
    """Moments lie on a grid through the anchor, in both directions: a clock put back behind it stops nothing."""

    span: timedelta

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        start = anchor.astimezone(UTC)
        return start + ((after - start) // self.span + 1) * self.span


@dataclass(frozen=True, slots=True)
class ByLine:
    line: lines.Line
    zone: tzinfo

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        """A time that a day does not have is the end of the gap, once. A time that a day has twice is its first, and
        its second too if the hour begins with ``*`` (B065).
        """
        del anchor
        local = after.astimezone(self.zone).replace(tzinfo=None, fold=0, second=0, microsecond=0)
        moments = (first(time, self.zone) for time in self.line.times(local))
        due = next((moment for moment in moments if moment > after), None)
        # A second time lies behind ``after`` and before ``due`` only if clocks show the local time of ``after`` twice:
        # its own first time is not behind ``after``, or it would be ``due`` itself.
        overlap = repeated(local, self.zone) if self.line.any_hour else timedelta(0)
        if not overlap:
            return due
        for time in self.line.times(local - overlap):
            if time >= local + overlap:
                break
            again = first(time, self.zone) + repeated(time, self.zone)
            if again > after:
                return again if due is None else min(again, due)
        return due


def parse(schedule: Schedule, now: datetime | None = None) -> Timing:
    """What it says. Raises ``JobError``, with ``now`` for an ``at`` that is over too."""
    if len(schedule.text) > lines.MAX_TEXT:
        raise _error(schedule, f"it is longer than {lines.MAX_TEXT} characters")
    if schedule.kind is ScheduleKind.EVERY:
        if schedule.zone is not None:
            raise JobError("zone has no meaning with every: leave it out.")
        try:
            return Again(span(schedule.text))
        except ValueError as error:
            raise _error(schedule, str(error)) from None
    zone = zone_of(schedule.zone)
    if schedule.kind is ScheduleKind.CRON:
        return ByLine(lines.read(schedule.text), zone)
    moment = _moment(schedule, zone)
    if now is not None:
        _check_ahead(schedule, moment, now.astimezone(zone))
    return Once(moment)


def absolute(schedule: Schedule, now: datetime) -> Schedule:
    """With the moment that ``+20m`` means now; any other as it is. Raises ``JobError``."""
    if schedule.kind is not ScheduleKind.AT or not schedule.text.startswith("+"):
        return schedule
    try:
        moment = now + span(schedule.text[1:])
    except ValueError as error:
        raise _error(schedule, str(error)) from None
    return replace(schedule, text=moment.astimezone(UTC).isoformat(timespec="seconds"), zone=None)


def next_run(schedule: Schedule, after: datetime, anchor: datetime) -> datetime | None:
    """The first moment after ``after`` at which it is due. Raises ``JobError`` if it makes no sense."""
    return parse(schedule).next(after, anchor)


def _moment(schedule: Schedule, zone: tzinfo) -> datetime:
    found = _AT.fullmatch(schedule.text)
    if found is None:
        raise _error(schedule, "write a moment such as 2026-05-01T09:00, in zone or with an offset such as +02:00")
    day, time, seconds, fraction, offset = found.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{time}{seconds or ':00'}.{(fraction or '0')[:6]:0<6}")
        if offset is None:
            return first(local, zone)
        moment = local.replace(tzinfo=_offset(offset)).astimezone(UTC)
        at_zone = moment.astimezone(zone).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        raise _error(schedule, "there is no such day or time; write one that there is") from None
    if schedule.zone is not None and at_zone != local:
        raise _error(schedule, f"its offset is not that of zone {schedule.zone} then; leave one of them out")
    return moment


def _offset(text: str) -> tzinfo:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59:
        raise ValueError(text)
    away = timedelta(hours=hours, minutes=minutes)
    return timezone(-away if text[0] == "-" else away)


def _check_ahead(schedule: Schedule, moment: datetime, now: datetime) -> None:
    if moment <= now:
        raise _error(schedule, f"that is past, it is {now.isoformat(timespec='seconds')} now; name a later moment")
    if moment - now > FAR:
        raise _error(schedule, "that is more than 100 years away; name an earlier moment")


def _error(schedule: Schedule, mend: str) -> JobError:
    return JobError(f"{schedule.kind} cannot be '{shown_line(schedule.text[:_SHOWN])}': {mend}.")
