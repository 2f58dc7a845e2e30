"""/heartbeat: what a person may write, what is kept of it, and the file that says what to look after."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbles.bus import Address, Origin
from bubbles.cron.contract import JobChange, JobDraft, JobKind, JobsFileError, Schedule, ScheduleKind
from bubbles.cron.session_jobs import SessionJobs
from bubbles.cron.store import JobStore
from bubbles.dispatch.contract import CommandError
from bubbles.dispatch.heartbeat import ONLY_WITH_GATEWAY, TEMPLATE, UNREADABLE, SessionHeartbeats, interval_of
from bubbles.sessions.session import Sessions

pytestmark = pytest.mark.req("HB-01")

NOW = datetime(2026, 5, 1, 9, 0, tzinfo=UTC)
KEY = "telegram.7"
CHAT = Origin(session_key=KEY, address=Address(channel="telegram", chat_id="7"), sender="anna")
TERMINAL = replace(CHAT, address=Address(channel="cli", chat_id=KEY))


@dataclass(slots=True)
class Scene:
    store: JobStore
    heartbeats: SessionHeartbeats
    data_dir: Path

    @property
    def file(self) -> Path:
        return self.data_dir / "sessions" / KEY / "HEARTBEATS.md"


def scene(data_dir: Path, gateway: int | None = 4711) -> Scene:
    store = JobStore(data_dir, lambda: NOW)
    sessions = Sessions(data_dir, skills=data_dir / "no_skills")
    return Scene(store, SessionHeartbeats(store, sessions, lambda: gateway, lambda: NOW), data_dir)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("30m", "30m"),
        ("30", "30m"),
        ("2h", "2h"),
        ("2 H", "2h"),
        ("45min", "45m"),
        ("1", "1m"),
        ("60s", "60s"),
        ("24h", "24h"),
        ("1d", "1d"),
        ("1440", "1440m"),
        ("007", "7m"),
    ],
)
def test_a_span_is_written_as_people_write_it(text: str, kept: str) -> None:
    assert interval_of(text) == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "one minute at least"),
        ("59s", "one minute at least"),
        ("25h", "a day at most"),
        ("1441", "a day at most"),
        ("999999999d", "a day at most"),
        ("-5", "write 30m, 2h, 30 (minutes), or off"),
        ("1.5h", "write 30m"),
        ("on", "write 30m"),
        ("٣", "write 30m"),
        ("30m\nevery day", "write 30m"),
    ],
)
async def test_what_is_no_span_or_out_of_bounds_sets_nothing(tmp_path: Path, text: str, said: str) -> None:
    here = scene(tmp_path)
    with pytest.raises(CommandError, match="/heartbeat") as caught:
        await here.heartbeats.set(CHAT, text)
    assert said in str(caught.value)
    assert await here.store.heartbeat(KEY) is None


async def test_it_is_off_until_a_person_turns_it_on_and_off_again(tmp_path: Path) -> None:
    here = scene(tmp_path)
    assert (await here.heartbeats.show(CHAT)).startswith("The heartbeat is off. /heartbeat 30m turns it on")
    assert await here.heartbeats.interval(KEY) == ""
    said = await here.heartbeats.set(CHAT, "30")
    assert "The heartbeat is on, every 30m, next 2026-05-01 " in said
    assert "(in 30 min)" in said
    assert "comes to this chat" in said
    assert await here.heartbeats.interval(KEY) == "30m"
    assert await here.heartbeats.interval("telegram.8") == ""
    assert "on, every 30m, next " in await here.heartbeats.show(CHAT)
    assert await here.heartbeats.set(CHAT, "OFF") == "The heartbeat is off."
    assert await here.heartbeats.set(CHAT, "off") == "The heartbeat is off, as it was."
    assert await here.heartbeats.interval(KEY) == ""


async def test_underneath_is_a_job_that_no_tool_sees(tmp_path: Path) -> None:
    here = scene(tmp_path)
    await here.heartbeats.set(CHAT, "30m")
    await here.heartbeats.set(CHAT, "2h")
    (job,) = (await here.store.listing()).jobs
    assert (job.kind, job.session_key, job.draft.deliver_to) == (JobKind.HEARTBEAT, KEY, CHAT.address)
    assert job.draft.schedule == Schedule(kind=ScheduleKind.EVERY, text="2h")
    assert await SessionJobs(here.store).list(CHAT) == ()


async def test_it_writes_where_it_was_set_and_from_a_terminal_nowhere(tmp_path: Path) -> None:
    here = scene(tmp_path)
    assert "in this session's history alone" in await here.heartbeats.set(TERMINAL, "30m")
    (job,) = (await here.store.listing()).jobs
    assert job.draft.deliver_to is None
    await here.heartbeats.set(CHAT, "30m")
    assert "goes to another chat (telegram)" in await here.heartbeats.show(TERMINAL)


@pytest.mark.req("HB-02")
async def test_its_file_is_made_once_and_kept_as_it_was_edited(tmp_path: Path) -> None:
    here = scene(tmp_path)
    assert "HEARTBEATS.md in this session's desk was made" in await here.heartbeats.set(CHAT, "30m")
    assert here.file.read_text() == TEMPLATE
    here.file.write_text("Look at the bread.\n")
    assert "was made" not in await here.heartbeats.set(CHAT, "2h")
    await here.heartbeats.set(CHAT, "off")
    await here.heartbeats.set(CHAT, "1h")
    assert here.file.read_text() == "Look at the bread.\n"


@pytest.mark.req("HB-02", "SESS-09")
async def test_a_link_that_waits_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    here = scene(tmp_path)
    here.file.parent.mkdir(parents=True)
    here.file.symlink_to(tmp_path / "outside")
    await here.heartbeats.set(CHAT, "30m")
    assert not await asyncio.to_thread((tmp_path / "outside").exists)


async def test_a_person_learns_that_it_does_not_beat_without_a_gateway(tmp_path: Path) -> None:
    without = scene(tmp_path, gateway=None)
    assert (await without.heartbeats.set(CHAT, "30m")).endswith(ONLY_WITH_GATEWAY)
    assert (await without.heartbeats.show(CHAT)).endswith(ONLY_WITH_GATEWAY)
    assert (await scene(tmp_path).heartbeats.show(CHAT)).endswith("The gateway runs.")
    assert (await scene(tmp_path, gateway=-1).heartbeats.show(CHAT)).endswith("The gateway runs.")


async def test_one_that_was_disabled_is_off_and_set_again_it_is_on(tmp_path: Path) -> None:
    here = scene(tmp_path)
    await here.heartbeats.set(CHAT, "30m")
    (job,) = (await here.store.listing()).jobs
    await here.store.change(job.id, JobChange(enabled=False))
    assert await here.heartbeats.interval(KEY) == ""
    assert "The heartbeat is off." in await here.heartbeats.show(CHAT)
    await here.heartbeats.set(CHAT, "30m")
    assert await here.heartbeats.interval(KEY) == "30m"


@pytest.mark.req("CLI-03")
async def test_status_has_a_line_for_the_heartbeat_and_one_for_each_job_of_the_session(tmp_path: Path) -> None:
    here = scene(tmp_path)
    assert await here.heartbeats.beside(KEY) == ([], [])
    every = Schedule(kind=ScheduleKind.EVERY, text="2h")
    for number in range(12):
        await here.store.add(JobDraft(name=f"bread\n{number}", message="look", schedule=every), KEY)
    await here.store.add(JobDraft(name="theirs", message="look", schedule=every), "telegram.8")
    await here.heartbeats.set(CHAT, "30m")
    beats, jobs = await here.heartbeats.beside(KEY)
    assert [line[:22] for line in beats] == ["every 30m, next 2026-0"]
    assert len(jobs) == 11
    assert "bread⟨\\n⟩0: every 2h, next 2026-05-01 " in jobs[0]
    assert jobs[-1] == "and 2 more"
    assert "theirs" not in str(jobs)


async def test_a_file_of_jobs_that_cannot_be_read_breaks_no_turn_and_is_not_replaced(tmp_path: Path) -> None:
    here = scene(tmp_path)
    path = tmp_path / "cron" / "jobs.json"
    path.parent.mkdir()
    path.write_text("{]")
    assert await here.heartbeats.interval(KEY) == ""
    assert await here.heartbeats.beside(KEY) == ([], [UNREADABLE])
    with pytest.raises(JobsFileError, match=r"jobs\.json"):
        await here.heartbeats.set(CHAT, "30m")
    assert path.read_text() == "{]"
