"""Whoever keeps messages learns of each, once, what became of it (OPS-02)."""

from __future__ import annotations

import asyncio

import pytest

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, Trigger
from bubbles.dispatch.contract import Pending
from bubbles.dispatch.dispatcher import FULL, MAX_WAITING
from bubbles.providers.contract import Category, ProviderError
from bubbles.sessions.contract import SessionBusyError, TurnEnd
from tests.unit.dispatch.scene import Scene, a_turn_that_takes, done, echo, scene

pytestmark = pytest.mark.req("OPS-02")


async def says(here: Scene, text: str, ticket: str, trigger: Trigger = Trigger.USER, *, resumed: bool = False) -> None:
    address = Address(channel="fake", chat_id="1")
    await here.dispatcher.deliver(
        InboundMessage(address=address, sender="ann", text=text, trigger=trigger, ticket=ticket, resumed=resumed)
    )


def settled(here: Scene) -> list[tuple[Kind, tuple[str, ...], bool]]:
    return [(said.kind, said.settles, said.failed) for said in here.sent if said.settles and said.kind != Kind.WORKING]


async def test_a_reply_settles_what_it_answers_and_the_end_follows() -> None:
    async with scene() as here:
        await says(here, "hi", "a")
        await here.heard(1, Kind.END)
    assert [said.kind for said in here.sent] == [Kind.WORKING, Kind.REPLY, Kind.END]
    assert settled(here) == [(Kind.REPLY, ("a",), False), (Kind.END, ("a",), False)]
    assert here.begun == ["a"]


async def test_a_reply_settles_what_its_turn_took_in_too() -> None:
    play, begun, go = a_turn_that_takes()
    async with scene(play) as here:
        await says(here, "one", "a")
        await begun.wait()
        await says(here, "two", "b")
        go.set()
        await here.heard(1, Kind.END)
    assert settled(here) == [(Kind.REPLY, ("a", "b"), False), (Kind.END, ("a", "b"), False)]


@pytest.mark.parametrize("text", ["ok", "/status", "/compact", "/stop"])
async def test_what_no_model_gets_is_settled_by_what_is_said_to_it(text: str) -> None:
    async with scene() as here:
        await says(here, text, "a")
        await here.idle()
        await here.heard(1, Kind.NOTICE)
    assert settled(here)[0] == (Kind.NOTICE, ("a",), False)
    assert not here.begun


async def failing(_m: InboundMessage, _o: Origin, _b: TurnObserver, _p: Pending) -> TurnOutcome:
    return TurnOutcome(end=TurnEnd.FAILED, text="", turn="t", error=ProviderError(Category.UNAVAILABLE, "no"))


@pytest.mark.req("ERR-02")
@pytest.mark.parametrize("trigger", [Trigger.USER, Trigger.CRON])
async def test_a_turn_that_failed_is_over_too_and_a_job_learns_it_alone(trigger: Trigger) -> None:
    async with scene(failing) as here:
        await says(here, "hi", "a", trigger)
        await here.heard(1, Kind.END)
    expected = [(Kind.NOTICE, ("a",), False)] if trigger is Trigger.USER else []
    assert settled(here) == [*expected, (Kind.END, ("a",), True)]
    assert len(here.sent) == (3 if trigger is Trigger.USER else 1)


async def test_a_silent_turn_ends_without_a_word() -> None:
    async def silent(_m: InboundMessage, _o: Origin, observer: TurnObserver, _p: Pending) -> TurnOutcome:
        observer.notice("The history was summarised.")
        return done("")

    async with scene(silent) as here:
        await says(here, "look", "a", Trigger.HEARTBEAT)
        await here.heard(1, Kind.END)
    assert [(said.kind, said.failed) for said in here.sent] == [(Kind.END, False)]


@pytest.mark.parametrize("trigger", [Trigger.USER, Trigger.CRON])
async def test_what_finds_no_room_is_settled(trigger: Trigger) -> None:
    play, begun, go = a_turn_that_takes()
    async with scene(play) as here:
        await says(here, "first", "a")
        await begun.wait()
        for number in range(MAX_WAITING):
            await says(here, "more", f"m{number}", Trigger.CRON)
        await says(here, "too much", "z", trigger)
        kind = Kind.NOTICE if trigger is Trigger.USER else Kind.END
        await here.heard(1, kind)
        assert [(said.text, said.settles) for said in here.sent if said.kind is kind] == [
            (FULL if trigger is Trigger.USER else "", ("z",))
        ]
        go.set()


async def test_what_had_found_room_before_a_restart_is_not_refused_after_it() -> None:
    play, begun, go = a_turn_that_takes()
    async with scene(play) as here:
        for number in range(MAX_WAITING + 2):
            await says(here, "more", f"m{number}", resumed=True)
        await begun.wait()
        go.set()
        await here.heard(1, Kind.END)
    assert not [said for said in here.sent if said.kind is Kind.NOTICE]
    assert len(settled(here)[0][1]) == MAX_WAITING + 2


@pytest.mark.req("APPR-04")
async def test_what_an_earlier_process_took_answers_no_card_of_this_one() -> None:
    async with scene() as here:
        await says(here, "ok", "a", resumed=True)
        assert await here.heard(1, Kind.REPLY) == ["you said ok"]


async def test_what_comes_while_it_ends_begins_nothing_and_is_left_for_the_next_start() -> None:
    begun = asyncio.Event()
    texts = []

    async def goes_on(message: InboundMessage, _o: Origin, _b: TurnObserver, _p: Pending) -> TurnOutcome:
        texts.append(message.text)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await says(here, "while it ends", "b")
        raise AssertionError

    async with scene(goes_on) as here:
        await says(here, "one", "a")
        await begun.wait()
    await says(here, "after it", "c")
    assert (texts, settled(here)) == (["one"], [])


async def test_leaving_settles_nothing_that_was_cut_off_or_waits() -> None:
    play, begun, _ = a_turn_that_takes()
    async with scene(play) as here:
        await says(here, "one", "a")
        await begun.wait()
        await says(here, "two", "b", Trigger.CRON)
    assert settled(here) == []


async def test_a_turn_that_a_person_stopped_is_settled() -> None:
    play, begun, _ = a_turn_that_takes()
    async with scene(play) as here:
        await says(here, "one", "a")
        await begun.wait()
        await says(here, "/stop", "s")
        await here.idle()
        await here.heard(1, Kind.END)
    assert settled(here) == [(Kind.NOTICE, ("s",), False), (Kind.END, ("a",), True)]


async def test_nothing_of_tickets_is_said_where_nobody_keeps_messages() -> None:
    async with scene(echo) as here:
        await here.say("hi")
        await here.idle()
        await asyncio.sleep(0)
    assert [said.kind for said in here.sent] == [Kind.REPLY]


async def test_a_kept_message_waits_for_another_program_on_its_session() -> None:
    tries = iter([SessionBusyError("session work is in use by process 7"), None])

    async def busy_once(_m: InboundMessage, _o: Origin, _b: TurnObserver, _p: Pending) -> TurnOutcome:
        if (error := next(tries)) is not None:
            raise error
        return done("At last.")

    async with scene(busy_once) as here:
        await says(here, "hi", "a")
        assert await here.heard(1, Kind.REPLY) == ["At last."]
        await here.heard(1, Kind.END)
    assert here.begun == ["a"]
