"""What is put is on the disk, and then arrives: in order, at the platform's pace, whatever the platform says."""

from __future__ import annotations

import asyncio
import logging
import resource
from functools import partial
from pathlib import Path

import pytest

from bubbles.bus import Kind, OutboundMessage
from bubbles.channels.contract import ChannelError, MaybeSentError, NotSentError, RefusedError, SlowDownError
from bubbles.gateway.lane import MAX_WAITING
from bubbles.gateway.outgoing import AGAIN, DAY_S
from tests.unit.gateway.post_desk import GROUP_PAUSE_S, PAUSE_S, ScriptedChannel, address, desk_at, said


@pytest.mark.req("CHAN-08")
async def test_long_reply_arrives_in_order_in_pieces_that_fit_at_the_pace_of_the_platform(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(1_300)]
    text = " ".join(words)
    assert len(text) > 10_000
    async with desk_at(tmp_path) as desk, desk.post() as post:
        await post.put(said(text))
        await post.put(said("and this"))
        await desk.passes(15 * PAUSE_S)
        texts = desk.channel.texts()
        assert all(len(piece) <= 1_000 for piece in texts)
        assert " ".join(texts).split() == [*words, "and", "this"]
        assert desk.channel.moments() == [number * PAUSE_S for number in range(len(texts))]
        assert (post.waiting, await desk.rows()) == (0, [])
        assert desk.counted("sent") == len(texts)


async def test_group_has_a_pause_of_its_own_and_its_answer_replies_to_the_message_that_was_asked(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        ticket, later = await desk.asked("g", is_group=True), await desk.asked("g", is_group=True)
        alone = await desk.asked("7")
        await post.put(said("w " * 700, "g", Kind.REPLY, ticket, later))
        await post.put(said("nothing asked", "g"))
        await post.put(said("in private", "7", Kind.REPLY, alone))
        await post.put(said("of another chat", "g", Kind.REPLY, await desk.asked("h", is_group=True)))
        await desk.passes(20)
        group = [each for each in desk.channel.seen if each.chat == "g"]
        assert [each.reply_to for each in group] == ["q1", None, None, None]
        assert desk.channel.moments("g") == [number * GROUP_PAUSE_S for number in range(4)]
        assert [each.reply_to for each in desk.channel.seen if each.chat == "7"] == [None]
        assert desk.ledger.undone == 0


@pytest.mark.req("OPS-02")
async def test_answer_and_what_it_settles_are_on_the_disk_when_put_returns_though_the_platform_is_stuck(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.stuck["7"] = asyncio.Event()
        await post.put(said("answer", "7", Kind.REPLY, await desk.asked()))
        await post.put(said("more"))
        await desk.quiet()
        assert desk.ledger.undone == 0
        assert await desk.rows() == [("answer", True), ("more", False)]
        assert desk.channel.seen == []
        desk.channel.stuck["7"].set()
        await desk.passes(PAUSE_S)
        assert desk.channel.texts() == ["answer", "more"]
        assert await desk.rows() == []


async def test_slow_or_broken_chat_or_channel_delays_no_other(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        other = ScriptedChannel(desk.time, "other")
        async with desk.post(other) as post:
            desk.channel.stuck["7"] = asyncio.Event()
            desk.channel.plans["8"].extend([NotSentError("down")] * 100)
            other.plans["9"].extend([SlowDownError(500.0)] * 100)
            for chat in ("7", "8", "6"):
                await post.put(said("hello", chat))
                await post.put(said("again", chat))
            await post.put(said("hello", "9", channel="other"))
            await post.put(said("hello", "6", channel="other"))
            await desk.passes(PAUSE_S + 0.1)
            assert desk.channel.texts("6") == ["hello", "again"]
            assert desk.channel.moments("6") == [0.0, PAUSE_S]
            assert other.texts("6") == ["hello"]
            assert {each.chat for each in [*desk.channel.seen, *other.seen]} == {"6"}


async def test_all_chats_of_a_channel_together_keep_its_pace(tmp_path: Path) -> None:
    async with desk_at(tmp_path, partial(ScriptedChannel, per_second=4.0)) as desk, desk.post() as post:
        for number in range(9):
            await post.put(said("hello", str(number)))
        await desk.passes(10)
        assert sorted(at - desk.channel.tries[0][0] for at, _ in desk.channel.tries) == [
            number * 0.25 for number in range(9)
        ]


@pytest.mark.req("CHAN-07")
async def test_platform_that_says_when_is_asked_again_then_and_not_before(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].extend([SlowDownError(17.0), SlowDownError(0.0), None])
        await post.put(said("hello"))
        await desk.quiet()
        assert await desk.rows() == [("hello", False)]
        await desk.passes(30)
        assert desk.channel.moments() == [0.0, 17.0, 17.0 + PAUSE_S]
        assert desk.channel.texts() == ["hello"]
        assert (desk.counted("send_failures"), desk.counted("dropped")) == (2, 0)


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize("error", [NotSentError("down"), ChannelError("down")])
async def test_what_was_not_sent_is_tried_again_at_growing_intervals_for_a_day_and_then_given_up(
    tmp_path: Path, error: ChannelError, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].extend([error] * 10_000)
        await post.put(said("my secret"))
        await desk.passes(200)
        assert desk.channel.moments()[:9] == [0, 2, 4, 8, 16, 32, 64, 124, 184]  # the pause is 2 s
        assert await desk.rows() == [("my secret", False)]
        desk.time.turn_to(desk.time.now + DAY_S)
        await desk.passes(60)
        await desk.quiet()
        assert await desk.rows() == []
        assert (desk.counted("dropped"), post.waiting) == (1, 0)
    assert "given up" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.req("CHAN-07")
async def test_channel_that_is_back_is_tried_at_once(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].extend([NotSentError("down")] * 7)
        await post.put(said("hello"))
        await desk.passes(70)
        assert desk.channel.texts() == []
        post.connected("fake")
        await desk.quiet()
        assert desk.channel.texts() == ["hello"]


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize("doubt", [MaybeSentError("lost"), KeyError("a fault"), "no answer"])
async def test_what_may_have_arrived_is_sent_once_more_and_says_so(
    tmp_path: Path, doubt: Exception | str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "bubbles.gateway.lane")
    async with desk_at(tmp_path) as desk:
        if isinstance(doubt, Exception):
            desk.channel.plans["7"].append(doubt)
        else:
            desk.channel.stuck["7"], desk.send_timeout_s = asyncio.Event(), 0.05
        async with desk.post() as post:
            await post.put(said("hello"))
            while not desk.counted("send_failures"):
                await desk.quiet()
            desk.channel.stuck.clear()
            assert await desk.rows() == [("hello", True)]
            desk.channel.plans["7"].append(NotSentError("down"))
            await desk.passes(1 + PAUSE_S)
            assert await desk.rows() == [("hello", True)]  # of the first try nobody knows more than before
            await desk.passes(10)
            assert desk.channel.texts() == [f"{AGAIN}\n\nhello"]
            assert await desk.rows() == []


async def test_what_is_in_doubt_a_second_time_is_not_sent_a_third_time(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].extend([MaybeSentError("lost")] * 2)
        await post.put(said("hello"))
        await post.put(said("next"))
        await desk.passes(100)
        assert len(desk.channel.tries) == 3
        assert desk.channel.texts() == ["next"]
        assert desk.counted("dropped") == 1


async def test_full_piece_that_is_sent_again_still_fits_and_is_whole(tmp_path: Path) -> None:
    text = "x" * 990
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].append(MaybeSentError("lost"))
        await post.put(said(text))
        await desk.passes(20)
        assert desk.channel.texts()[0].startswith(AGAIN)
        assert "".join(desk.channel.texts()).replace("\n", "") == AGAIN + text


@pytest.mark.req("CHAN-08")
async def test_refused_message_is_dropped_and_the_next_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.plans["7"].append(RefusedError("the bot was blocked"))
        await post.put(said("my secret"))
        await post.put(said("next"))
        await desk.passes(PAUSE_S)
        assert desk.channel.texts() == ["next"]
        assert (desk.counted("dropped"), desk.counted("sent")) == (1, 1)
        assert await desk.rows() == []
    assert "the bot was blocked" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.req("OPS-02")
async def test_next_program_sends_what_is_left_in_order_and_says_so_of_what_was_under_way(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        async with desk.post() as post:
            desk.channel.stuck["7"] = asyncio.Event()
            for text in ("one", "two"):
                await post.put(said(text))
            await desk.quiet()
        assert await desk.rows() == [("one", True), ("two", False)]
        await post.put(said("three"))  # of somebody who is still at work while it ends
        desk.channel.stuck.clear()
        async with desk.post():
            await desk.passes(2 * PAUSE_S)
            assert desk.channel.texts() == [f"{AGAIN}\n\none", "two", "three"]
            assert await desk.rows() == []


async def test_leaving_gives_what_is_queued_two_seconds_and_no_longer(tmp_path: Path) -> None:
    async with desk_at(tmp_path, partial(ScriptedChannel, pause_s=0.9)) as desk:
        async with desk.post() as post:
            for text in ("one", "two", "three", "four"):
                await post.put(said(text))
        assert desk.channel.texts() == ["one", "two", "three"]
        assert await desk.rows() == [("four", False)]
        assert desk.time.now - desk.channel.tries[0][0] <= 3


async def test_what_is_a_day_old_at_the_start_is_given_up_and_what_is_for_another_day_stays(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        off = ScriptedChannel(desk.time, "off")
        async with desk.post(off) as post:
            for channel in ("fake", "off"):
                (desk.channel if channel == "fake" else off).plans["7"].extend([NotSentError("down")] * 100)
                await post.put(said(f"old {channel}", channel=channel))
            desk.time.turn_to(desk.time.now + DAY_S - 100)
            off.plans["8"].extend([NotSentError("down")] * 100)
            await post.put(said("new", "8", channel="off"))
        desk.time.turn_to(desk.time.now + 200)
        async with desk.post():
            await desk.passes(10)
            assert [text for text, _ in await desk.rows()] == ["new"]
            assert (desk.counted("dropped"), desk.counted("dropped", "off")) == (1, 1)


async def test_nothing_is_sent_to_no_channel_but_what_it_settles_is_settled(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        desk.channel.name = "another"
        async with desk.post() as post:
            ticket = await desk.asked()
            await post.put(said("of a job", "x", Kind.REPLY, ticket, channel="cron"))
            assert (desk.ledger.undone, await desk.rows()) == (0, [])
            await post.put(said("w " * 700, "7"))  # somebody has written there: its channel is off today
            await post.put(said("", "x", Kind.END, "job:1", channel="cron"))
        desk.channel.name = "fake"
        async with desk.post():
            await desk.passes(PAUSE_S)
            assert " ".join(desk.channel.texts()).split() == ["w"] * 700


async def test_end_settles_what_no_answer_has_settled_and_nothing_is_seen_of_it(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        ticket = await desk.asked()
        failed = OutboundMessage(address=address(), text="", kind=Kind.END, failed=True, settles=(ticket, "job:1"))
        await post.put(failed)
        await post.put(said("", "7", Kind.END))
        await post.put(said("a task", "7", Kind.TASK))
        await post.put(said(" \n", "7"))
        await desk.passes(5)
        assert desk.ledger.undone == 0
        assert desk.channel.tries == []


async def test_chat_that_takes_nothing_keeps_the_newest_and_answers_longer_than_notices(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.stuck["7"] = asyncio.Event()
        await post.put(said("under way", "7", Kind.NOTICE))
        for number in range(MAX_WAITING - 1):
            await post.put(said(f"notice {number}", "7", Kind.NOTICE if number < 2 else Kind.REPLY))
        assert post.waiting == MAX_WAITING
        for number in range(3):
            await post.put(said(f"new {number}"))
        await desk.quiet()
        assert post.waiting == MAX_WAITING
        left = [text for text, _ in await desk.rows()]
        assert left[:2] == ["under way", "notice 3"]
        assert left[-3:] == ["new 0", "new 1", "new 2"]
        assert desk.counted("dropped") == 3
        desk.channel.stuck["7"].set()


@pytest.mark.req("OPS-02")
async def test_put_that_is_cancelled_is_brought_to_its_end(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        putting = asyncio.create_task(post.put(said("hello", "7", Kind.REPLY, await desk.asked())))
        await asyncio.sleep(0)
        putting.cancel()
        (came,) = await asyncio.gather(putting, return_exceptions=True)
        assert isinstance(came, asyncio.CancelledError)
        await desk.passes(1)
        assert desk.channel.texts() == ["hello"]
        assert (desk.ledger.undone, await desk.rows()) == (0, [])


async def test_answer_that_the_disk_does_not_take_arrives_all_the_same_and_is_settled_with_the_next(
    tmp_path: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with desk_at(tmp_path) as desk, desk.post() as post:
        ticket = await desk.asked()
        await post.put(said("before", "8"))
        await desk.quiet()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            await post.put(said("hello", "7", Kind.REPLY, ticket))
            await post.put(said("", "7", Kind.END, ticket))
            await desk.passes(1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert desk.channel.texts() == ["hello"]
        assert desk.ledger.undone == 1
        await post.put(said("more"))
        await desk.passes(5)
        assert desk.channel.texts() == ["hello", "more"]
        assert (desk.ledger.undone, await desk.rows()) == (0, [])


async def test_what_arrived_while_the_disk_took_nothing_is_taken_from_it_later(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with desk_at(tmp_path) as desk, desk.post() as post:
        desk.channel.stuck["7"] = asyncio.Event()
        await post.put(said("hello"))
        await desk.quiet()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            desk.channel.stuck["7"].set()
            await desk.passes(1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert desk.channel.texts() == ["hello"]
        assert await desk.rows() == [("hello", True)]
        await post.put(said("more"))
        await desk.passes(5)
        assert await desk.rows() == []


async def test_chats_that_are_quiet_cost_nothing(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        tasks = len(asyncio.all_tasks())
        for number in range(50):
            await post.put(said("", str(number), Kind.WORKING))
            await post.put(said("on the way", str(number), Kind.PROGRESS))
            await post.put(said("hello", str(number)))
            await post.put(said("", str(number), Kind.END))
        await desk.passes(PAUSE_S + 1)
        assert len(desk.channel.seen) >= 50
        assert len(asyncio.all_tasks()) == tasks
        assert not post._lanes
        assert not post._presences
