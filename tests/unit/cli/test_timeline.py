"""``bubbles timeline`` on a timeline of the past, without a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from bubbles.bus import Address, Origin
from bubbles.cli.timeline import moment, row, timeline
from bubbles.controller.approvals.contract import Answer, Outcome
from bubbles.controller.policy.contract import Command, Decision, Policy, Stage, Verdict
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline.events import Ending, Subject
from bubbles.controller.timeline.writing import Timeline

pytestmark = pytest.mark.req("AUD-02", "CLI-01")

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ORIGIN = Origin(session_key="work", address=Address(channel="cli", chat_id="direct"), sender="me")
LANE = Decision(verdict=Verdict.ALLOW, stage=Stage.LANE, policy=Policy.LOCAL_SELF_VALIDATION, reason="Tests.")
ASKED = Decision(verdict=Verdict.ASK, stage=Stage.DEFAULT, policy=Policy.NO_RULE, reason="No rule.")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BUBBLES_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield tmp_path / "data"
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def filled(data: Path) -> Path:
    """A day with three calls in two sessions."""
    at = NOW

    def now() -> datetime:
        nonlocal at
        at += timedelta(minutes=1)
        return at

    timeline = Timeline(data, Redactor(), owner="me", now=now)

    async def write() -> None:
        tested = subject(LANE, "pytest -q")
        await timeline.decided(tested)
        await timeline.finished(tested, Ending(outcome="exited", exit_code=1, duration_s=2.04))
        pushed = subject(ASKED, "git push\x1b[2K\norigin", session="home")
        await timeline.requested(pushed, "k7m3", 300.0)
        await timeline.resolved(pushed, "k7m3", Answer(outcome=Outcome.TIMED_OUT, told=""))

    asyncio.run(write())
    return data / "timeline" / "2026-11.jsonl"


def subject(decision: Decision, script: str, session: str = "work") -> Subject:
    return Subject(
        origin=replace(ORIGIN, session_key=session),
        command=Command.of_script(script),
        cwd="/work",
        backend="local",
        decision=decision,
    )


@pytest.mark.usefixtures("filled")
def test_table_says_when_where_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert timeline() == 0
    assert [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()] == [
        ["TIME", "SESSION", "WHAT", "POLICY                 COMMAND"],
        ["2026-11-30", "20:01:00", "work", "allowed                     local_self_validation  pytest -q"],
        ["2026-11-30", "20:02:00", "work", "exited 1, 2.0 s             local_self_validation  pytest -q"],
        [
            "2026-11-30",
            "20:03:00",
            "home",
            r"asked [k7m3]                no_rule                git push\x1b[2K\norigin",
        ],
        [
            "2026-11-30",
            "20:04:00",
            "home",
            r"timed out [k7m3]            no_rule                git push\x1b[2K\norigin",
        ],
    ]


@pytest.mark.parametrize("width", [80, 100, 109, 110, 140])
def test_no_line_is_wider_than_the_terminal_and_the_command_keeps_room(width: int) -> None:
    cells = ("2026-11-30 20:01:00", "work", "approved [k7m3] by terminal", "local_self_validation", "pytest " * 40)
    lines = row(cells, width).splitlines()
    assert max(map(len, lines)) < width
    assert "pytest pytest" in lines[-1]
    assert row(cells, None).endswith(("pytest " * 40).rstrip())


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({"session": "home"}, 2),
        ({"policy": "no_rule"}, 2),
        ({"policy": "rules_allow"}, 0),
        ({"since": "2026-11-30T12:02:30Z"}, 2),
        ({"since": "2026-11-30 20:02:30"}, 2),
        ({"since": "2026-11-30"}, 4),
        ({"since": "2026-12-01"}, 0),
        ({"session": "work", "policy": "no_rule"}, 0),
    ],
    ids=str,
)
def test_filters_leave_what_is_asked_for(
    filled: Path, capsys: pytest.CaptureFixture[str], wanted: dict[str, str], shown: int
) -> None:
    assert timeline(as_json=True, **wanted) == 0  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == shown
    assert set(lines) <= set(filled.read_text().splitlines())


def test_nothing_to_show_is_a_sentence(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert timeline() == 0
    assert capsys.readouterr().out == "The timeline is empty: nothing has passed the gate yet.\n"
    assert timeline(as_json=True) == 0
    assert capsys.readouterr().out == ""
    assert not data.exists()


@pytest.mark.usefixtures("filled")
def test_nothing_that_fits_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    timeline(session="nobody")
    assert capsys.readouterr().out == "Nothing in the timeline is like that.\n"


def test_damaged_lines_are_owned_up_to(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with filled.open("a") as stream:
        stream.write("garbage\n")
    assert timeline() == 0
    assert "1 damaged line was left out" in capsys.readouterr().err


def test_line_edited_by_hand_reaches_no_terminal_as_it_is(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled.write_text('{"time":"2026-11-30T12:00:00Z","event":"\u202e","session":7,"duration_s":"x"}\n')
    for as_json in (True, False):
        timeline(as_json=as_json)
        assert "\u202e" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "ago"),
    [("90s", {"seconds": 90}), ("5m", {"minutes": 5}), ("2h", {"hours": 2}), ("3d", {"days": 3}), ("1w", {"weeks": 1})],
)
def test_since_may_be_an_age(text: str, ago: dict[str, int]) -> None:
    assert moment(text, NOW) == NOW - timedelta(**ago)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("text", ["", "yesterday", "2x", "-2h", "2 h", "²h", "999999999w", "2026-13-01", "2026-02-30"])
def test_since_that_is_no_time_is_a_sentence(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time: take 2h"):
        timeline(since=text)


@pytest.mark.usefixtures("data")
def test_policy_that_there_is_not_is_a_sentence() -> None:
    with pytest.raises(typer.BadParameter, match="take one of high_risk"):
        timeline(policy="nonsense")
