"""A line of five fields, as crontab(5) has it, and the local times that it names. Knows no zone. Pure.

croniter reads more than that, and not always as cron does: ``H``, ``L``, ``W``, ``#``, ``?``, seconds, years,
``1-1`` as all, ``7/2`` from 0 on. So what it may see is checked first, and the times are found here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import JobError

MAX_TEXT = 200
YEARS = 50
"""Within which it must come. 29 February is on one day of the week every 28 or 40 years."""
_LAST_YEAR = 9_998
_DAY = timedelta(days=1)
_ITEM = re.compile(r"(\*|([a-z0-9]{1,3})(?:-([a-z0-9]{1,3}))?)(?:/([0-9]{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """The first of them is ``low``."""

    @property
    def size(self) -> int:
        return 7 if self.high == _SUNDAY_TOO else self.high - self.low + 1


_SUNDAY_TOO = 7
"""In the day of the week, where Sunday is 0 and 7."""
_FIELDS = (
    _Field(what="minute", low=0, high=59),
    _Field(what="hour", low=0, high=23),
    _Field(what="day of the month", low=1, high=31),
    _Field(what="month", low=1, high=12, names=tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())),
    _Field(what="day of the week", low=0, high=_SUNDAY_TOO, names=tuple("sun mon tue wed thu fri sat".split())),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    by_star: tuple[bool, ...]
    """Of each field, whether it begins with ``*``."""

    @property
    def any_hour(self) -> bool:
        return self.by_star[1]

    def times(self, start: datetime) -> Iterator[datetime]:
        """The local times that it names, in order, from ``start`` on. Ends after ``YEARS``."""
        today, day = start.date(), start.date()
        last = min(day.year + YEARS, _LAST_YEAR)
        while day.year <= last:
            if day.month not in self.months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
                continue
            if self._on(day):
                least = (start.hour, start.minute) if day == today else (0, 0)
                for hour in self.hours:
                    if hour < least[0]:
                        continue
                    for minute in self.minutes:
                        if (hour, minute) >= least:
                            yield datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - a local time
            day += _DAY

    def _on(self, day: date) -> bool:
        """Of two days that are both named, either will do; of one that is named by ``*/2``, as by ``*``, both must fit.
        Source: crontab(5), and what cron does with a field that begins with ``*``.
        """
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month and by_week if self.by_star[2] or self.by_star[4] else by_month or by_week


@functools.lru_cache(maxsize=2_048)
def read(text: str) -> Line:
    """Raises ``JobError``."""
    shown = f"cron cannot be '{shown_line(text[:MAX_TEXT])}'"
    if len(text) > MAX_TEXT:
        raise JobError(f"{shown}: it is longer than {MAX_TEXT} characters.")
    parts = text.lower().split()
    if len(parts) != len(_FIELDS) or not text.isascii():
        what = ", ".join(field.what for field in _FIELDS)
        raise JobError(f"{shown}: write five fields ({what}), such as 0 9 * * 1-5.")
    for field, part in zip(_FIELDS, parts, strict=True):
        try:
            _check(field, part)
        except ValueError as error:
            raise JobError(f"{shown}: its {field.what} is '{shown_line(part[:40])}'; {error}.") from None
    line = _expanded(parts)
    if next(line.times(datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001 - a local time
        raise JobError(f"{shown}: such a day never comes; name one that does.")
    return line


def _check(field: _Field, part: str) -> None:
    """Raises ValueError for what crontab(5) does not know, or croniter takes otherwise."""
    items = part.split(",")
    for item in items:
        found = _ITEM.fullmatch(item)
        if found is None:
            raise ValueError("write *, */5, a number, a range such as 1-5, or several of them with commas")
        low, high, step = found[2], found[3], found[4]
        if item == "*" and len(items) > 1:
            raise ValueError("* is all there is: leave the rest out")
        if low is not None and high is None and step is not None:
            raise ValueError(f"a step stands behind * or a range, such as {low}-{field.high}/{step}")
        if step is not None and not 1 <= int(step) < field.size:
            raise ValueError(f"a step is 1 to {field.size - 1}, and begins anew with each {_around(field)}")
        if low is not None:
            first = _value(field, low)
            if high is not None:
                _check_range(field, first, _value(field, high), stepping=step is not None)


def _around(field: _Field) -> str:
    return {59: "hour", 23: "day", 31: "month", 12: "year"}.get(field.high, "week")


def _check_range(field: _Field, first: int, last: int, *, stepping: bool) -> None:
    same = first == last if field.high != _SUNDAY_TOO else first % 7 == last % 7 and (first, last) != (0, 7)
    if same:
        raise ValueError("a range has two ends: write one number alone")
    if first > last and stepping:
        raise ValueError(f"a range with a step does not go past {field.high}: write two, with a comma")


def _value(field: _Field, word: str) -> int:
    if word in field.names:
        return field.low + field.names.index(word)
    if not word.isdecimal():
        names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise ValueError(f"write numbers of {field.low} to {field.high}{names}")
    value = int(word)
    if not field.low <= value <= field.high:
        raise ValueError(f"it goes from {field.low} to {field.high}")
    return value


def _expanded(parts: list[str]) -> Line:
    from croniter import croniter  # 30 ms, and only lines of cron need it

    lists, _ = croniter.expand(" ".join(parts))
    minutes, hours, days, months, weekdays = (
        tuple(range(field.low, field.low + field.size)) if "*" in values else tuple(sorted(values))
        for field, values in zip(_FIELDS, lists, strict=True)
    )
    return Line(
        minutes=minutes,
        hours=hours,
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekdays),
        by_star=tuple(part.startswith("*") for part in parts),
    )
