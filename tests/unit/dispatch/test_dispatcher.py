"""The dispatcher with turns that do as a test says."""

from __future__ import annotations

import asyncio

import pytest

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, Trigger
from bubbles.dispatch.contract import Pending, Policy
from bubbles.dispatch.dispatcher import FULL, MAX_WAITING
from bubbles.dispatch.notices import BROKEN, BUSY, CLI, USED_UP, of_provider
from bubbles.dispatch.slots import Slots
from bubbles.providers.contract import Category, ProviderError
from bubbles.sessions.contract import SessionBusyError, TurnEnd
from sandbox_backends.errors import InvalidSpecError
from tests.unit.dispatch.scene import CALL, IN_A_CHAT, a_turn_that_takes, done, scene


@pytest.mark.req("ERR-04")
async def test_an_answer_to_a_card_that_nobody_waits_for_is_over_at_once() -> None:
    async with scene() as here:
        await here.say("ok", channel=CLI)
        assert await here.heard(2) == ["Approved: x.", ""]
    assert here.sent[-1].kind is Kind.END


async def test_a_message_is_answered() -> None:
    async with scene() as here:
        await here.say("hello")
        assert await here.heard(1) == ["you said hello"]


@pytest.mark.req("CORE-05")
async def test_turns_of_one_session_never_overlap_and_keep_their_order() -> None:
    log: list[str] = []

    async def slow(message: InboundMessage, *_: object) -> TurnOutcome:
        log.append(f"begin {message.text}")
        await asyncio.sleep(0.01)
        log.append(f"end {message.text}")
        return done(message.text)

    async with scene(slow) as here:
        for number in range(4):
            await here.say(str(number))
        await here.heard(4)
    assert log == [f"{what} {number}" for number in range(4) for what in ("begin", "end")]


@pytest.mark.req("CORE-05")
async def test_sessions_run_in_parallel_up_to_the_cap() -> None:
    now = most = 0
    full = asyncio.Event()

    async def meet(message: InboundMessage, *_: object) -> TurnOutcome:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0.01)
        now -= 1
        return done(message.text)

    async with scene(meet, slots=3) as here:
        for number in range(9):
            await here.say("x", chat=str(number))
        await here.heard(9)
    assert most == 3


@pytest.mark.req("CORE-06")
async def test_what_is_written_while_a_turn_runs_is_offered_to_that_turn() -> None:
    taking, begun, go = a_turn_that_takes()
    async with scene(taking) as here:
        await here.say("first")
        await begun.wait()
        await here.say("second")
        await here.say("third")
        go.set()
        assert await here.heard(1) == ["first + second + third"]


async def test_what_no_turn_took_is_a_turn_of_its_own() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waiting(message: InboundMessage, *_: object) -> TurnOutcome:
        begun.set()
        await go.wait()
        return done(message.text)

    async with scene(waiting) as here:
        await here.say("first")
        await begun.wait()
        await here.say("second")
        go.set()
        assert await here.heard(2) == ["first", "second"]


@pytest.mark.req("CORE-06")
async def test_slash_commands_are_never_given_to_a_turn() -> None:
    taking, begun, go = a_turn_that_takes()
    async with scene(taking) as here:
        await here.say("first")
        await begun.wait()
        await here.say("second")
        await here.say("/compact")
        await here.say("third")
        await here.say("/status")
        assert await here.heard(1) == ["/status of fake.1"]  # at once
        go.set()
        assert (await here.heard(4))[1:] == ["first + second", "/compact of fake.1", "third"]


async def test_stop_ends_the_turn_and_what_waits_behind_it_goes_on() -> None:
    begun = asyncio.Event()

    async def stuck(message: InboundMessage, *_: object) -> TurnOutcome:
        begun.set()
        if message.text == "first":
            await asyncio.Event().wait()
        return done(message.text)

    async with scene(stuck) as here:
        await here.say("first")
        await begun.wait()
        await here.say("second")
        await here.say("/stop")
        assert await here.heard(2) == ["Stopped.", "second"]
        await here.idle()
        await here.say("/stop")
        assert (await here.heard(3))[2] == "Nothing runs here."


@pytest.mark.req("ERR-04")
@pytest.mark.parametrize("steps", [0, 1])
async def test_a_turn_that_is_stopped_before_it_begins_is_over_too(steps: int) -> None:
    begun: list[str] = []

    async def seen(message: InboundMessage, *_: object) -> TurnOutcome:
        begun.append(message.text)
        return done(message.text)

    async with scene(seen) as here:
        await here.say("first", channel="cli")
        for _ in range(steps):
            await asyncio.sleep(0)
        await here.say("/stop", channel="cli")
        assert sorted(await here.heard(2)) == ["", "Stopped."]
        await here.say("second", channel="cli")
        assert (await here.heard(4))[2:] == ["second", ""]
    assert begun == ["second"]


@pytest.mark.req("CORE-06", "ERR-04")
async def test_a_turn_takes_nothing_that_was_written_in_another_chat() -> None:
    taking, begun, go = a_turn_that_takes()

    def written(channel: str, text: str) -> InboundMessage:
        address = Address(channel=channel, chat_id="1")
        return InboundMessage(address=address, sender="ann", text=text, session_key="one")

    async with scene(taking) as here:
        await here.dispatcher.deliver(written("fake", "first"))
        await begun.wait()
        await here.dispatcher.deliver(written("cli", "second"))
        go.set()
        await here.heard(1, Kind.END)
    assert [(said.address.channel, said.text) for said in here.sent] == [
        ("fake", "first"),
        ("cli", "second"),
        ("cli", ""),
    ]


@pytest.mark.req("ERR-02")
@pytest.mark.parametrize("trigger", [Trigger.CRON, Trigger.HEARTBEAT, Trigger.BYSTANDER])
@pytest.mark.parametrize("text", ["/status", "/compact", "/bad", "/stop"])
async def test_a_slash_command_of_nobody_who_may_use_the_assistant_is_a_message(text: str, trigger: Trigger) -> None:
    async with scene() as here:
        await here.say(text, trigger=trigger)
        assert await here.heard(1) == [f"you said {text}"]


async def fail(*_: object) -> TurnOutcome:
    raise ZeroDivisionError("in /secret/path")


@pytest.mark.req("ERR-01", "ERR-02", "ERR-03")
async def test_a_failure_is_one_fixed_sentence_a_minute() -> None:
    async with scene(fail) as here:
        await here.say("one")
        assert await here.heard(1) == [BROKEN]
        await here.say("two")
        await here.idle()
        here.now_s = 61
        await here.say("three")
        assert await here.heard(2) == [BROKEN, BROKEN]
        await here.say("other chat", chat="2")
        assert len(await here.heard(3)) == 3


@pytest.mark.req("ERR-02")
@pytest.mark.parametrize("trigger", [Trigger.CRON, Trigger.HEARTBEAT, Trigger.BYSTANDER])
async def test_what_nobody_waits_for_fails_in_silence(trigger: Trigger) -> None:
    async with scene(fail) as here:
        await here.say("tick", trigger=trigger)
        await here.idle()
    assert here.sent == []


@pytest.mark.req("ERR-04")
async def test_the_command_line_always_learns_that_the_turn_is_over() -> None:
    async with scene(fail) as here:
        for number in range(3):
            await here.say("x", channel="cli")
            await here.heard(number + 1, Kind.END)
    assert [said.kind for said in here.sent] == [Kind.NOTICE, Kind.END, Kind.END, Kind.END]


@pytest.mark.req("PROV-08")
async def test_a_provider_that_fails_is_told_by_category_and_tries() -> None:
    async def failing(*_: object) -> TurnOutcome:
        error = ProviderError(Category.RATE_LIMIT, "429 from https://example.org/v1 with key sk-x")
        error.attempts = 3
        return TurnOutcome(end=TurnEnd.FAILED, text="", turn="t", error=error)

    async with scene(failing) as here:
        await here.say("x")
        (said,) = await here.heard(1)
    assert said == "The model gave no answer: rate limit (tried 3 times). Wait a little and try again."


def test_nobody_is_told_to_wait_a_little_for_a_quota_that_is_used_up() -> None:
    spent = ProviderError(Category.RATE_LIMIT, "insufficient_quota", retryable=False)
    assert of_provider(spent, IN_A_CHAT).endswith(f"rate limit (tried once). {USED_UP}")
    tomorrow = ProviderError(
        Category.RATE_LIMIT, "x", retryable=False, resets="2026-12-02 08:00 UTC, in about 20 hours"
    )
    assert of_provider(tomorrow, IN_A_CHAT).endswith(
        "(tried once). It is available again 2026-12-02 08:00 UTC, in about 20 hours."
    )


@pytest.mark.req("ERR-01")
async def test_errors_of_ours_are_told_at_the_owners_terminal_only() -> None:
    async def busy(*_: object) -> TurnOutcome:
        raise SessionBusyError("session work is in use by process 7 (/usr/bin/bubbles)")

    async with scene(busy) as here:
        await here.say("x")
        await here.say("x", channel="cli")
        said = await here.heard(2, Kind.NOTICE)
    assert said == [BUSY, "session work is in use by process 7 (/usr/bin/bubbles)"]

    async def nowhere(*_: object) -> TurnOutcome:
        raise InvalidSpecError("There is no sandbox backend 'dokcer'.")

    async with scene(nowhere) as here:
        await here.say("x")
        await here.say("x", channel="cli")
        assert await here.heard(2, Kind.NOTICE) == [BROKEN, "There is no sandbox backend 'dokcer'."]


@pytest.mark.req("ERR-01")
async def test_a_command_that_fails_shows_nothing_of_the_machine_in_a_chat() -> None:
    async with scene() as here:
        await here.say("/bad")
        await here.say("/bad", channel="cli")
        await here.say("/odd")
        told = [BROKEN, "that is not there: /secret/path", "/odd takes a number."]
        assert await here.heard(3, Kind.NOTICE) == told
        assert all(said.failed for said in here.sent if said.kind is Kind.NOTICE)


@pytest.mark.req("APPR-01")
async def test_an_answer_to_a_card_never_becomes_a_message() -> None:
    async with scene() as here:
        await here.say("ok")
        assert await here.heard(1) == ["Approved: x."]


async def test_a_flood_of_messages_is_bounded_and_said() -> None:
    begun = asyncio.Event()

    async def stuck(*_: object) -> TurnOutcome:
        begun.set()
        await asyncio.Event().wait()
        return done("")

    async with scene(stuck) as here:
        await here.say("first")
        await begun.wait()
        for _ in range(MAX_WAITING + 1):
            await here.say("more")
        assert await here.heard(1) == [FULL]


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), [(Kind.PROGRESS, "Let me look."), (Kind.REPLY, "Done.")]),
        (Policy(send_progress=False), [(Kind.REPLY, "Done.")]),
        (
            Policy(send_progress=False, send_tool_hints=True),
            [(Kind.HINT, 'exec("ls")'), (Kind.REPLY, "Done.")],
        ),
    ],
)
async def test_the_settings_say_what_of_a_turn_reaches_a_channel(
    policy: Policy, expected: list[tuple[Kind, str]]
) -> None:
    async def working(_m: InboundMessage, _o: Origin, observer: TurnObserver, _p: Pending) -> TurnOutcome:
        observer.text("what breaks off")
        observer.withdrawn()
        observer.text("Let me ")
        observer.text("look.")
        observer.reply_ended()
        observer.tool(CALL, 'exec("ls")')
        observer.text("Done.")
        observer.reply_ended()
        return done("Done.")

    async with scene(working, policy=policy) as here:
        await here.say("x")
        await here.heard(1, Kind.REPLY)
    assert [(said.kind, said.text) for said in here.sent] == expected


async def test_leaving_stops_what_runs_and_sends_what_was_said() -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    async def stuck(*_: object) -> TurnOutcome:
        try:
            begun.set()
            await asyncio.Event().wait()
            return done("")
        finally:
            ended.append("ended")

    async with scene(stuck) as here:
        await here.say("x", channel="cli")
        await begun.wait()
        await here.say("waits and is never begun", channel="cli")
    assert ended == ["ended"]
    assert [said.kind for said in here.sent] == [Kind.END]


@pytest.mark.req("APPR-03")
async def test_a_turn_that_waits_for_a_person_holds_no_place() -> None:
    slots = Slots(1)
    async with slots.held("a"):
        async with slots.away("a"), asyncio.timeout(5), slots.held("b"):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), slots.held("b"):
                pass
    async with slots.away("nobody"):
        pass
    async with asyncio.timeout(5), slots.held("b"):
        pass


@pytest.mark.req("APPR-03")
async def test_a_turn_that_is_stopped_while_it_waits_for_a_person_does_not_wait_for_a_place() -> None:
    slots = Slots(1)
    away = asyncio.Event()

    async def asking() -> None:
        async with slots.held("a"), slots.away("a"):
            away.set()
            await asyncio.Event().wait()

    asker = asyncio.create_task(asking())
    await away.wait()
    async with slots.held("b"):
        asker.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait({asker})
    assert asker.cancelled()
    async with asyncio.timeout(5), slots.held("c"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), slots.held("d"):
                pass
