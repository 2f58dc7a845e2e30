"""Days on which clocks are put forward or back, in real zones, against a reckoning that looks at every minute."""

from __future__ import annotations

import bisect
import functools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.cron.contract import Schedule, ScheduleKind
from bubbles.cron.schedule import next_run

MINUTE = timedelta(minutes=1)
ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)

CHANGES = {
    "Berlin forward": ("Europe/Berlin", date(2026, 3, 29)),
    "Berlin back": ("Europe/Berlin", date(2026, 10, 25)),
    "Vancouver forward": ("America/Vancouver", date(2025, 3, 9)),
    "Vancouver back": ("America/Vancouver", date(2025, 11, 2)),
    "Lord Howe forward, half an hour": ("Australia/Lord_Howe", date(2026, 10, 4)),
    "Lord Howe back, half an hour": ("Australia/Lord_Howe", date(2026, 4, 5)),
    "Casablanca back for Ramadan": ("Africa/Casablanca", date(2026, 2, 15)),
    "Casablanca forward after it": ("Africa/Casablanca", date(2026, 3, 22)),
    "Azores forward at midnight": ("Atlantic/Azores", date(2026, 3, 29)),
    "Azores back over midnight": ("Atlantic/Azores", date(2026, 10, 25)),
    "Santiago forward at midnight": ("America/Santiago", date(2025, 9, 7)),
    "Dublin, whose winter is the exception": ("Europe/Dublin", date(2026, 10, 25)),
    "Apia leaves out a day": ("Pacific/Apia", date(2011, 12, 30)),
    "Caracas by half an hour for good": ("America/Caracas", date(2016, 5, 1)),
    "Kathmandu, where nothing changes": ("Asia/Kathmandu", date(2026, 3, 29)),
}
LINES = (
    "*/3 * * * *",
    "*/15 * * * *",
    "30 * * * *",
    "30 2 * * *",
    "0,15,30,45 2 * * *",
    "0 3 * * *",
    "30 0-4 * * *",
    "45 1 * * *",
    "15 0 * * *",
    "10 23 * * *",
    "20 */2 * * *",
    "59 1-2 * * sun",
    "0 9 * * *",
)


@functools.cache
def shown(zone: str, day: date) -> tuple[tuple[datetime, datetime], ...]:
    """Each minute of three days around ``day``, and what clocks show then."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1)
    moments = (start + MINUTE * number for number in range(3 * 1_440))
    return tuple((moment, moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)) for moment in moments)


@functools.cache
def when_shown(zone: str, day: date) -> dict[datetime, list[datetime]]:
    found: dict[datetime, list[datetime]] = {}
    for moment, local in shown(zone, day):
        found.setdefault(local, []).append(moment)
    return found


def values(part: str, low: int, high: int) -> set[int]:
    if part == "sun":
        return {0}
    found = set()
    for item in part.split(","):
        ends, _, step = item.partition("/")
        first, _, last = ends.partition("-")
        if first == "*":
            first, last = str(low), str(high)
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@functools.cache
def fields(text: str) -> tuple[set[int], set[int], set[int]]:
    minute, hour, _, _, week = text.split()
    return values(minute, 0, 59), values(hour, 0, 23), values(week, 0, 6)


def named(text: str, local: datetime) -> bool:
    minutes, hours, days = fields(text)
    return local.minute in minutes and local.hour in hours and local.isoweekday() % 7 in days


@functools.cache
def reckoned(text: str, zone: str, day: date) -> list[datetime]:
    """By the words of SPEC 7.3, looking at every minute."""
    minutes, by_local = shown(zone, day), when_shown(zone, day)
    again = text.split()[1].startswith("*")
    runs = set()
    local, last = minutes[0][1], minutes[-1][1]
    while local <= last:
        if named(text, local):
            if moments := by_local.get(local):
                runs |= set(moments if again else moments[:1])
            else:
                runs.add(next(moment for moment, then in minutes if then > local))
        local += MINUTE
    return sorted(runs)


def cron(text: str, zone: str) -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, text=text, zone=zone)


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(("zone", "day"), CHANGES.values(), ids=CHANGES)
def test_every_line_runs_as_the_spec_says(zone: str, day: date) -> None:
    offsets = {moment - local.replace(tzinfo=UTC) for moment, local in shown(zone, day)}
    assert len(offsets) == (1 if zone == "Asia/Kathmandu" else 2)
    for text in LINES:
        # Half a day at the ends: a gap there has no other side to be looked at.
        start, end = (shown(zone, day)[place][0] for place in (720, -720))
        expected = [moment for moment in reckoned(text, zone, day) if start < moment <= end]
        found, moment = [], next_run(cron(text, zone), start, ANCHOR)
        while moment is not None and moment <= end:
            found.append(moment)
            moment = next_run(cron(text, zone), moment, ANCHOR)
        assert found == expected, text


@pytest.mark.req("CRON-01")
@given(st.sampled_from(sorted(CHANGES.values())), st.sampled_from(LINES), st.integers(0, 2 * 86_400 - 1))
@settings(max_examples=200, deadline=None)
def test_from_any_instant_the_same_moment_is_next(change: tuple[str, date], text: str, second: int) -> None:
    zone, day = change
    after = shown(zone, day)[720][0] + timedelta(seconds=second, microseconds=second)
    expected = reckoned(text, zone, day)
    moment = next_run(cron(text, zone), after, ANCHOR)
    assert moment is not None
    assert moment > after
    place = bisect.bisect_right(expected, after)
    if place < len(expected) and expected[place] < shown(zone, day)[-720][0]:
        assert moment == expected[place]


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(
    ("text", "zone", "after", "moments"),
    [
        # B065
        (
            "0 9 * * 1-5",
            "Europe/Berlin",
            "2026-10-23T09:00+02:00",
            ["2026-10-26T09:00+01:00", "2026-10-27T09:00+01:00"],
        ),
        # Once after the gap, though four times fall into it.
        (
            "0,15,30,45 2 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
        ),
        # What falls into the gap and what follows it at once are one.
        (
            "30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"],
        ),
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
        ),
        # The first of two.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        # Made between the two: the first is over.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", ["2026-10-26T02:30+01:00"]),
        # Both of them.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T02:00+02:00",
            ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"],
        ),
        (
            "*/20 * * * *",
            "Australia/Lord_Howe",
            "2026-04-05T01:20+11:00",
            ["2026-04-05T01:40+11:00", "2026-04-05T01:40+10:30", "2026-04-05T02:00+10:30"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-04T00:00+10:30",
            ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
        ),
        # A whole day that is not there.
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T09:00-10:00", ["2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"]),
    ],
)
def test_clock_changes_that_are_known(text: str, zone: str, after: str, moments: list[str]) -> None:
    moment = datetime.fromisoformat(after)
    for expected in moments:
        found = next_run(cron(text, zone), moment, ANCHOR)
        assert found == datetime.fromisoformat(expected)
        moment = found


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T03:00+02:00"),
        ("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T02:30+02:00"),
        ("2026-10-04T02:10", "Australia/Lord_Howe", "2026-10-04T02:30+11:00"),
        ("2026-04-05T01:45", "Australia/Lord_Howe", "2026-04-05T01:45+11:00"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-31T00:00+14:00"),
    ],
)
def test_a_single_moment_follows_the_same_rules(text: str, zone: str, moment: str) -> None:
    schedule = Schedule(kind=ScheduleKind.AT, text=text, zone=zone)
    assert next_run(schedule, datetime(2011, 1, 1, tzinfo=UTC), ANCHOR) == datetime.fromisoformat(moment)


@pytest.mark.req("CRON-01")
@given(
    st.sampled_from(sorted({zone for zone, _ in CHANGES.values()})),
    st.sampled_from(
        [
            ("* * * * *", MINUTE),
            ("*/20 * * * *", MINUTE * 20),
            ("0 * * * *", MINUTE * 60),
            ("30 2 * * *", MINUTE * 1_440),
        ]
    ),
    st.datetimes(datetime(2011, 1, 1), datetime(2035, 1, 1)),  # noqa: DTZ001 - in UTC
)
@settings(max_examples=200, deadline=None)
def test_runs_follow_each_other_and_no_period_is_left_out(
    zone: str, line: tuple[str, timedelta], start: datetime
) -> None:
    """But for what the clocks were changed by in between."""
    text, period = line
    after = start.replace(tzinfo=UTC)
    for _ in range(10):
        moment = next_run(cron(text, zone), after, ANCHOR)
        assert moment is not None
        before_offset, offset = (when.astimezone(ZoneInfo(zone)).utcoffset() for when in (after, moment))
        assert before_offset is not None
        assert offset is not None
        assert timedelta(0) < moment - after <= period + max(before_offset - offset, timedelta(0))
        local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        just_before = (moment - MINUTE).astimezone(ZoneInfo(zone)).utcoffset()
        assert named(text, local) or just_before != offset
        after = moment
