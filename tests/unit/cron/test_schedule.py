"""When a job is due: what is taken, what is refused and how, and what the next moment is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbles.cron import line
from bubbles.cron.contract import JobError, Schedule, ScheduleKind
from bubbles.cron.schedule import next_run, parse
from bubbles.cron.spans import in_words

NOW = datetime(2026, 5, 1, 7, 0, 12, tzinfo=UTC)


def at(text: str, zone: str | None = "UTC") -> Schedule:
    return Schedule(kind=ScheduleKind.AT, text=text, zone=zone)


def every(text: str, zone: str | None = None) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, text=text, zone=zone)


def cron(text: str, zone: str | None = "UTC") -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, text=text, zone=zone)


def due(schedule: Schedule, after: str, anchor: datetime = NOW) -> str:
    moment = next_run(schedule, datetime.fromisoformat(after), anchor)
    assert moment is not None
    assert moment.tzinfo is UTC
    return moment.isoformat()


def refused(schedule: Schedule) -> str:
    with pytest.raises(JobError) as caught:
        parse(schedule, NOW)
    text = str(caught.value)
    assert text.endswith(".")
    assert text.isprintable()
    return text


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(
    ("schedule", "moment"),
    [
        (at("2026-05-02T09:00"), "2026-05-02T09:00:00+00:00"),
        (at("2026-05-02 09:00:30"), "2026-05-02T09:00:30+00:00"),
        (at("2026-05-02T09:00", "Europe/Berlin"), "2026-05-02T07:00:00+00:00"),
        (at("2026-05-02T09:00", "Asia/Kathmandu"), "2026-05-02T03:15:00+00:00"),
        (at("2026-05-02T09:00+05:45", None), "2026-05-02T03:15:00+00:00"),
        (at("2026-05-02t09:00:00.25z", None), "2026-05-02T09:00:00.250000+00:00"),
        (at("2026-05-02T09:00:00.123456789-03:30", None), "2026-05-02T12:30:00.123456+00:00"),
        (at("2026-05-02T09:00+02:00", "Europe/Berlin"), "2026-05-02T07:00:00+00:00"),
    ],
)
def test_a_moment_is_read_with_its_offset_or_in_the_zone(schedule: Schedule, moment: str) -> None:
    parse(schedule, NOW)
    assert due(schedule, "2026-05-01T00:00Z") == moment
    assert next_run(schedule, datetime.fromisoformat(moment), NOW) is None


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (at("2026-05-01T07:00"), "at cannot be '2026-05-01T07:00': that is past, it is 2026-05-01T07:00:12+00:00 now"),
        (at("2026-05-01T09:00", "Europe/Berlin"), "it is 2026-05-01T09:00:12+02:00 now; name a later moment"),
        (at("2026-05-02"), "write a moment such as 2026-05-01T09:00"),
        (at("tomorrow"), "write a moment"),
        (at("2026-02-30T09:00"), "no such day"),
        (at("2026-05-02T24:00"), "no such day or time"),
        (at("2026-05-02T09:60"), "no such day or time"),
        (at("2026-05-02T09:00:60"), "no such day or time"),
        (at("2026-05-02T09:00+24:00", None), "no such day or time"),
        (at("2026-05-02T09:00+02:99", None), "no such day or time"),
        (at("0001-01-01T00:00+14:00", None), "no such day or time"),
        (at("9999-12-31T23:59-14:00", None), "no such day or time"),
        (at("2126-06-01T09:00"), "100 years"),
        (at("2026-05-02T09:00+02:00", "Asia/Tokyo"), "not that of zone Asia/Tokyo"),
        (at("\u0662\u0660\u0662\u0666-05-02T09:00"), "write a moment"),
        (at("2" * 300), "longer than 200"),
        (every("90"), "every cannot be '90': write a number with its unit, one of s, m, h and d behind it"),
        (every("1h30m"), "such as 90s, 30m, 2h or 1d"),
        (every("1.5h"), "write a number"),
        (every("30 m"), "write a number"),
        (every("30M"), "write a number"),
        (every("-5m"), "write a number"),
        (every("\u0663m"), "write a number"),
        (every("9s"), "10s at least and 366d at most"),
        (every("367d"), "10s at least and 366d at most"),
        (every("999999999d"), "10s at least and 366d at most"),
        (every("30m", "Europe/Berlin"), "zone has no meaning with every"),
        (cron("0 9 * *"), "write five fields (minute, hour, day of the month, month, day of the week)"),
        (cron("0 0 9 * * *"), "write five fields"),
        (cron("@daily"), "write five fields"),
        (cron(""), "write five fields"),
        (cron("0 9 * * \u0661"), "write five fields"),
        (cron("60 9 * * *"), "its minute is '60'; it goes from 0 to 59"),
        (cron("0 24 * * *"), "its hour is '24'"),
        (cron("0 9 0 * *"), "its day of the month is '0'"),
        (cron("0 9 * 13 *"), "its month is '13'"),
        (cron("0 9 * * 8"), "its day of the week is '8'"),
        (cron("0 9 * * monday"), "day of the week is 'monday'"),
        (cron("0 9 * mon *"), "its month is 'mon'; write numbers of 1 to 12, or jan to dec"),
        (cron("h 9 * * *"), "its minute is 'h'"),
        (cron("r(0-30) 9 * * *"), "its minute is"),
        (cron("0 9 ? * *"), "its day of the month is '?'"),
        (cron("0 9 l * *"), "its day of the month is 'l'"),
        (cron("0 9 15w * *"), "its day of the month is '15w'"),
        (cron("0 9 * * 5#2"), "its day of the week is '5#2'"),
        (cron("0 9 * * l5"), "its day of the week is 'l5'"),
        (cron("5/15 * * * *"), "a step stands behind * or a range, such as 5-59/15"),
        (cron("*/0 * * * *"), "a step is 1 to 59"),
        (cron("*/90 * * * *"), "a step is 1 to 59, and begins anew with each hour"),
        (cron("0 */24 * * *"), "a step is 1 to 23, and begins anew with each day"),
        (cron("5-5 * * * *"), "write one number alone"),
        (cron("0 9 * * 7-0"), "write one number alone"),
        (cron("50-10/5 * * * *"), "does not go past 59"),
        (cron("*,5 * * * *"), "leave the rest out"),
        (cron("1,, * * * *"), "its minute is '1,,'"),
        (cron("0 0 30 2 *"), "such a day never comes"),
        (cron("0 0 31 4,6,9,11 *"), "such a day never comes"),
        (cron("0 9 * * *", "Mars/Olympus"), "zone cannot be 'Mars/Olympus': write a name of the IANA data base"),
        (cron("0 9 * * *", "Berlin"), "such as Europe/Berlin."),
        (cron("0 9 * * *", "europe/berlin"), "such as Europe/Berlin."),
        (cron("0 9 * * *", "Europe/Berlim"), "such as Europe/Berlin"),
        (cron("0 9 * * *", "new york"), "such as America/New_York."),
        (cron("0 9 * * *", "Europe"), "zone cannot be 'Europe'"),
        (cron("0 9 * * *", "../../etc/passwd"), "zone cannot be"),
        (cron("0 9 * * *", "/etc/localtime"), "zone cannot be"),
        (cron("0 9 * * *", "right/Europe/Berlin"), "zone cannot be"),
        (cron("0 9 * * *", "localtime"), "zone cannot be"),
        (cron("0 9 * * *", "tzdata.zi"), "zone cannot be"),
        (cron("0 9 * * *", "\x1b[31m\n"), "zone cannot be"),
        (cron("0 9 * * *", "a\x00b"), "zone cannot be"),
        (cron("0 9 * * *", ""), "zone cannot be ''"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field_and_the_mend(schedule: Schedule, said: str) -> None:
    began = time.perf_counter()
    assert said in refused(schedule)
    assert time.perf_counter() - began < 1.0


@pytest.mark.req("CRON-04")
def test_every_counts_from_its_anchor_and_never_drifts() -> None:
    anchor = datetime(2026, 5, 1, 7, 0, 12, tzinfo=UTC)
    assert due(every("30m"), "2026-05-01T07:00:12Z", anchor) == "2026-05-01T07:30:12+00:00"
    assert due(every("30m"), "2026-05-01T07:29:59Z", anchor) == "2026-05-01T07:30:12+00:00"
    assert due(every("30m"), "2027-01-01T00:00:00Z", anchor) == "2027-01-01T00:00:12+00:00"
    assert due(every("90s"), "2026-05-01T09:13:37+02:00", anchor) == "2026-05-01T07:13:42+00:00"


def test_a_clock_before_the_anchor_does_not_stop_every() -> None:
    assert due(every("1h"), "2020-01-01T00:30:00Z") == "2020-01-01T01:00:12+00:00"


@given(st.integers(10, 366 * 86_400), st.integers(-(10**9), 10**9), st.integers(0, 999_999))
@settings(max_examples=100, deadline=None)
def test_every_is_never_further_apart_than_its_span(seconds: int, away: int, micros: int) -> None:
    after = NOW + timedelta(seconds=away, microseconds=micros)
    first = next_run(every(f"{seconds}s"), after, NOW)
    assert first is not None
    assert after < first <= after + timedelta(seconds=seconds)
    assert (first - NOW) % timedelta(seconds=seconds) == timedelta(0)


@pytest.mark.req("CRON-01")
@pytest.mark.parametrize(
    ("text", "after", "moment"),
    [
        ("0 9 * * mon-fri", "2026-05-01T09:00Z", "2026-05-04T09:00:00+00:00"),
        ("0 9 * * MON,Wed", "2026-05-04T09:00Z", "2026-05-06T09:00:00+00:00"),
        ("0 9 * * fri-mon", "2026-05-04T09:00Z", "2026-05-08T09:00:00+00:00"),
        ("0 9 * * 7", "2026-05-01T09:00Z", "2026-05-03T09:00:00+00:00"),
        ("0 9 * * 0-7", "2026-05-01T09:00Z", "2026-05-02T09:00:00+00:00"),
        ("0 9 1 jan *", "2026-05-01T09:00Z", "2027-01-01T09:00:00+00:00"),
        ("0 9 1 nov-feb *", "2026-05-01T09:00Z", "2026-11-01T09:00:00+00:00"),
        ("0 9 31 * *", "2026-05-31T09:00Z", "2026-07-31T09:00:00+00:00"),
        ("0 22-2 * * *", "2026-05-01T02:00Z", "2026-05-01T22:00:00+00:00"),
        ("10-50/20 * * * *", "2026-05-01T02:30Z", "2026-05-01T02:50:00+00:00"),
        ("*/7 * * * *", "2026-05-01T02:56Z", "2026-05-01T03:00:00+00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00Z", "2104-02-29T00:00:00+00:00"),
        ("  0\t9 * *  *", "2026-05-01T09:00Z", "2026-05-02T09:00:00+00:00"),
        # Both days named: either will do. One of them by a star: both must fit. Source: crontab(5).
        ("0 9 13 * fri", "2026-05-01T09:00Z", "2026-05-08T09:00:00+00:00"),
        ("0 9 1-31 * fri", "2026-05-01T09:00Z", "2026-05-02T09:00:00+00:00"),
        ("0 9 */2 * fri", "2026-05-01T09:00Z", "2026-05-15T09:00:00+00:00"),
        ("0 9 31 2 fri", "2026-05-01T09:00Z", "2027-02-05T09:00:00+00:00"),
    ],
)
def test_a_line_of_cron_means_what_cron_means_by_it(text: str, after: str, moment: str) -> None:
    parse(cron(text), NOW)
    assert due(cron(text), after) == moment


@pytest.mark.req("CRON-01")
def test_the_zone_of_a_job_counts_and_not_that_of_the_machine() -> None:  # B064
    vancouver = cron("30 8 * * *", "America/Vancouver")
    assert due(vancouver, "2026-01-10T12:00Z") == "2026-01-10T16:30:00+00:00"
    assert due(vancouver, "2026-07-10T16:00Z") == "2026-07-11T15:30:00+00:00"
    assert due(cron("0 6 * * *", "Asia/Kathmandu"), "2026-01-10T00:00Z") == "2026-01-10T00:15:00+00:00"


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.req("CRON-01")
def test_without_a_zone_the_machines_own_counts(in_berlin: None) -> None:
    for text in ("0 9 * * *", "30 2 * * *", "30 * * * *", "*/20 1-3 * * *"):
        for day in ("2026-01-10", "2026-03-28", "2026-10-24"):
            after = datetime.fromisoformat(f"{day}T12:00Z")
            for _ in range(60):
                moment = next_run(cron(text, "Europe/Berlin"), after, NOW)
                assert next_run(cron(text, None), after, NOW) == moment
                assert moment is not None
                after = moment
    assert due(at("2026-03-29T02:30", None), "2026-01-01T00:00Z") == "2026-03-29T01:00:00+00:00"
    assert due(at("2026-10-25T02:30", None), "2026-01-01T00:00Z") == "2026-10-25T00:30:00+00:00"


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).filter(lambda two: two[0] < two[1]).map(lambda two: f"{two[0]}-{two[1]}")
    steps = st.tuples(st.one_of(ranges, st.just("*")), st.integers(1, high - low)).map(lambda two: f"{two[0]}/{two[1]}")
    return st.lists(st.one_of(number.map(str), ranges, steps), min_size=1, max_size=3).map(",".join) | st.just("*")


LINES = st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 31), numbers(1, 12), numbers(0, 6)).map(" ".join)


@given(LINES, st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))  # noqa: DTZ001 - local times
@settings(max_examples=100, deadline=None)
def test_without_clock_changes_croniter_reckons_the_same(text: str, after: datetime) -> None:
    try:
        parse(cron(text), NOW)
    except JobError as error:
        assert "never comes" in str(error)  # noqa: PT017 - what may be refused of these
        return
    expanded, _ = croniter.expand(text)
    # Days that are all named one by one are a "*" to croniter, but not to cron, which looks at how a field begins.
    days = list(zip(text.split(), expanded, strict=True))[2::2]
    assume(all(field.startswith("*") or values != ["*"] for field, values in days))
    theirs = croniter(text, after, implement_cron_bug=True)
    ours = after.replace(tzinfo=UTC)
    for _ in range(5):
        moment = next_run(cron(text), ours, NOW)
        assert moment is not None
        assert moment.replace(tzinfo=None) == theirs.get_next(datetime)
        assert moment > ours
        ours = moment


def test_reckoning_takes_no_time() -> None:
    lines = ("* * * * *", "0 9 * * 1-5", "*/7 3,5 */3 * 2", "0 0 29 2 *", "59 23 31 12 *")
    schedules = [cron(text, "Europe/Berlin") for text in lines]
    for schedule in schedules:
        parse(schedule)
    began = time.perf_counter()
    for _ in range(100):
        for schedule in schedules:
            next_run(schedule, NOW, NOW)
    assert (time.perf_counter() - began) / 500 < 0.001
    assert line.read.cache_info().hits > 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (7_199, "1 hour"),
        (86_400 * 3, "3 days"),
    ],
)
def test_spans_are_said_in_words(seconds: int, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words
