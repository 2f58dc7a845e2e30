"""What commands and tools may do with jobs, and what the file keeps of it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address, Origin
from bubbles.cron.contract import (
    Job,
    JobChange,
    JobDraft,
    JobError,
    JobKind,
    JobsFileError,
    Schedule,
    ScheduleKind,
    UnknownJobError,
)
from bubbles.cron.jobsfile import MAX_WRITTEN
from bubbles.cron.session_jobs import SessionJobs
from bubbles.cron.store import ID_LENGTH, LETTERS, MAX_JOBS, JobStore
from bubbles.tools.cron import Cron, CronArgs

NOW = datetime(2026, 5, 1, 7, 0, 12, 345_678, tzinfo=UTC)
CHAT = Address(channel="telegram", chat_id="7")
HERE = Origin(session_key="telegram.7", address=CHAT, sender="anna")
NEXT_DOOR = replace(HERE, session_key="telegram.8")
DAILY = Schedule(kind=ScheduleKind.CRON, text="0 9 * * *", zone="Europe/Berlin")
HALF_HOURLY = Schedule(kind=ScheduleKind.EVERY, text="30m")
ONCE = Schedule(kind=ScheduleKind.AT, text="2026-05-02T09:00", zone="UTC")


def draft(schedule: Schedule = HALF_HOURLY, **fields: Any) -> JobDraft:
    return JobDraft(**{"name": "plants", "message": "water the plants", "schedule": schedule, **fields})


class Scene:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.now = NOW
        self.store = JobStore(base, lambda: self.now)
        self.path = base / "cron" / "jobs.json"

    def file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def write(self, *jobs: object, **top: object) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"version": 1, **top, "jobs": jobs}))

    async def jobs(self) -> tuple[Job, ...]:
        listing = await self.store.listing()
        assert listing.problems == ()
        return listing.jobs


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def entry(**fields: Any) -> dict[str, Any]:
    plain = {"id": "abc234", "name": "n", "message": "m", "session": "cli", "schedule": {"every": "30m"}}
    return {name: value for name, value in {**plain, **fields}.items() if value is not None}


async def refused(work: Awaitable[object]) -> str:
    with pytest.raises(JobError) as caught:
        await work
    assert str(caught.value).endswith(".")
    return str(caught.value)


@pytest.mark.req("CRON-04")
async def test_a_job_is_kept_in_a_file_that_a_person_can_read_and_only_its_owner(scene: Scene) -> None:
    assert await scene.jobs() == ()
    assert not scene.path.parent.exists()  # who only looks makes nothing
    job = await scene.store.add(draft(DAILY, deliver_to=CHAT, name="Pflanzen gie\u00dfen"), "telegram.7")
    assert len(job.id) == ID_LENGTH
    assert set(job.id) <= set(LETTERS)
    assert job.next_run == datetime(2026, 5, 2, 7, tzinfo=UTC)
    assert await scene.jobs() == (job,)
    assert await JobStore(scene.base).listing() == await scene.store.listing()
    assert stat.S_IMODE(scene.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(scene.path.parent.stat().st_mode) == 0o700
    assert "gie\u00dfen" in scene.path.read_text()
    assert scene.file() == {
        "version": 1,
        "jobs": [
            {
                "id": job.id,
                "name": "Pflanzen gie\u00dfen",
                "message": "water the plants",
                "session": "telegram.7",
                "schedule": {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
                "deliverTo": {"channel": "telegram", "chatId": "7"},
                "deleteAfterRun": False,
                "enabled": True,
                "anchor": "2026-05-01T07:00:12Z",
                "nextRun": "2026-05-02T07:00:00Z",
                "nextRunFor": "cron 0 9 * * * Europe/Berlin",
            }
        ],
    }


@pytest.mark.req("CRON-04")
async def test_every_keeps_its_anchor_and_loses_it_with_its_schedule(scene: Scene) -> None:
    job = await scene.store.add(draft(), "cli")
    anchor = NOW.replace(microsecond=0)
    assert (job.anchor, job.next_run) == (anchor, anchor + timedelta(minutes=30))
    scene.now += timedelta(minutes=7)
    named = await scene.store.change(job.id, JobChange(name="other"))
    assert (named.draft.name, named.anchor, named.next_run) == ("other", job.anchor, job.next_run)
    assert (await scene.store.change(job.id, JobChange(enabled=False))).next_run is None
    scene.now += timedelta(hours=3)
    again = await scene.store.change(job.id, JobChange(enabled=True))
    assert again.next_run == anchor + timedelta(minutes=210)  # from now, on the old grid
    fresh = await scene.store.change(job.id, JobChange(schedule=replace(HALF_HOURLY, text=" 1h ")))
    assert fresh.draft.schedule.text == "1h"
    assert fresh.anchor == scene.now.replace(microsecond=0)
    assert fresh.next_run == fresh.anchor + timedelta(hours=1)


@pytest.mark.req("CRON-03")
async def test_what_is_not_named_in_a_change_stays(scene: Scene) -> None:
    job = await scene.store.add(draft(deliver_to=CHAT), "cli")
    assert (await scene.store.change(job.id, JobChange(message="x"))).draft == replace(job.draft, message="x")
    assert (await scene.store.change(job.id, JobChange(deliver_nowhere=True))).draft.deliver_to is None
    assert (await scene.store.change(job.id, JobChange(deliver_to=CHAT))).draft.deliver_to == CHAT
    assert (await scene.store.change(job.id, JobChange(delete_after_run=True))).draft.delete_after_run
    off = await scene.store.change(job.id, JobChange(enabled=False, schedule=DAILY))
    assert (off.draft.enabled, off.draft.schedule, off.next_run) == (False, DAILY, None)
    assert await scene.store.remove(job.id) == off
    assert await scene.jobs() == ()


@pytest.mark.req("CRON-01")
async def test_another_time_without_a_zone_is_in_the_zone_that_the_job_has(scene: Scene) -> None:
    job = await scene.store.add(draft(DAILY), "cli")
    earlier = Schedule(kind=ScheduleKind.CRON, text="0 8 * * *")
    changed = await scene.store.change(job.id, JobChange(schedule=earlier))
    assert changed.draft.schedule == replace(earlier, zone="Europe/Berlin")
    assert changed.next_run == datetime(2026, 5, 2, 6, tzinfo=UTC)
    assert (await scene.store.change(job.id, JobChange(schedule=HALF_HOURLY))).draft.schedule == HALF_HOURLY


@pytest.mark.req("CRON-01")
async def test_a_moment_from_now_on_is_kept_as_the_moment_that_it_is(scene: Scene) -> None:
    job = await scene.store.add(draft(Schedule(kind=ScheduleKind.AT, text="+20m")), "cli")
    assert job.draft.schedule.text == "2026-05-01T07:20:12+00:00"
    assert job.next_run == datetime(2026, 5, 1, 7, 20, 12, tzinfo=UTC)
    assert "at cannot be '+20'" in await refused(
        scene.store.add(draft(Schedule(kind=ScheduleKind.AT, text="+20")), "cli")
    )


@pytest.mark.req("CRON-01")
async def test_a_moment_that_is_over_is_refused_when_it_would_be_needed(scene: Scene) -> None:
    job = await scene.store.add(draft(ONCE), "cli")
    assert job.next_run == datetime(2026, 5, 2, 9, tzinfo=UTC)
    await scene.store.change(job.id, JobChange(enabled=False))
    scene.now = datetime(2026, 5, 3, tzinfo=UTC)
    assert "that is past, it is 2026-05-03" in await refused(scene.store.change(job.id, JobChange(enabled=True)))
    assert "that is past" in await refused(scene.store.add(draft(ONCE), "cli"))
    assert "that is past" in await refused(scene.store.add(draft(ONCE, enabled=False), "cli"))
    later = replace(ONCE, text="2026-05-04T09:00")
    changed = await scene.store.change(job.id, JobChange(enabled=True, schedule=later))
    assert changed.next_run == datetime(2026, 5, 4, 9, tzinfo=UTC)


async def test_what_cannot_be_is_refused_and_nothing_is_written(scene: Scene) -> None:
    cases = {
        "name is blank": draft(name=" "),
        "message is blank": draft(message="\n"),
        "message has 8,001 characters": draft(message="x" * 8_001),
        "name has 101 characters": draft(name="x" * 101),
        "message is not text": draft(message="\ud800"),
        "every cannot be '5s'": draft(replace(HALF_HOURLY, text="5s")),
        "chatId cannot be": draft(deliver_to=Address(channel="telegram", chat_id="7\n8")),
    }
    for said, wrong in cases.items():
        assert said in await refused(scene.store.add(wrong, "cli"))
    assert "session cannot be '../x'" in await refused(scene.store.add(draft(), "../x"))
    assert not scene.path.exists()
    job = await scene.store.add(draft(), "cli")
    for change in (JobChange(name=""), JobChange(message="x" * 8_001), JobChange(schedule=replace(DAILY, zone="Mars"))):
        await refused(scene.store.change(job.id, change))
    assert await scene.jobs() == (job,)


async def test_there_is_a_bound_on_how_many_and_how_large_they_are(scene: Scene) -> None:
    scene.write(*(entry(id=f"a{number}") for number in range(MAX_JOBS)))
    assert "1,000 jobs already" in await refused(scene.store.add(draft(), "cli"))
    await scene.store.remove("a1")
    await scene.store.add(draft(), "cli")
    many = [entry(id=f"a{number}", message="x" * 7_990) for number in range(MAX_WRITTEN // 8_000)]
    scene.write(*many)
    assert f"more than {MAX_WRITTEN:,} bytes" in await refused(scene.store.add(draft(message="x" * 8_000), "cli"))
    assert len(await scene.jobs()) == len(many)
    await scene.store.remove("a1")
    assert len(await scene.jobs()) == len(many) - 1


async def test_no_id_is_given_twice_though_there_be_many(scene: Scene) -> None:
    jobs = await asyncio.gather(*(scene.store.add(draft(name=f"n{number}"), "cli") for number in range(30)))
    assert len({job.id for job in jobs}) == 30
    assert {job.id for job in await scene.jobs()} == {job.id for job in jobs}


@pytest.mark.req("CRON-03")
async def test_a_run_at_once_is_asked_for_and_of_a_disabled_job_only_by_force(scene: Scene) -> None:
    job = await scene.store.add(draft(enabled=False), "cli")
    assert "is disabled: enable it, or run it with -f" in await refused(scene.store.ask(job.id))
    asked = await scene.store.ask(job.id, force=True)
    assert (asked.asked, asked.forced, asked.next_run) == (NOW, True, None)
    assert await scene.jobs() == (asked,)
    await refused(scene.store.ask("nobody"))


@pytest.mark.req("CRON-03")
async def test_a_run_by_somebody_else_is_noted_and_changes_no_schedule(scene: Scene) -> None:
    job = await scene.store.add(draft(), "cli")
    noted = await scene.store.ran(job.id, "failed")
    assert noted is not None
    assert (noted.last_outcome, noted.last_run, noted.failures, noted.next_run) == ("failed", NOW, 0, job.next_run)
    await scene.store.change(job.id, JobChange(delete_after_run=True))
    assert await scene.store.ran(job.id, "done") is None
    assert await scene.jobs() == ()
    assert await scene.store.ran(job.id, "done") is None


@pytest.mark.req("HB-01")
async def test_a_heartbeat_is_one_a_session_and_no_tool_sees_it(scene: Scene) -> None:
    assert await scene.store.heartbeat("telegram.7") is None
    beat = await scene.store.set_heartbeat("telegram.7", HALF_HOURLY, CHAT)
    assert beat is not None
    assert (beat.kind, beat.draft.deliver_to) == (JobKind.HEARTBEAT, CHAT)
    assert beat.next_run == NOW.replace(microsecond=0) + timedelta(minutes=30)
    hourly = await scene.store.set_heartbeat("telegram.7", replace(HALF_HOURLY, text="1h"), None)
    assert hourly is not None
    assert (hourly.id, hourly.draft.deliver_to, hourly.draft.schedule.text) == (beat.id, None, "1h")
    await scene.store.set_heartbeat("telegram.8", HALF_HOURLY, None)
    assert await scene.store.heartbeat("telegram.7") == hourly

    jobs = SessionJobs(scene.store)
    assert await jobs.list(HERE) == ()
    for change in (jobs.change(beat.id, JobChange(name="x"), HERE), jobs.remove(beat.id, HERE)):
        with pytest.raises(UnknownJobError):
            await change

    for text in ("59s", "25h", "2d"):
        assert "one minute at least" in await refused(
            scene.store.set_heartbeat("telegram.7", replace(HALF_HOURLY, text=text), None)
        )
        assert "one minute at least" in await refused(
            scene.store.change(beat.id, JobChange(schedule=replace(HALF_HOURLY, text=text)))
        )
    assert "one minute at least" in await refused(scene.store.set_heartbeat("telegram.7", DAILY, None))
    assert await scene.store.set_heartbeat("telegram.7", None, None) is None
    assert await scene.store.heartbeat("telegram.7") is None
    assert await scene.store.heartbeat("telegram.8") is not None


@pytest.mark.req("TOOL-06")
async def test_the_tool_works_on_the_jobs_of_its_session_alone(scene: Scene) -> None:
    jobs = SessionJobs(scene.store)
    tool = Cron(jobs)
    told = await tool.run(CronArgs(action="add", message="water the plants", every="2h"), HERE)
    (job,) = await scene.jobs()
    assert job.id in told.text
    assert (job.session_key, job.draft.deliver_to, job.kind) == ("telegram.7", CHAT, JobKind.JOB)
    assert await jobs.list(HERE) == (job,)
    assert await jobs.list(NEXT_DOOR) == ()
    said = []
    for ident in (job.id, "zzz999"):
        for work in (jobs.change(ident, JobChange(name="x"), NEXT_DOOR), jobs.remove(ident, NEXT_DOOR)):
            with pytest.raises(UnknownJobError) as caught:
                await work
            said.append(str(caught.value).replace(ident, "ID"))
    assert len(set(said)) == 1
    assert (await jobs.change(job.id, JobChange(name="mine"), HERE)).draft.name == "mine"
    await jobs.remove(job.id, HERE)
    assert await scene.jobs() == ()


@pytest.mark.req("CRON-04")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"version": 1,\n "jobs": [\n  {"id": "a",},\n ]}', "line 3, column 14"),  # B074
        (b"", "line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b"[]", 'not of the form {"version": 1, "jobs": [...]}'),
        (b'{"jobs": {}}', "not of the form"),
        (b'{"version": 2, "jobs": []}', "a newer Bubbles wrote it (version 2, 1 is known)"),
        (b'{"version": "1", "jobs": []}', "its version is '1'"),
        (b'{"jobs": [], "jobs": []}', "'jobs' is there twice"),
        (b'{"jobs": [], "x": NaN}', "NaN is no number"),
        (b'{"jobs": [], "x": ' + b"1" * 5_000 + b"}", "no JSON that can be read"),
        (b"[" * 100_000, "no JSON that can be read"),
        (b'{"jobs": ["\xff"]}', "not UTF-8 text (byte 11)"),
        (b" " * (2 << 20) + b"{}", "larger than 2,097,152 bytes"),
    ],
)
async def test_a_file_that_cannot_be_read_is_reported_and_never_written(scene: Scene, data: bytes, said: str) -> None:
    scene.path.parent.mkdir()
    scene.path.write_bytes(data)
    listing = await scene.store.listing()
    (problem,) = listing.problems
    assert listing.jobs == ()
    assert not listing.readable
    assert said in problem
    assert problem.startswith(f"{scene.path} cannot be read")
    assert "nothing is written to it" in problem
    for work in (
        scene.store.add(draft(), "cli"),
        scene.store.change("abc234", JobChange(name="x")),
        scene.store.remove("abc234"),
        scene.store.ask("abc234"),
        scene.store.heartbeat("cli"),
        scene.store.set_heartbeat("cli", HALF_HOURLY, None),
        SessionJobs(scene.store).list(HERE),
        SessionJobs(scene.store).add(draft(), HERE),
    ):
        with pytest.raises(JobsFileError) as caught:
            await work
        assert str(caught.value) == problem
    assert scene.path.read_bytes() == data


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory"])
async def test_only_a_regular_file_is_taken_for_the_jobs(scene: Scene, kind: str) -> None:
    scene.path.parent.mkdir()
    target = scene.base / "elsewhere.json"
    if kind == "link":
        target.write_text('{"version": 1, "jobs": []}')
    if kind.endswith("link"):
        scene.path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(scene.path)
    else:
        scene.path.mkdir()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    said = {await refused(scene.store.add(draft(), "cli")) for _ in range(5)}
    (problem,) = (await scene.store.listing()).problems
    assert said == {problem}
    assert kind.removeprefix("dangling ") in problem
    assert target.exists() == (kind == "link")
    assert scene.path.is_symlink() == kind.endswith("link")
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


@pytest.mark.req("CRON-04")
async def test_what_others_wrote_into_the_file_stays_in_it(scene: Scene) -> None:
    mine = entry(
        note={"a": [1]}, schedule={"every": "30m", "why": "x"}, deliverTo={"channel": "c", "chatId": "1", "t": 2}
    )
    scene.write(mine, comment="of a person", lone="\ud800")
    await scene.store.change("abc234", JobChange(name="new"))
    file = scene.file()
    (found,) = file["jobs"]
    assert (file["comment"], file["lone"]) == ("of a person", "\ud800")
    assert (found["note"], found["schedule"], found["name"]) == ({"a": [1]}, mine["schedule"], "new")
    assert found["deliverTo"] == mine["deliverTo"]
    await scene.store.change("abc234", JobChange(schedule=DAILY, deliver_nowhere=True))
    (found,) = scene.file()["jobs"]
    assert found["schedule"] == {"cron": "0 9 * * *", "zone": "Europe/Berlin", "why": "x"}
    assert "deliverTo" not in found


BAD = {
    "no object": 7,
    "id is missing": entry(id=None),
    "id has to be text": entry(id=7),
    "id has to be 1 to 64 letters": entry(id="../x"),
    "name is missing": entry(name=None),
    "message is blank": entry(message=" "),
    "session cannot be '../../etc'": entry(session="../../etc"),
    "schedule is missing": entry(schedule=None),
    "schedule needs one of at, every, cron, and has none": entry(schedule={}),
    "has every and cron": entry(schedule={"every": "30m", "cron": "* * * * *"}),
    "every cannot be '90'": entry(schedule={"every": "90"}),
    "every has to be text": entry(schedule={"every": 90}),
    "zone cannot be 'Mars/X'": entry(schedule={"cron": "0 9 * * *", "zone": "Mars/X"}),
    "kind cannot be 'alarm'": entry(kind="alarm"),
    "enabled has to be true or false": entry(enabled="yes"),
    "deleteAfterRun has to be": entry(deleteAfterRun=1),
    "failures has to be a whole number": entry(failures=True),
    "failures cannot be less": entry(failures=-1),
    "nextRun cannot be 'soon'": entry(nextRun="soon"),
    "anchor cannot be '2026-05-01T09:00'": entry(anchor="2026-05-01T09:00"),
    "deliverTo has to be an object": entry(deliverTo="telegram:7"),
    "chatId is missing": entry(deliverTo={"channel": "telegram"}),
    "another entry before it has the same id": entry(id="good22"),
}


@pytest.mark.req("CRON-04")
async def test_an_entry_that_makes_no_sense_is_kept_reported_and_passed_over(scene: Scene) -> None:
    scene.write(entry(id="good22"), *BAD.values())
    listing = await scene.store.listing()
    assert listing.readable
    assert [job.id for job in listing.jobs] == ["good22"]
    for number, (said, problem) in enumerate(zip(BAD, listing.problems, strict=True), start=2):
        assert f"entry {number}" in problem
        assert said in problem
    fresh = await scene.store.add(draft(), "cli")
    await scene.store.remove("good22")
    assert scene.file()["jobs"][:-1] == list(BAD.values())
    assert scene.file()["jobs"][-1]["id"] == fresh.id


async def test_an_entry_that_makes_no_sense_is_not_changed_by_its_id(scene: Scene) -> None:
    scene.write(entry(schedule={"every": "90"}))
    assert "makes no sense: mend it" in await refused(scene.store.remove("abc234"))
    with pytest.raises(UnknownJobError):
        await scene.store.remove("abc234", "cli")


async def test_a_schedule_that_was_edited_by_hand_is_reckoned_anew(scene: Scene) -> None:
    job = await scene.store.add(draft(DAILY), "cli")
    text = scene.path.read_text().replace('"cron": "0 9', '"cron": "0 8')
    scene.path.write_text(text)
    (edited,) = await scene.jobs()
    assert edited.draft.schedule.text == "0 8 * * *"
    assert edited.next_run is None
    scene.path.write_text(text.replace('"cron": "0 8', '"cron": "0 9'))
    assert await scene.jobs() == (job,)


async def test_a_byte_order_mark_and_a_missing_version_are_no_fault(scene: Scene) -> None:
    scene.path.parent.mkdir()
    scene.path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"jobs": [entry()]}).encode())
    assert [job.id for job in await scene.jobs()] == ["abc234"]


async def test_what_cannot_be_written_changes_nothing_and_says_so(scene: Scene) -> None:
    job = await scene.store.add(draft(), "cli")
    aside = scene.path.with_name(".jobs.json.new")
    aside.mkdir()  # in the way of whoever writes, for root too
    assert "cannot be written" in await refused(scene.store.change(job.id, JobChange(name="x")))
    assert await scene.jobs() == (job,)
    aside.rmdir()
    await scene.store.change(job.id, JobChange(name="x"))
    (scene.path.parent / "jobs.lock").unlink()
    (scene.path.parent / "jobs.lock").symlink_to(scene.base / "elsewhere")
    assert "cannot be written" in await refused(scene.store.remove(job.id))
    assert not (scene.base / "elsewhere").exists()
