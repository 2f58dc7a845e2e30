"""Jobs in words for a person: nothing that is not so, and no control character."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bubbles.bus import Address
from bubbles.cron import shown
from bubbles.cron.contract import Job, JobDraft, JobKind, Schedule, ScheduleKind

pytestmark = pytest.mark.req("CRON-01")

NOW = datetime(2026, 5, 1, 9, 0, tzinfo=UTC)
EVERY = Schedule(kind=ScheduleKind.EVERY, text="30m")
ONCE = Schedule(kind=ScheduleKind.AT, text="2026-05-01T09:00", zone="Europe/Berlin")
DRAFT = JobDraft(name="Bread", message="look", schedule=EVERY)
JOB = Job(id="b2", draft=DRAFT, session_key="work", next_run=NOW + timedelta(minutes=30))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (EVERY, "every 30m"),
        (ONCE, "once at 2026-05-01T09:00 (Europe/Berlin)"),
        (replace(ONCE, zone=None), "once at 2026-05-01T09:00"),
        (Schedule(kind=ScheduleKind.CRON, text="0 9 * * 1-5", zone="UTC"), "cron 0 9 * * 1-5 (UTC)"),
        (Schedule(kind=ScheduleKind.CRON, text="0 9 * * 1-5"), "cron 0 9 * * 1-5 (machine's zone)"),
    ],
)
def test_when_a_job_runs_is_said_with_its_zone(schedule: Schedule, said: str) -> None:
    assert shown.schedule_of(schedule) == said


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=59), "in 59 s"),
        (timedelta(seconds=-60), "1 min ago"),
        (timedelta(minutes=119), "in 1 h"),
        (timedelta(hours=-50), "2 d ago"),
    ],
)
def test_a_moment_is_shown_with_how_far_away_it_is(away: timedelta, said: str) -> None:
    when = NOW + away
    assert shown.moment(when, NOW) == f"{when.astimezone():%Y-%m-%d %H:%M} ({said})"


@pytest.mark.parametrize(
    ("job", "state", "due"),
    [
        (JOB, "on", "next 2026-05-01"),
        (replace(JOB, running=NOW), "runs", "next 2026-05-01"),
        (replace(JOB, running=NOW, next_run=None), "runs", "runs"),
        (replace(JOB, draft=replace(DRAFT, enabled=False)), "off", "off"),
        (replace(JOB, asked=NOW, draft=replace(DRAFT, enabled=False)), "off", "next now, as asked for"),
        (replace(JOB, draft=replace(DRAFT, schedule=ONCE, enabled=False), last_outcome="done"), "over", "over"),
        (replace(JOB, draft=replace(DRAFT, schedule=ONCE, enabled=False)), "off", "off"),
        (replace(JOB, next_run=None), "not reckoned yet", "not reckoned yet"),
    ],
)
def test_a_job_is_on_off_over_or_at_work(job: Job, state: str, due: str) -> None:
    assert shown.state_of(job) == state
    assert shown.due_of(job, NOW).startswith(due)


def test_how_the_last_run_went_is_said_with_when_and_how_often_it_failed() -> None:
    assert shown.last_of(JOB, NOW) == ""
    failed = replace(JOB, last_run=NOW, last_outcome="failed", failures=3)
    assert shown.last_of(failed, NOW) == f"failed 3 times in a row, {shown.moment(NOW, NOW)}"
    assert shown.last_of(replace(failed, failures=1), NOW).startswith("failed, 2026")
    assert shown.last_of(replace(JOB, last_run=NOW, running=NOW), NOW) == "", "it has no outcome yet"


def test_what_others_wrote_shows_no_control_character_and_stays_short() -> None:
    to = Address(channel="telegram", chat_id="7\x1b]0;x\x07" + "9" * 500)
    draft = replace(DRAFT, name="a\x1b[2J\n" + "b" * 500, deliver_to=to)
    row = (
        shown.name_of(replace(JOB, draft=draft))
        + shown.target_of(to)
        + shown.last_of(replace(JOB, last_run=NOW, last_outcome="\x1b" * 200), NOW)
    )
    assert row.isprintable()
    assert len(row) < 500
    assert shown.target_of(None) == "history alone"


def test_a_heartbeat_is_no_job_of_the_list_of_a_session() -> None:
    many = [replace(JOB, id=f"b{number}") for number in range(12)]
    lines = shown.described([replace(JOB, kind=JobKind.HEARTBEAT), *many], NOW)
    assert (len(lines), lines[-1]) == (11, "and 2 more")
    assert lines[0].startswith("b0 Bread: every 30m, next 2026-05-01")
