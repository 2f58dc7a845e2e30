"""What runs, when, and what becomes of it, in time that moves only when a test says so."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.cron.contract import JobChange
from bubbles.errors import BubblesError
from tests.unit.cron.moving_time import CHAT, START, Damage, World, at, cron, draft, every


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.req("CRON-02", "CRON-04")
async def test_a_due_job_runs_and_its_next_run_is_on_the_disk_before_it_begins(world: World) -> None:
    job = await world.store.add(draft(every("30s"), deliver_to=CHAT), "telegram.7")
    async with world.gateway() as service:
        held = world.hold(job.id)
        await world.passes(29)
        assert world.runs == []
        await world.passes(1)
        assert world.times(job.id) == ["01. 08:00:30"]
        (kept,) = json.loads(world.path.read_text())["jobs"]
        assert (kept["running"], kept["nextRun"]) == ("2026-05-01T08:00:30Z", "2026-05-01T08:01:00Z")
        assert world.begun == [await world.job(job.id)]
        held.set()
        await world.passes(1)
        ended = await world.job(job.id)
        assert (ended.last_outcome, ended.running, ended.failures) == ("done", None, 0)
        assert (ended.last_run, ended.next_run) == (START + timedelta(seconds=30), START + timedelta(seconds=60))
        assert (service.jobs, service.problems, service.running) == (1, (), 0)
        await world.passes(60)
    assert world.times(job.id) == ["01. 08:00:30", "01. 08:01:00", "01. 08:01:30"]


async def test_it_runs_at_the_moment_and_not_at_the_next_look(world: World) -> None:
    world.wall += timedelta(milliseconds=700)
    job = await world.store.add(draft(cron("1 8 * * *")), "cli")
    async with world.gateway():
        await world.passes(61)
    assert [when for _, when, _ in world.runs] == [START + timedelta(minutes=1)]
    assert (await world.job(job.id)).next_run == START + timedelta(days=1, minutes=1)


@pytest.mark.req("CRON-02")
async def test_jobs_run_beside_each_other_and_none_beside_itself(world: World) -> None:
    slow = await world.store.add(draft(every("10s")), "cli")
    quick = await world.store.add(draft(every("10s")), "cli")
    async with world.gateway() as service:
        held = world.hold(slow.id)
        await world.passes(45)
        assert world.times(quick.id) == ["01. 08:00:10", "01. 08:00:20", "01. 08:00:30", "01. 08:00:40"]
        assert world.times(slow.id) == ["01. 08:00:10"]
        assert service.running == 1
        held.set()
        await world.passes(6)
    # What fell due meanwhile is left out.
    assert world.times(slow.id) == ["01. 08:00:10", "01. 08:00:50"]


@pytest.mark.req("CRON-04")
async def test_a_restart_over_the_due_moment_makes_the_run_up_once(world: World) -> None:  # B070
    job = await world.store.add(draft(cron("30 8 * * *", "Europe/Berlin")), "cli")
    beat = await world.store.set_heartbeat("cli", every("10m"), None)
    assert beat is not None
    world.wall = datetime(2026, 5, 2, 6, 29, 50, tzinfo=UTC)
    async with world.gateway():
        pass
    world.sleeps(timedelta(seconds=30))
    async with world.gateway():
        await world.passes(5)
    async with world.gateway():
        await world.passes(5)
    ((ident, _, text),) = world.runs
    assert ident == job.id
    assert "It is late by 20 seconds: it was to run at 2026-05-02 08:30 Europe/Berlin" in text


@pytest.mark.req("CRON-04")
@pytest.mark.parametrize(
    ("text", "away", "late"),
    [
        ("every 10m", timedelta(minutes=59), "9 minutes"),
        ("every 10m", timedelta(days=5, minutes=17), "7 minutes"),  # the last of many is not an hour ago
        ("cron 0 9 * * *", timedelta(hours=2), "1 hour"),
        ("cron 0 9 * * *", timedelta(hours=2, seconds=1), None),
        ("cron 0 9 * * *", timedelta(days=2), None),
        ("at 2026-05-01T09:00", timedelta(hours=25), "1 day"),
        ("at 2026-05-01T09:00", timedelta(hours=25, seconds=1), None),
    ],
)
async def test_what_was_missed_is_made_up_once_if_it_is_not_too_old(
    world: World, text: str, away: timedelta, late: str | None
) -> None:
    kind, _, when = text.partition(" ")
    schedule = {"every": every, "cron": cron, "at": at}[kind](when)
    job = await world.store.add(draft(schedule, delete_after_run=kind == "at"), "cli")
    world.sleeps(away)
    async with world.gateway():
        await world.passes(20)
    texts = [text for _, _, text in world.runs]
    assert len(texts) == (late is not None)
    listing = await world.store.listing()
    if late is not None:
        assert f"It is late by {late}: " in texts[0]
        assert bool(listing.jobs) == (kind != "at")
    else:
        kept = await world.job(job.id)
        assert (kept.last_outcome, kept.last_run) == ("missed", START + timedelta(hours=1))
        assert kept.draft.enabled == (kind != "at")
        assert kept.next_run is None or kept.next_run > world.wall


@pytest.mark.req("HB-01")
async def test_a_heartbeat_beats_and_is_never_made_up(world: World) -> None:
    beat = await world.store.set_heartbeat("cli", every("10m"), None)
    assert beat is not None
    async with world.gateway():
        await world.passes(601)
        assert world.times(beat.id) == ["01. 08:10:00"]
        world.sleeps(timedelta(minutes=10, seconds=10))
        await world.passes(2)
    assert world.times(beat.id) == ["01. 08:10:00"]
    kept = await world.job(beat.id)
    assert (kept.last_outcome, kept.next_run) == ("done", START + timedelta(minutes=30))
    assert "HEARTBEATS.md" in world.runs[0][2]


@pytest.mark.req("CRON-05")
async def test_failures_in_a_row_keep_the_next_run_away_and_a_success_ends_that(world: World) -> None:
    job = await world.store.add(draft(every("10s")), "cli")
    world.outcomes[job.id] = "failed"
    waits = []
    async with world.gateway():
        for _ in range(7):
            await world.passes(11)
            kept = await world.job(job.id)
            assert kept.next_run is not None
            waits.append((kept.next_run - world.runs[-1][1]).total_seconds())
            assert len(world.runs) == len(waits)
            world.sleeps(kept.next_run - world.wall - timedelta(seconds=5))
            await world.passes(0)
        assert waits == [30, 60, 300, 900, 3_600, 3_600, 3_600]
        assert (await world.job(job.id)).failures == 7
        world.outcomes[job.id] = "silent"
        await world.passes(11)
        kept = await world.job(job.id)
        assert (kept.failures, kept.last_outcome) == (0, "silent")
        await world.passes(10)
    assert (world.runs[-1][1] - world.runs[-2][1]).total_seconds() == 10


@pytest.mark.req("CRON-05")
async def test_a_back_off_takes_nothing_from_a_job_that_is_rarely_due(world: World) -> None:
    job = await world.store.add(draft(cron("1 * * * *")), "cli")
    world.outcomes[job.id] = "failed"
    async with world.gateway():
        await world.passes(62)
    assert (await world.job(job.id)).next_run == START + timedelta(minutes=61)


@pytest.mark.req("CRON-05", "CRON-03")
@pytest.mark.parametrize("outcome", ["done", "silent", "failed"])
async def test_a_moment_has_no_second_try(world: World, outcome: str) -> None:
    stays = await world.store.add(draft(at("2026-05-01T08:00:20")), "cli")
    goes = await world.store.add(draft(at("2026-05-01T08:00:20"), delete_after_run=True), "cli")
    world.outcomes = {stays.id: outcome, goes.id: outcome}
    async with world.gateway():
        await world.passes(90)
    assert [when for _, when, _ in world.runs] == [START + timedelta(seconds=20)] * 2
    (kept,) = (await world.store.listing()).jobs
    assert (kept.id, kept.draft.enabled, kept.next_run, kept.last_outcome) == (stays.id, False, None, outcome)


@pytest.mark.req("CRON-03")
async def test_a_job_that_goes_after_its_run_goes_after_one_that_went_well(world: World) -> None:
    job = await world.store.add(draft(every("1m"), delete_after_run=True), "cli")
    world.outcomes[job.id] = "failed"
    async with world.gateway() as service:
        await world.passes(65)
        assert (await world.job(job.id)).last_outcome == "failed"
        world.outcomes[job.id] = "done"
        await world.passes(120)
        assert (await world.store.listing()).jobs == ()
        assert service.jobs == 0
    assert world.times(job.id) == ["01. 08:01:00", "01. 08:02:00"]


@pytest.mark.req("CRON-03")
async def test_what_is_asked_for_runs_within_a_second_and_changes_no_schedule(world: World) -> None:
    hourly = await world.store.add(draft(every("1h")), "cli")
    off = await world.store.add(draft(every("1h"), enabled=False), "cli")
    later = await world.store.add(draft(at("2026-05-02T08:00"), delete_after_run=True), "cli")
    world.outcomes[hourly.id] = "failed"
    async with world.gateway():
        await world.passes(5)
        for job in (hourly, off, later):
            await world.store.ask(job.id, force=True)
        await world.passes(1)
        assert sorted(ident for ident, _, _ in world.runs) == sorted(job.id for job in (hourly, off, later))
        await world.passes(10)
    assert len(world.runs) == 3
    assert "A person asked for this run" in world.runs[0][2]
    for job, outcome in ((hourly, "failed"), (off, "done"), (later, "done")):
        kept = await world.job(job.id)
        ran = START + timedelta(seconds=6)
        assert kept == replace(job, last_run=kept.last_run, last_outcome=outcome)
        assert kept.last_run is not None
        assert abs(kept.last_run - ran) <= timedelta(seconds=1)


@pytest.mark.req("CRON-03")
async def test_what_is_asked_for_while_it_runs_comes_after_that(world: World) -> None:
    job = await world.store.add(draft(every("1h")), "cli")
    async with world.gateway():
        held = world.hold(job.id)
        await world.store.ask(job.id)
        await world.passes(2)
        await world.store.ask(job.id)
        await world.passes(5)
        assert len(world.runs) == 1
        held.set()
        await world.passes(2)
    assert len(world.runs) == 2


@pytest.mark.req("CRON-03")
async def test_what_was_asked_for_long_ago_or_is_disabled_since_does_not_run(world: World) -> None:
    old = await world.store.add(draft(every("1d")), "cli")
    off = await world.store.add(draft(every("1d")), "cli")
    await world.store.ask(old.id)
    world.sleeps(timedelta(hours=2))
    await world.store.ask(off.id)
    await world.store.change(off.id, JobChange(enabled=False))
    async with world.gateway():
        await world.passes(5)
    assert world.runs == []
    assert [job.asked for job in (await world.store.listing()).jobs] == [None, None]


async def test_what_happens_to_a_job_while_it_runs_holds(world: World) -> None:
    jobs = [await world.store.add(draft(every("1m"), name=name), "cli") for name in "abc"]
    removed, off, other = (job.id for job in jobs)
    once, later = [
        (await world.store.add(draft(at("2026-05-01T08:01"), delete_after_run=True), "cli")).id for _ in range(2)
    ]
    async with world.gateway():
        for ident in (removed, off, other, once, later):
            world.hold(ident)
        await world.passes(61)
        assert len(world.runs) == 5
        await world.store.remove(removed)
        await world.store.change(off, JobChange(enabled=False))
        await world.store.change(other, JobChange(message="changed", schedule=every("2h"), delete_after_run=True))
        await world.store.change(once, JobChange(schedule=every("3h")))
        await world.store.change(later, JobChange(schedule=at("2026-05-02T08:00"), enabled=False))
        for event in world.held.values():
            event.set()
        await world.passes(130)
    kept = {job.id: job for job in (await world.store.listing()).jobs}
    assert kept.keys() == {off, other, once, later}
    assert {job.last_outcome for job in kept.values()} == {"done"}
    assert (kept[off].draft.enabled, kept[off].next_run, kept[off].draft.name) == (False, None, "b")
    assert kept[other].draft.message == "changed"
    assert [kept[ident].next_run for ident in (other, once)] == [START + timedelta(seconds=61, hours=h) for h in (2, 3)]
    assert len(world.runs) == 5


@pytest.mark.req("CRON-01", "CRON-04")
async def test_what_others_write_is_seen_within_two_seconds(world: World) -> None:  # B075
    async with world.gateway() as service:
        await world.passes(3)
        assert service.jobs == 0
        job = await world.store.add(draft(every("10s")), "cli")
        await world.passes(2)
        assert service.jobs == 1
        await world.passes(10)
        assert len(world.runs) == 1
        # An editor: in place, without reckoning when it is due.
        world.path.write_text(world.path.read_text().replace('"every": "10s"', '"cron": "1 8 * * *"'))
        await world.passes(2)
        assert (await world.job(job.id)).next_run == START + timedelta(minutes=1)
        await world.store.change(job.id, JobChange(enabled=False))
        await world.passes(120)
    assert len(world.runs) == 1


@pytest.mark.req("CRON-04")
async def test_an_entry_made_by_hand_gets_its_next_run(world: World) -> None:
    world.path.parent.mkdir()
    entry = {"name": "n", "message": "m", "session": "cli"}
    schedules = ({"every": "1m"}, {"at": "2026-05-01T08:00:30Z"}, {"at": "2026-04-01T08:00:00Z"}, {"cron": "x"})
    jobs = [{"id": f"a{number}", "schedule": schedule, **entry} for number, schedule in enumerate(schedules)]
    world.path.write_text(json.dumps({"jobs": jobs}))
    async with world.gateway() as service:
        await world.passes(62)
        (problem,) = service.problems
        assert service.readable
        assert "entry 4 (a3) is passed over: cron cannot be 'x'" in problem
    assert [ident for ident, _, _ in world.runs] == ["a1", "a0"]
    kept = json.loads(world.path.read_text())["jobs"]
    assert [job.get("lastOutcome") for job in kept] == ["done", "done", "missed", None]
    assert kept[3] == jobs[3]


@pytest.mark.req("CRON-04")
async def test_while_the_file_is_damaged_nothing_runs_and_it_is_said(world: World) -> None:  # B074
    job = await world.store.add(draft(every("10s")), "cli")
    damage = Damage(world.path)
    with damage as data:
        async with world.gateway() as service:
            await world.passes(30)
            (problem,) = service.problems
            assert "line 3, column" in problem
            assert not service.readable
            assert service.last_tick == world.wall
            assert world.runs == []
            assert world.path.read_bytes() == data
            damage.__exit__()
            await world.passes(2)
            assert not service.problems
            assert len(world.runs) == 1
            held = world.hold(job.id)
            await world.passes(10)
            assert len(world.runs) == 2
            with Damage(world.path):
                held.set()
                await world.passes(60)
                assert len(world.runs) == 2
                assert service.running == 1
                assert "cannot be read" in service.problems[0]
            await world.passes(2)
            assert (len(service.problems), service.running) == (0, 0)
            assert (await world.job(job.id)).last_outcome == "done"
            await world.passes(10)
            assert len(world.runs) == 3


async def test_a_damaged_file_is_logged_once_and_not_each_second(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.store.add(draft(every("10s")), "cli")
    held = world.hold(job.id)
    async with world.gateway():
        await world.passes(10)
        with Damage(world.path):
            held.set()
            await world.passes(30)
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 2  # the look, and the end


@pytest.mark.req("CRON-04", "CRON-05")
async def test_a_run_that_was_cut_off_counts_as_failed_and_is_not_made_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:  # B071
    job = await world.store.add(draft(every("10s")), "cli")
    once = await world.store.add(draft(at("2026-05-01T08:00:10"), delete_after_run=True), "cli")
    world.hold(job.id)
    world.hold(once.id)
    async with world.gateway():
        await world.passes(11)
    assert len(world.runs) == 2
    world.sleeps(timedelta(seconds=25))  # two more were due meanwhile
    async with world.gateway():
        await world.passes(10)
        assert len(world.runs) == 2
        kept = await world.job(job.id)
        assert (kept.last_outcome, kept.failures, kept.running) == ("interrupted", 1, None)
        assert kept.next_run == START + timedelta(seconds=70)  # 36 s, and a back-off of 30
        over = await world.job(once.id)  # somebody should see it
        assert (over.last_outcome, over.draft.enabled, over.next_run) == ("interrupted", False, None)
        await world.passes(30)
    assert world.times(job.id) == ["01. 08:00:10", "01. 08:01:10"]
    assert sum("was cut off" in record.getMessage() for record in caplog.records) == 2


async def test_a_run_that_ends_the_program_each_time_comes_ever_more_rarely(world: World) -> None:  # B071
    job = await world.store.add(draft(every("10s")), "cli")
    world.hold(job.id)
    for _ in range(40):
        async with world.gateway():
            await world.passes(11)
    assert 3 <= len(world.runs) <= 5
    assert (await world.job(job.id)).failures == len(world.runs) - 1


@pytest.mark.parametrize(
    "outcome", [BubblesError("The model is gone."), ValueError("x"), TimeoutError(), "well", ""], ids=repr
)
async def test_a_run_that_fails_in_any_way_is_written_down_and_stops_no_other(world: World, outcome: object) -> None:
    bad = await world.store.add(draft(every("20s")), "cli")
    good = await world.store.add(draft(every("20s")), "cli")
    world.outcomes[bad.id] = outcome
    async with world.gateway():
        await world.passes(41)
    assert (await world.job(bad.id)).last_outcome == "failed"
    assert len(world.times(good.id)) == 2


async def test_a_file_that_is_gone_is_no_jobs(world: World) -> None:
    job = await world.store.add(draft(every("10s")), "cli")
    async with world.gateway() as service:
        held = world.hold(job.id)
        await world.passes(10)
        world.path.unlink()
        held.set()
        await world.passes(20)
        assert (service.jobs, len(service.problems), len(world.runs)) == (0, 0, 1)
        assert not world.path.exists()


async def test_nothing_is_written_when_nothing_happens(world: World) -> None:
    await world.store.add(draft(every("1d")), "cli")
    async with world.gateway():
        before = world.path.stat()
        await world.passes(150)
    assert world.path.stat() == before or world.path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.req("CRON-04")
async def test_who_leaves_begins_nothing_more_and_waits_for_what_runs(world: World) -> None:
    job = await world.store.add(draft(every("10s")), "cli")
    other = await world.store.add(draft(every("20s")), "cli")
    async with world.gateway() as service:
        held = world.hold(job.id)
        await world.passes(10)
        leaving = asyncio.create_task(service.leave())
        await world.passes(30)
        assert not leaving.done()
        held.set()
        await leaving
        assert service.running == 0
        assert (await world.job(job.id)).last_outcome == "done"
    assert len(world.runs) == 1
    assert (await world.job(other.id)).running is None


async def test_jobs_that_end_at_once_are_all_due_again(world: World) -> None:
    jobs = [await world.store.add(draft(every("10s")), "cli") for _ in range(40)]
    async with world.gateway():
        await world.passes(35)
    assert {len(world.times(job.id)) for job in jobs} == {3}


async def test_a_thousand_jobs_that_end_at_once_are_written_down_together(world: World) -> None:
    entry = {"name": "n", "message": "m", "session": "cli", "schedule": {"at": "2026-05-01T08:00:01Z"}}
    world.path.parent.mkdir()
    world.path.write_text(json.dumps({"jobs": [{"id": f"a{number}", **entry} for number in range(1_000)]}))
    async with world.gateway():
        began = time.perf_counter()
        await world.passes(2)
        assert time.perf_counter() - began < 5
    outcomes = [job.last_outcome for job in (await world.store.listing()).jobs]
    assert outcomes == ["done"] * 1_000
