"""The timeline on disk: whole lines, private, without secrets, readable past damage."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.approvals.contract import Answer, Outcome
from bubbles.controller.policy.contract import Command, Decision, Effect, Layer, Match, Policy, Stage, Verdict
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline.events import Ending, Subject, kept
from bubbles.controller.timeline.reading import Entry, TimelineReader, Wanted
from bubbles.controller.timeline.writing import Timeline
from bubbles.errors import BubblesError

ORIGIN = Origin(session_key="work", address=Address(channel="cli", chat_id="direct"), sender="me")
RULE = Match(
    effect=Effect.ALLOW, prefix=("git", "push"), layer=Layer.ASSISTANT, file="/r/a.rules", line=3, justification="Mine."
)
OVERRIDDEN = Match(
    effect=Effect.FORBIDDEN, prefix=("git",), layer=Layer.GLOBAL, file="/g/b.rules", line=1, overridden=True
)
ALLOWED = Decision(
    verdict=Verdict.ALLOW,
    stage=Stage.RULES,
    policy=Policy.RULES_ALLOW,
    reason="A rule allows it.",
    segment="git push",
    matches=(OVERRIDDEN, RULE),
)
ASKED = Decision(verdict=Verdict.ASK, stage=Stage.DEFAULT, policy=Policy.NO_RULE, reason="No rule.", segment="git push")
DENIED = replace(ASKED, verdict=Verdict.DENY, stage=Stage.BLACKLIST, policy=Policy.HIGH_RISK)
YES = Answer(outcome=Outcome.APPROVED, by="me", told="yes")


@dataclass(slots=True, kw_only=True)
class Clock:
    at: datetime = datetime(2026, 11, 30, 23, 59, 59, 123456, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


@dataclass(slots=True, kw_only=True)
class Record:
    """A timeline in a directory of its own, and what is in it."""

    data: Path
    clock: Clock = field(default_factory=Clock)
    secrets: tuple[str, ...] = ()
    owner: str = "me"

    @property
    def timeline(self) -> Timeline:
        return Timeline(self.data, Redactor(self.secrets), owner=self.owner, now=self.clock)

    @property
    def directory(self) -> Path:
        return self.data / "timeline"

    def read(self, **wanted: object) -> tuple[list[Entry], int]:
        """The entries, and how many lines are damaged. In a thread, as reading is no part of an event loop."""
        reader = TimelineReader(self.directory)
        with ThreadPoolExecutor(1) as threads:
            entries = threads.submit(lambda: list(reader.entries(Wanted(**wanted)))).result()  # type: ignore[arg-type]
        return entries, reader.damaged

    def entries(self, **wanted: object) -> list[Entry]:
        return self.read(**wanted)[0]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(data=tmp_path / "data")


def subject(decision: Decision = ALLOWED, script: str = "git push") -> Subject:
    return Subject(
        origin=ORIGIN, command=Command.of_script(script), cwd="/work/project", backend="local", decision=decision
    )


@pytest.mark.req("AUD-01")
async def test_allowed_command_is_recorded_with_its_policy_rule_and_origin(record: Record) -> None:
    call = subject()
    await record.timeline.decided(call)
    assert [json.loads(line) for line in (record.directory / "2026-11.jsonl").read_text().splitlines()] == [
        {
            "time": "2026-11-30T23:59:59.123Z",
            "event": "approval_auto_resolved",
            "call": call.call,
            "session": "work",
            "trigger": "user",
            "channel": "cli",
            "chat": "direct",
            "sender": "me",
            "command": "git push",
            "cwd": "/work/project",
            "backend": "local",
            "verdict": "allow",
            "stage": "rules",
            "policy": "rules_allow",
            "reason": "A rule allows it.",
            "segment": "git push",
            "matched_rule": {
                "prefix": ["git", "push"],
                "file": "/r/a.rules",
                "line": 3,
                "effect": "allow",
                "justification": "Mine.",
            },
            "rule_source": "assistant",
            "other_rules": [
                {
                    "prefix": ["git"],
                    "file": "/g/b.rules",
                    "line": 1,
                    "effect": "forbidden",
                    "justification": "",
                    "source": "global",
                    "overridden": True,
                }
            ],
        }
    ]


@pytest.mark.req("AUD-01")
async def test_each_way_to_a_verdict_has_its_event(record: Record) -> None:
    timeline = record.timeline
    await timeline.decided(subject(DENIED))
    call = subject(ASKED)
    await timeline.requested(call, "k7m3", 300.0)
    await timeline.resolved(call, "k7m3", YES)
    await timeline.finished(call, Ending(outcome="exited", exit_code=3, duration_s=1.23456))
    entries = [entry.fields for entry in record.entries()]
    assert [fields["event"] for fields in entries] == [
        "approval_auto_declined",
        "approval_requested",
        "approval_resolved",
        "command_finished",
    ]
    assert [fields["policy"] for fields in entries] == ["high_risk", "no_rule", "no_rule", "no_rule"]
    assert entries[0]["matched_rule"] is None
    assert entries[0]["rule_source"] is None
    assert (entries[2]["approval"], entries[2]["outcome"], entries[2]["by"]) == ("k7m3", "approved", "me")
    assert (entries[3]["outcome"], entries[3]["exit_code"], entries[3]["duration_s"]) == ("exited", 3, 1.235)
    assert len({fields["call"] for fields in entries[1:]}) == 1


async def test_verdict_that_needs_a_person_is_not_recorded_as_automatic(record: Record) -> None:
    with pytest.raises(ValueError, match="a person decides"):
        await record.timeline.decided(subject(ASKED))


@pytest.mark.req("AUD-01")
async def test_each_month_has_its_file_and_reading_goes_across_them(record: Record) -> None:
    timeline = record.timeline
    await timeline.decided(subject(script="first"))
    record.clock.at += timedelta(seconds=2)
    await timeline.decided(subject(script="second"))
    assert sorted(path.name for path in record.directory.iterdir()) == ["2026-11.jsonl", "2026-12.jsonl"]
    assert [entry.fields["command"] for entry in record.entries()] == ["first", "second"]
    since = datetime(2026, 12, 1, tzinfo=UTC)
    assert [entry.fields["command"] for entry in record.entries(since=since)] == ["second"]


@pytest.mark.req("AUD-02")
async def test_session_and_policy_filter(record: Record) -> None:
    await record.timeline.decided(subject())
    await record.timeline.decided(replace(subject(DENIED), origin=replace(ORIGIN, session_key="home")))
    assert [entry.fields["session"] for entry in record.entries(session="home")] == ["home"]
    assert [entry.fields["session"] for entry in record.entries(policy="rules_allow")] == ["work"]
    assert record.entries(session="home", policy="rules_allow") == []


@pytest.mark.req("SEC-03")
async def test_only_the_owner_can_read_it(record: Record) -> None:
    await record.timeline.decided(subject())
    file = record.directory / "2026-11.jsonl"
    assert record.directory.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    await record.timeline.decided(subject())
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("SEC-03")
async def test_secrets_are_kept_nowhere(record: Record) -> None:
    record.secrets = ("tulips-at-noon",)
    told = replace(
        ALLOWED,
        segment="x tulips-at-noon",
        reason="tulips-at-noon",
        matches=(replace(RULE, prefix=("x", "tulips-at-noon"), justification="tulips-at-noon"),),
    )
    call = replace(subject(told, "x tulips-at-'noon'; TOKEN=abcdefgh y"), cwd="/work/tulips-at-noon")
    await record.timeline.decided(call)
    await record.timeline.finished(call, Ending(outcome="error", error="no tulips-at-noon"))
    text = (record.directory / "2026-11.jsonl").read_text()
    assert "tulips" not in text
    assert "abcdefgh" not in text
    assert text.count("[redacted]") >= 8


def test_long_command_is_kept_by_its_ends() -> None:
    text = kept("a" * 3000 + "b" * 3000, Redactor().redact)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "1904 bytes left out" in text


@pytest.mark.req("SEC-03")
def test_secret_at_the_edge_of_what_is_kept_is_not_kept_by_half() -> None:
    secret = "tulips-at-noon"
    redact = Redactor((secret,)).redact
    for before in range(2040, 2056):
        assert "tul" not in kept("a" * before + secret + "b" * 9000, redact)
    for before in range((256 << 10) - 16, (256 << 10) + 4, 7):
        assert "tul" not in kept("a " * (before // 2) + secret + " b" * 9000, redact)
    assert kept("a" * (300 << 10), redact) == " [… 307200 characters left out …]"


async def test_hostile_text_is_stored_as_ascii_on_one_line(record: Record) -> None:
    script = "ls \x1b[2K\u202e\u2028\n\udcff\x00 同意"
    await record.timeline.decided(subject(script=script))
    data = (record.directory / "2026-11.jsonl").read_bytes()
    assert data.count(b"\n") == 1
    assert data[:-1].decode("ascii").isprintable()
    assert record.entries()[0].fields["command"] == script


@pytest.mark.req("AUD-01")
async def test_torn_tail_of_a_crash_costs_that_line_alone(record: Record) -> None:
    timeline = record.timeline
    await timeline.decided(subject(script="first"))
    file = record.directory / "2026-11.jsonl"
    with file.open("ab") as stream:
        stream.write(b'{"time":"2026-11-30T2')
    await timeline.decided(subject(script="second"))
    entries, damaged = record.read()
    assert [entry.fields["command"] for entry in entries] == ["first", "second"]
    assert damaged == 1


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"time":"2026-11-30T00:00:00Z"}',
        b'{"time":"2026-11-30T00:00:00","event":"x"}',
        b'{"time":"0001-01-01T00:00:00+14:00","event":"x"}',
        b'{"time":17,"event":"x"}',
        b'{"time":"2026-11-30T00:00:00Z","event":7}',
        b"[" * 100_000,
        b"",
        b'{"x":"' + b"a" * (3 << 20) + b'"}',
    ],
    ids=lambda line: f"{line[:24]!r}",
)
def test_damaged_line_is_counted_and_left_out(record: Record, line: bytes) -> None:
    record.directory.mkdir(parents=True)
    good = b'{"time":"2026-11-30T00:00:00Z","event":"x"}\n'
    (record.directory / "2026-11.jsonl").write_bytes(good + line + b"\n" + good)
    reader = TimelineReader(record.directory)
    assert len(list(reader.entries())) == 2
    assert reader.damaged == 1


def test_files_that_are_not_ours_are_not_read(record: Record) -> None:
    assert record.entries() == []
    record.directory.mkdir(parents=True)
    (record.directory / "notes.txt").write_text("x\n")
    (record.directory / "2026-10.jsonl").mkdir()
    os.mkfifo(record.directory / "2026-09.jsonl")
    assert record.entries() == []


@pytest.mark.req("AUD-01", "APPR-01")
@pytest.mark.parametrize("fault", ["directory is a file", "file is a link", "file is a fifo", "no space"])
async def test_what_cannot_be_recorded_is_an_error_and_the_end_of_a_command_is_none(record: Record, fault: str) -> None:
    record.data.mkdir()
    file = record.directory / "2026-11.jsonl"
    if fault == "directory is a file":
        record.directory.write_text("")
    else:
        record.directory.mkdir()
    if fault == "file is a link":
        file.symlink_to("/dev/null")
    if fault == "file is a fifo":
        os.mkfifo(file)
    if fault == "no space":
        if not os.access("/dev/full", os.W_OK):
            pytest.skip("there is no /dev/full")
        file.symlink_to("/dev/full")
    with pytest.raises(BubblesError, match="nothing runs that is not on record"):
        await record.timeline.requested(subject(ASKED), "k7m3", 300.0)
    await record.timeline.finished(subject(), Ending(outcome="exited", exit_code=0))


WRITER = """
import asyncio, sys
from pathlib import Path
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline.writing import Timeline
from tests.unit.controller.test_timeline import subject
timeline = Timeline(Path(sys.argv[1]), Redactor(), owner="x")
async def write():
    for number in range(40):
        await timeline.decided(subject(script=f"{sys.argv[2]} {number} " + "x" * 3900))
asyncio.run(write())
"""


@pytest.mark.req("AUD-01")
def test_several_processes_append_without_a_torn_line(record: Record) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(record.data), name], cwd=Path(__file__).parents[3])
        for name in ("a", "b", "c")
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    reader = TimelineReader(record.directory)
    commands = [str(entry.fields["command"]).split()[:2] for entry in reader.entries()]
    assert reader.damaged == 0
    for name in ("a", "b", "c"):
        assert [int(number) for who, number in commands if who == name] == list(range(40))


@pytest.mark.req("APPR-04")
async def test_card_of_a_dead_owner_is_resolved_as_lost_at_the_next_start_and_once(record: Record) -> None:
    timeline = record.timeline
    dangling, answered = subject(ASKED), subject(ASKED)
    await timeline.requested(answered, "aaaa", 300.0)
    await timeline.resolved(answered, "aaaa", YES)
    await timeline.requested(dangling, "bbbb", 300.0)
    record.owner = "alive"
    await record.timeline.requested(subject(ASKED), "cccc", 300.0)
    record.clock.at += timedelta(days=1)
    assert await record.timeline.close_lost(lambda owner: owner == "alive") == 1
    last = record.entries()[-1].fields
    assert (last["event"], last["outcome"], last["approval"], last["call"]) == (
        "approval_resolved",
        "lost",
        "bbbb",
        dangling.call,
    )
    assert await record.timeline.close_lost(lambda owner: owner == "alive") == 0


async def test_turn_of_a_job_is_recorded_as_what_it_is(record: Record) -> None:
    await record.timeline.decided(replace(subject(), origin=replace(ORIGIN, trigger=Trigger.CRON)))
    assert record.entries()[0].fields["trigger"] == "cron"


@pytest.mark.req("AUD-02")
@pytest.mark.blocking  # the reader is no part of the event loop
async def test_following_gives_what_comes_across_the_end_of_a_month(record: Record) -> None:
    timeline = record.timeline
    loop = asyncio.get_running_loop()
    scripts = iter(["second", "third"])

    def wait() -> None:
        record.clock.at += timedelta(minutes=1)
        asyncio.run_coroutine_threadsafe(timeline.decided(subject(script=next(scripts))), loop).result(5)

    def take() -> list[object]:
        followed: Iterator[Entry] = TimelineReader(record.directory).follow(wait=wait)
        return [next(followed).fields["command"] for _ in range(3)]

    await timeline.decided(subject(script="first"))
    assert await asyncio.to_thread(take) == ["first", "second", "third"]


def test_unfinished_line_is_given_once_it_is_whole(record: Record) -> None:
    record.directory.mkdir(parents=True)
    file = record.directory / "2026-11.jsonl"
    file.write_bytes(b'{"time":"2026-11-30T00:00:00Z",')
    reader = TimelineReader(record.directory)
    assert list(reader.entries()) == []
    with file.open("ab") as stream:
        stream.write(b'"event":"x"}\n')
    assert [entry.fields["event"] for entry in reader.entries()] == ["x"]
    assert list(reader.entries()) == []
    assert reader.damaged == 0
