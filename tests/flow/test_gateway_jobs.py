"""Turns that nobody began: what they see, what they may, and where what they say goes (CRON, HB)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.bus import Address
from bubbles.cron.contract import Job, JobKind, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.dispatch.heartbeat import TEMPLATE
from bubbles.providers.contract import Category, ModelRequest, ProviderError, ToolMessage
from bubbles.providers.scripted import Step, calls
from tests.gateway_at_work import AtWork, Disk, at_work, offered, results, said, texts

CHAT = Address(channel="telegram", chat_id="7")
KEY = "telegram.7"
RISKY = "python3 -c \"open('data/made', 'a').write('x')\""
SILENCE: Step = calls(("stay_silent", {"reason": "nothing new"}))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def ran(disk: Disk, job: Job) -> Job | None:
    """The job once it has run; None: it is gone with that."""
    async with asyncio.timeout(10):
        while True:
            found = next((each for each in await disk.jobs() if each.id == job.id), None)
            if found is None or (found.last_outcome and found.running is None):
                return found
            await asyncio.sleep(0.01)


def echo(request: ModelRequest) -> str:
    return f"You said: {texts(request)[-1]}"


async def talks(disk: Disk, here: AtWork, text: str) -> str:
    """Ann writes in the chat; the answer."""
    before = len(await said(disk.telegram, "7", 0))
    await disk.telegram.say(text, chat="7")
    return (await said(disk.telegram, "7", before + 1))[before]


@pytest.mark.req("CRON-01", "CRON-02", "CRON-06", "TOOL-10")
async def test_a_job_answers_in_its_chat_with_the_history_of_its_session_and_stays_in_it(disk: Disk) -> None:
    async with at_work(disk, echo) as here:
        await talks(disk, here, "my cat is called Tom")
    job = await disk.job("Feed the cat.", KEY, CHAT, delete_after_run=True)
    nowhere = await disk.job("Count the cats.", KEY)
    async with at_work(disk, echo) as here:
        assert await ran(disk, job) is None, "it was to go once it had run"
        kept = await ran(disk, nowhere)
        assert kept is not None
        assert (kept.last_outcome, kept.draft.enabled, kept.failures) == ("done", False, 0)
        await here.settled()
        assert len(disk.telegram.sent) == 2
        fed, counted = sorted(here.model.requests, key=lambda request: "Count" in texts(request)[-1])
        for request, message, goes in ((fed, "Feed", "the chat telegram:7"), (counted, "Count", "history alone")):
            assert texts(request)[0] == "my cat is called Tom"
            assert message in texts(request)[-1]
            assert goes in texts(request)[-1]
            assert "begun by a job" in request.system
            assert "cron" not in offered(request)
            assert "stay_silent" in offered(request)
        await talks(disk, here, "is he fed?")
        own = here.model.requests[-1]
        assert [message in " ".join(texts(own)) for message in ("Feed", "Count", "fed?")] == [True] * 3
        assert "cron" in offered(own)
        assert "stay_silent" not in offered(own)
    assert "Feed the cat." in (await said(disk.telegram, "7"))[1]


@pytest.mark.req("TOOL-10", "CRON-02")
async def test_of_a_silent_turn_nothing_is_sent_and_the_model_sees_nothing_later(disk: Disk) -> None:
    job = await disk.job("Is there news?", KEY, CHAT)
    look = calls(("list_dir", {"path": "."}), text="I look whether there is news.")
    async with at_work(disk, [look, SILENCE, "Hello."]) as here:
        silent = await ran(disk, job)
        assert silent is not None
        assert silent.last_outcome == "silent"
        assert await talks(disk, here, "hi") == "Hello."
        await here.settled()
        (_, piece) = disk.telegram.sent[0]
        assert (len(disk.telegram.sent), piece.text) == (1, "Hello.")
        assert texts(here.model.requests[-1]) == ["hi"]
        assert not results(here.model.requests[-1])


@pytest.mark.req("ERR-02", "CRON-05")
async def test_a_job_that_fails_says_so_to_nobody_and_waits_before_it_tries_again(disk: Disk) -> None:
    store = JobStore(disk.data_dir, lambda: datetime.now(UTC) - timedelta(seconds=110))
    once = await disk.job("Fail.", KEY, CHAT)
    every = Schedule(kind=ScheduleKind.EVERY, text="1m")
    again = await store.add(replace(once.draft, schedule=every), KEY)

    def think(request: ModelRequest) -> Step:
        if "Fail" in texts(request)[-1]:
            return ProviderError(Category.UNAVAILABLE, "down", retryable=False)
        return "Hello."

    async with at_work(disk, think) as here:
        for job, failures, is_on in ((once, 1, False), (again, 1, True)):
            failed = await ran(disk, job)
            assert failed is not None
            assert (failed.last_outcome, failed.failures, failed.draft.enabled) == ("failed", failures, is_on)
            if failed.next_run is not None:  # it would be due in 10 seconds, and then in 70
                assert failed.next_run - datetime.now(UTC) > timedelta(seconds=30)
        assert await talks(disk, here, "hi") == "Hello."
        await here.settled()
        assert len(disk.telegram.sent) == 1
        assert "unavailable" not in repr(here.model.requests[-1].messages)


@pytest.mark.req("APPR-02", "APPR-01", "DEC-08")
async def test_nobody_is_asked_for_a_job_and_the_next_chat_is_asked_as_ever(disk: Disk) -> None:
    """B036 and B046: what holds for a turn that nobody began is a fact of that turn."""

    def think(request: ModelRequest) -> Step:
        newest = request.messages[-1]
        return newest.text if isinstance(newest, ToolMessage) else calls(("exec", {"script": RISKY}))

    job = await disk.job("Make it.", KEY, CHAT)
    async with at_work(disk, think) as here:
        done = await ran(disk, job)
        assert done is not None
        assert done.last_outcome == "done"
        (told,) = await said(disk.telegram, "7")
        assert "declined at once, since nobody can be asked: this turn was begun by a scheduled job" in told
        assert not (disk.desk(KEY) / "data/made").exists()
        assert "May this run?" in await talks(disk, here, "make it")
        await disk.telegram.say("OK", chat="7")
        await here.settled()
    assert (disk.desk(KEY) / "data/made").read_text() == "x"
    outcomes = [(line["trigger"], line["outcome"]) for line in disk.timeline if line["event"] == "approval_resolved"]
    assert outcomes == [("cron", "nobody"), ("user", "approved")]


@pytest.mark.req("HB-01", "HB-02", "HB-03", "CRON-06", "TOOL-10")
async def test_a_heartbeat_reads_its_file_and_speaks_only_if_there_is_something_to_say(disk: Disk) -> None:
    async with at_work(disk, echo) as here:
        assert "every 30m" in await talks(disk, here, "/heartbeat 30m")
    file = disk.desk(KEY) / "HEARTBEATS.md"
    assert file.read_text() == TEMPLATE
    file.write_text("- the bread in the oven, at each look\n")
    (beat,) = await disk.jobs()
    assert (beat.kind, beat.draft.deliver_to) == (JobKind.HEARTBEAT, CHAT)
    for script, outcome, heard in (([SILENCE], "silent", []), (["The bread is done."], "done", ["The bread is done."])):
        await JobStore(disk.data_dir).ask(beat.id)
        before = len(disk.telegram.sent)
        async with at_work(disk, [*script, calls(("cron", {"action": "list"})), "None."]) as here:
            await here.model.asked()
            beaten = await ran(disk, beat)
            assert beaten is not None
            assert beaten.last_outcome == outcome
            await here.settled()
            assert [piece.text for _, piece in disk.telegram.sent[before:]] == heard
            request = here.model.requests[0]
            assert "the bread in the oven" in request.system
            assert "begun by the heartbeat" in request.system
            assert "cron" not in offered(request)
            assert "stay_silent" in offered(request)
            assert await talks(disk, here, "which jobs are there?") == "None."
            assert results(here.model.requests[-1])[-1] == "There are no jobs in this session."
            assert "the bread in the oven" not in here.model.requests[-1].system
            assert "Heartbeat: on, every 30m" in here.model.requests[-1].system


@pytest.mark.req("CRON-04", "CRON-01", "TOOL-06")
async def test_what_others_add_while_the_gateway_runs_is_run_and_nothing_of_it_is_lost(disk: Disk) -> None:
    """B075. ``ran`` and ``job`` are another program's eyes and hands: they know nothing of the gateway."""

    def think(request: ModelRequest) -> Step:
        if "bake" not in texts(request)[-1]:
            return SILENCE
        bread = {"action": "add", "message": "Bake.", "every": "2h", "name": "bread"}
        return "Added." if results(request) else calls(("cron", bread))

    slow = await disk.job("slow", "telegram.9")
    async with at_work(disk, think) as here:
        here.model.hold("slow")
        await here.model.asked()
        added = await disk.job("quick", "telegram.8", Address(channel="telegram", chat_id="8"))
        begun = asyncio.get_running_loop().time()
        assert await talks(disk, here, "please bake every two hours") == "Added."
        quick = await ran(disk, added)
        assert asyncio.get_running_loop().time() - begun < 2, "the gateway sees a change within two seconds"
        here.model.release()
        ended = await ran(disk, slow)
    assert quick is not None
    assert ended is not None
    assert (quick.last_outcome, ended.last_outcome) == ("silent", "silent")
    found = {job.draft.name: job for job in await disk.jobs()}
    assert found["bread"].draft.deliver_to == CHAT
    assert found["bread"].next_run is not None
    assert len(await disk.jobs()) == 3
