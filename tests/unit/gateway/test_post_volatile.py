"""What is of use only while a turn runs: text on the way, the sign that somebody writes, approval cards."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from bubbles.bus import Kind
from bubbles.channels.contract import MaybeSentError, NotSentError, RefusedError, SendError, SlowDownError
from bubbles.gateway.outgoing import AGAIN
from tests.unit.gateway.post_desk import PAUSE_S, START, ScriptedChannel, address, desk_at, said

EDITING = partial(ScriptedChannel, edits=True)
TYPING = partial(ScriptedChannel, typing_s=5.0)


@pytest.mark.req("CORE-04")
async def test_text_on_the_way_goes_into_one_message_a_turn_that_is_edited_at_the_pace_of_the_platform(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        for turn in ("a", "b"):
            await post.put(said("", "7", Kind.WORKING))
            for number in range(10):
                await post.put(said(f"{turn}{number}", "7", Kind.PROGRESS if number % 2 else Kind.HINT))
                await desk.passes(0.5)
            await post.put(said(f"answer {turn}"))
            await post.put(said("", "7", Kind.END))
            await desk.passes(10)
        seen = [(each.text.split("\n")[-1], each.edits) for each in desk.channel.seen]
        assert seen == [
            *(("a0", None), ("a3", "m1"), ("a7", "m1"), ("answer a", None)),
            *(("b0", None), ("b3", "m5"), ("b7", "m5"), ("answer b", None)),
        ]
        assert desk.channel.seen[1].text == "a0\na1\na2\na3"
        assert await desk.rows() == []


@pytest.mark.req("CORE-04")
async def test_status_message_never_outgrows_the_platform_and_shows_the_newest_lines(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        for number in range(20):
            await post.put(said(f"{number} " + "x" * 300, "7", Kind.PROGRESS))
            await desk.passes(PAUSE_S)
        await post.put(said("long " * 1_000, "7", Kind.PROGRESS))
        await desk.passes(PAUSE_S)
        assert [line.split()[0] for line in desk.channel.texts()[19].split("\n")] == ["17", "18", "19"]
        assert desk.channel.texts()[20].startswith("long long")
        assert len(desk.channel.tries) == len(desk.channel.seen) == 21  # nothing was refused for its length


async def test_status_is_shown_before_the_answer_of_its_turn_or_not_at_all(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        desk.channel.stuck["7"] = asyncio.Event()
        await post.put(said("first", "7", Kind.PROGRESS))
        await desk.quiet()
        await post.put(said("second", "7", Kind.PROGRESS))
        await post.put(said("answer"))
        desk.channel.stuck["7"].set()
        await desk.passes(10)
        assert desk.channel.texts() == ["first", "answer"]


async def test_turn_that_ended_without_a_word_leaves_its_status_message_to_itself(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        for text in ("of the first", "of the second"):
            await post.put(said("", "7", Kind.WORKING))
            await post.put(said(text, "7", Kind.PROGRESS))
            await desk.passes(5)
            if text == "of the first":
                await post.put(said("", "7", Kind.END))
                await post.put(said("of a task", "7", Kind.HINT))
                await desk.passes(5)
        assert [(each.text, each.edits) for each in desk.channel.seen] == [
            ("of the first", None),
            ("of a task", None),
            ("of the second", None),
        ]


@pytest.mark.parametrize("progress", [True, False])
async def test_without_edits_each_text_is_a_message_of_its_own_where_the_platform_allows_it(
    tmp_path: Path, progress: bool
) -> None:
    make = partial(ScriptedChannel, progress=progress)
    async with desk_at(tmp_path, make) as desk, desk.post() as post:
        for text in ("one", "two"):
            await post.put(said(text, "7", Kind.PROGRESS))
        await desk.passes(5)
        assert desk.channel.texts() == (["one", "two"] if progress else [])


@pytest.mark.parametrize("error", [NotSentError("down"), MaybeSentError("lost"), RefusedError("no")])
async def test_text_on_the_way_is_never_sent_twice_and_delays_nothing_for_long(
    tmp_path: Path, error: SendError
) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        desk.channel.plans["7"].append(error)
        await post.put(said("one", "7", Kind.PROGRESS))
        await desk.passes(5)
        await post.put(said("two", "7", Kind.PROGRESS))
        await post.put(said("answer"))
        await desk.passes(5)
        assert desk.channel.texts() == ["answer"]
        assert desk.counted("dropped") == 0


async def test_text_on_the_way_waits_if_the_platform_says_so_and_is_left_out_where_much_waits(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        desk.channel.plans["7"].append(SlowDownError(7.0))
        await post.put(said("one", "7", Kind.PROGRESS))
        await desk.quiet()
        await post.put(said("two", "7", Kind.PROGRESS))
        await desk.passes(7)
        assert [(each.at - START, each.text) for each in desk.channel.seen] == [(7.0, "one\ntwo")]
        for number in range(4):
            await post.put(said(f"notice {number}", "7", Kind.NOTICE))
        await post.put(said("three", "7", Kind.PROGRESS))
        await desk.passes(20)
        assert desk.channel.texts()[1:] == [f"notice {number}" for number in range(4)]


async def test_platform_that_gives_no_id_gets_one_status_message_a_turn(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        desk.channel.nameless = True
        for text in ("one", "two"):
            await post.put(said(text, "7", Kind.PROGRESS))
            await desk.passes(5)
        assert desk.channel.texts() == ["one"]


async def test_somebody_is_seen_to_write_until_the_last_turn_of_the_chat_has_ended(tmp_path: Path) -> None:
    async with desk_at(tmp_path, TYPING) as desk, desk.post() as post:
        desk.channel.plans["typing"].extend([NotSentError("down"), None, KeyError("a fault")])
        await post.put(said("", "7", Kind.WORKING))
        await post.put(said("", "7", Kind.WORKING))
        await desk.passes(10)
        await post.put(said("", "7", Kind.END))
        await desk.passes(4)
        assert [at - START for at, _ in desk.channel.typed] == [0.0, 4.5, 9.0, 13.5]
        await post.put(said("", "7", Kind.END))
        await desk.passes(20)
        assert len(desk.channel.typed) == 4


async def test_end_of_a_command_does_not_end_the_sign_of_a_turn_whose_ticket_is_known(tmp_path: Path) -> None:
    async with desk_at(tmp_path, TYPING) as desk, desk.post() as post:
        turn, command = await desk.asked(), await desk.asked()
        await post.put(said("", "7", Kind.WORKING, turn))
        assert desk.ledger.undone == 2  # to begin settles nothing
        await post.put(said("", "7", Kind.END, command))
        await desk.passes(5)
        assert len(desk.channel.typed) == 2
        await post.put(said("", "7", Kind.END, turn))
        await desk.passes(20)
        assert len(desk.channel.typed) == 2


async def test_nobody_is_seen_to_write_for_longer_than_ten_minutes(tmp_path: Path) -> None:
    async with desk_at(tmp_path, TYPING) as desk, desk.post() as post:
        await post.put(said("", "7", Kind.WORKING))
        await desk.passes(700)
        assert 590 < desk.channel.typed[-1][0] - START < 600
        await post.put(said("", "7", Kind.WORKING))
        await desk.passes(1)
        assert desk.channel.typed[-1][0] - START == 700


@pytest.mark.req("APPR-01")
async def test_card_goes_behind_what_waits_and_returns_once_the_platform_has_all_of_it(tmp_path: Path) -> None:
    async with desk_at(tmp_path, EDITING) as desk, desk.post() as post:
        await post.put(said("before"))
        await post.put(said("on the way", "7", Kind.PROGRESS))
        asking = asyncio.create_task(post.card(address(), "may I " * 200, "c1"))
        await desk.passes(PAUSE_S)
        await post.put(said("after", "7", Kind.NOTICE))
        assert not asking.done()
        await desk.passes(10)
        assert await asking == "m3"
        assert [each.card for each in desk.channel.seen[:5]] == [None, None, "c1", None, None]
        assert desk.channel.texts()[0] == "before"
        assert " ".join(desk.channel.texts()[1:3]).split() == ["may", "I"] * 200
        assert desk.channel.texts()[3:] == ["after", "on the way"]
        assert [post.card_of(address(), ident) for ident in ("m1", "m2", "m3", "m4")] == [None, "c1", "c1", None]
        assert post.card_of(address("8"), "m3") is None
        await post.retouch(address(), "m3", "allowed")
        await desk.passes(PAUSE_S)
        last = desk.channel.seen[-1]
        assert (last.text, last.edits, last.card) == ("allowed", "m3", None)


@pytest.mark.req("APPR-01")
async def test_cancelled_card_that_was_not_sent_never_comes(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk, desk.post() as post:
        await post.put(said("before"))
        asking = asyncio.create_task(post.card(address(), "may I?", "c1"))
        await desk.quiet()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        under_way = asyncio.create_task(post.card(address("8"), "and I?", "c2"))
        desk.channel.plans["8"].append(SlowDownError(5.0))
        await desk.quiet()
        under_way.cancel()
        await desk.passes(20)
        assert desk.channel.texts() == ["before"]
        assert desk.channel.texts("8") == []
        assert (post.waiting, desk.counted("dropped")) == (0, 0)


@pytest.mark.req("APPR-01")
async def test_card_that_does_not_come_is_told(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        async with desk.post() as post:
            desk.channel.plans["1"].append(RefusedError("blocked"))
            desk.channel.plans["2"].extend([NotSentError("down")] * 100)
            desk.channel.plans["3"].extend([MaybeSentError("lost"), None])
            asking = [asyncio.create_task(post.card(address(str(chat)), "may I?", "c")) for chat in range(1, 4)]
            await desk.passes(200)
            came = await asyncio.gather(*asking, return_exceptions=True)
            assert [type(each) for each in came] == [RefusedError, NotSentError, str]
            assert desk.channel.texts("3") == [f"{AGAIN}\n\nmay I?"]
            with pytest.raises(RefusedError, match="cron is not on"):
                await post.card(address("1", "cron"), "may I?", "c")
            desk.channel.plans["4"].extend([NotSentError("down")] * 100)
            left = asyncio.create_task(post.card(address("4"), "may I?", "c"))
            await desk.quiet()
        with pytest.raises(NotSentError, match="the program ends"):
            await left
        with pytest.raises(SendError):
            await post.card(address(), "may I?", "c")


async def test_change_of_a_message_is_left_out_where_there_are_none_and_made_once_more_after_a_doubt(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path, EDITING) as desk:
        plain = ScriptedChannel(desk.time, "plain")
        async with desk.post(plain) as post:
            await post.retouch(address("7", "plain"), "m1", "allowed")
            await post.retouch(address("7", "cron"), "m1", "allowed")
            desk.channel.plans["7"].append(MaybeSentError("lost"))
            await post.retouch(address(), "m1", "allowed")
            await desk.passes(10)
            assert desk.channel.texts() == ["allowed"]
            assert plain.tries == []
