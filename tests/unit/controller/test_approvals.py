"""The broker: who may answer what, when, and that every other end is a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.approvals.answers import understood
from bubbles.controller.approvals.broker import ID_LETTERS, ApprovalBroker
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome

CHAT = Address(channel="telegram", chat_id="7")
OTHER = Address(channel="telegram", chat_id="8")
ORIGIN = Origin(session_key="telegram-7", address=CHAT, sender="ann")


@dataclass(slots=True, kw_only=True)
class ChatApprover:
    """Keeps what it was told; its answers come by the broker."""

    shown: asyncio.Queue[ApprovalCard] = field(default_factory=asyncio.Queue)
    closed: list[tuple[str, Outcome]] = field(default_factory=list)
    breaks: Exception | None = None
    answers: Answer | None = None
    hang: bool = False
    arrives: asyncio.Event | None = None
    """What the card is on its way until."""

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        self.shown.put_nowait(card)
        if self.hang:
            await asyncio.Event().wait()
        if self.arrives is not None:
            await self.arrives.wait()
        if self.breaks is not None:
            raise self.breaks
        return self.answers

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        self.closed.append((card.id, answer.outcome))
        if self.breaks is not None:
            raise self.breaks


def card(broker: ApprovalBroker, command: str = "git push") -> ApprovalCard:
    return ApprovalCard(
        id=broker.new_id(),
        command=command,
        segment=command,
        reason="No rule allows it.",
        directory="/work/project",
        sandbox="local",
        network="full",
    )


@dataclass(slots=True, kw_only=True)
class Chat:
    """A broker with one chat behind it, and turns that ask in it."""

    approver: ChatApprover = field(default_factory=ChatApprover)
    timeout_s: float = 5.0
    max_open: int = 20
    broker: ApprovalBroker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = ApprovalBroker(lambda _: self.approver, timeout_s=self.timeout_s, max_open=self.max_open)

    async def ask(self, origin: Origin = ORIGIN) -> tuple[ApprovalCard, asyncio.Task[Answer]]:
        asked = card(self.broker)
        task = asyncio.create_task(self.broker.ask(asked, origin))
        await self.approver.shown.get()
        return asked, task

    def says(self, text: str, origin: Origin = ORIGIN, reply_to: str | None = None) -> str | None:
        heard = self.broker.answer(text, origin=origin, reply_to=reply_to)
        return None if heard is None else heard.say


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(
    ("text", "approves"),
    [
        *[(text, True) for text in ("OK", "ok", "同意", "yes", "Y", " ok. ", "OK!", "同意。", "Yes\n")],
        *[(text, False) for text in ("no", "No.", "拒绝", "n", "N !")],
    ],
)
def test_a_word_is_an_answer(text: str, approves: bool) -> None:
    word = understood(text)
    assert word is not None
    assert word.approves is approves


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(
    "text",
    [
        "ok let us",
        "okay",
        "not ok",
        "",
        ".",
        "yes no",
        "/approved k7m3",
        "x /approve k7m3",
        "ok" + "!" * 200,
        "нет",
        "ok?",
        "OK??",
        "yes？",
        "同意？",
        "ok?!",
        "no?",
        "/ok",
    ],
)
def test_anything_else_is_a_message(text: str) -> None:
    assert understood(text) is None


@pytest.mark.req("APPR-01")
async def test_approved_card_says_who_approved_it() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    assert chat.says("ok", replace(ORIGIN, sender="bob")) == f"Approved: {asked.id}."
    answer = await turn
    assert (answer.outcome, answer.by, answer.approved) == (Outcome.APPROVED, "bob", True)
    assert chat.approver.closed == [(asked.id, Outcome.APPROVED)]


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(("text", "outcome"), [("/approve {}", Outcome.APPROVED), ("/deny {}", Outcome.DENIED)])
async def test_slash_command_names_the_card(text: str, outcome: Outcome) -> None:
    chat = Chat()
    first, waiting = await chat.ask()
    asked, turn = await chat.ask()
    heard = chat.broker.answer(text.format(asked.id.upper()), origin=ORIGIN)
    assert heard is not None
    assert heard.card == asked
    assert heard.approved is (outcome is Outcome.APPROVED)
    assert (await turn).outcome is outcome
    assert chat.broker.open_cards(CHAT) == (first,)
    waiting.cancel()


@pytest.mark.req("APPR-01")
async def test_another_chat_learns_no_more_of_a_card_than_of_none() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    elsewhere = replace(ORIGIN, address=OTHER)
    foreign, unknown = chat.says(f"/approve {asked.id}", elsewhere), chat.says("/approve zzzz", elsewhere)
    assert foreign is not None
    assert unknown is not None
    assert foreign.replace(asked.id, "zzzz") == unknown
    assert chat.says("ok", elsewhere) is None
    assert not turn.done()
    turn.cancel()


@pytest.mark.req("APPR-01")
async def test_bystander_in_the_same_chat_answers_nothing() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    bystander = replace(ORIGIN, sender="eve", trigger=Trigger.BYSTANDER)
    assert chat.says("ok", bystander) is None
    assert "waits here" in (chat.says(f"/approve {asked.id}", bystander) or "")
    assert chat.broker.open_cards(CHAT) == (asked,)
    turn.cancel()


@pytest.mark.req("APPR-01")
async def test_second_answer_has_no_effect() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    assert chat.says("no") == f"Declined: {asked.id}."
    assert "waits here" in (chat.says(f"/approve {asked.id}") or "")  # before the turn has seen the first
    assert (await turn).outcome is Outcome.DENIED
    assert "waits here" in (chat.says(f"/approve {asked.id}") or "")
    assert chat.says("ok") is None


@pytest.mark.req("APPR-03")
async def test_bare_ok_with_several_open_cards_counts_only_as_a_reply() -> None:
    chat = Chat()
    (first, one), (second, two) = await chat.ask(), await chat.ask()
    asked_back = chat.says("OK")
    assert asked_back is not None
    assert first.id in asked_back
    assert second.id in asked_back
    assert not one.done()
    assert chat.says("OK", reply_to=second.id) == f"Approved: {second.id}."
    assert (await two).approved
    assert "waits here" in (chat.says("OK", reply_to=second.id) or "")  # never taken for the one that is left
    assert chat.says("OK") == f"Approved: {first.id}."
    assert (await one).approved


@pytest.mark.req("APPR-01")
async def test_words_are_messages_when_no_card_is_open() -> None:
    chat = Chat()
    assert chat.says("ok") is None
    assert chat.says("/approve") == "Nothing waits for an answer here."


@pytest.mark.req("APPR-02")
async def test_no_answer_in_time_is_a_refusal_and_the_model_is_told() -> None:
    chat = Chat(timeout_s=0.02)
    asked, turn = await chat.ask()
    answer = await turn
    assert (answer.outcome, answer.by) == (Outcome.TIMED_OUT, "")
    assert "0.02 seconds" in answer.told
    assert chat.approver.closed == [(asked.id, Outcome.TIMED_OUT)]
    assert chat.says("ok") is None


@pytest.mark.req("APPR-02")
@pytest.mark.parametrize("trigger", [Trigger.CRON, Trigger.HEARTBEAT, Trigger.BYSTANDER])
async def test_turn_that_no_person_began_is_declined_at_once_and_later_chats_are_asked(trigger: Trigger) -> None:
    """B036 and B046."""
    chat = Chat()
    answer = await chat.broker.ask(card(chat.broker), replace(ORIGIN, trigger=trigger))
    assert answer.outcome is Outcome.NOBODY
    assert "at once" in answer.told
    assert chat.approver.shown.empty()
    _, turn = await chat.ask()
    chat.says("ok")
    assert (await turn).approved


@pytest.mark.req("APPR-02")
async def test_where_no_approver_exists_everything_is_declined() -> None:
    """B045."""
    broker = ApprovalBroker(lambda _: None)
    assert (await broker.ask(card(broker), ORIGIN)).outcome is Outcome.NOBODY


async def test_card_that_cannot_be_shown_is_declined() -> None:
    chat = Chat(approver=ChatApprover(breaks=OSError("the network is down")))
    _, turn = await chat.ask()
    assert (await turn).outcome is Outcome.NOT_SHOWN
    assert chat.broker.open_cards(CHAT) == ()


@pytest.mark.req("APPR-01")
async def test_only_a_card_that_has_been_shown_can_be_answered() -> None:
    arrives = asyncio.Event()
    chat = Chat(approver=ChatApprover(arrives=arrives))
    asked, turn = await chat.ask()
    assert chat.says("OK") is None
    assert "not been shown" in (chat.says("OK", reply_to=asked.id) or "")
    assert "not been shown" in (chat.says(f"/approve {asked.id}") or "")
    assert "not been shown" in (chat.says(f"/deny {asked.id}") or "")
    await asyncio.sleep(0)
    assert not turn.done()
    arrives.set()
    await asyncio.sleep(0.01)
    assert chat.says("OK") == f"Approved: {asked.id}."
    assert (await turn).approved


@pytest.mark.req("APPR-01", "APPR-03")
async def test_bare_word_is_for_the_card_that_is_seen_and_not_for_one_on_its_way() -> None:
    chat = Chat()
    seen, one = await chat.ask()
    chat.approver.arrives = asyncio.Event()
    unseen, two = await chat.ask()
    assert chat.says("OK") == f"Approved: {seen.id}."
    assert (await one).approved
    assert chat.says("OK") is None
    assert chat.broker.open_cards(CHAT) == (unseen,)
    two.cancel()


async def test_approver_that_waits_for_the_answer_itself_is_not_answered_from_elsewhere() -> None:
    chat = Chat(approver=ChatApprover(hang=True), timeout_s=0.05)
    _, turn = await chat.ask()
    assert chat.says("ok") is None
    assert (await turn).outcome is Outcome.TIMED_OUT


async def test_card_says_how_long_it_waits() -> None:
    chat = Chat(timeout_s=7.0)
    asked, turn = await chat.ask()
    assert asked.timeout_s is None
    assert chat.broker.open_cards(CHAT)[0].timeout_s == 7.0
    turn.cancel()


async def test_approver_may_answer_itself() -> None:
    chat = Chat(approver=ChatApprover(answers=Answer(outcome=Outcome.APPROVED, by="terminal", told="yes")))
    _, turn = await chat.ask()
    assert (await turn).by == "terminal"


@pytest.mark.req("APPR-04")
async def test_cancelling_the_turn_closes_its_card() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert chat.approver.closed == [(asked.id, Outcome.CANCELLED)]
    assert "waits here" in (chat.says(f"/approve {asked.id}") or "")


@pytest.mark.req("APPR-04")
async def test_turn_that_is_cancelled_in_the_instant_of_its_approval_does_not_run() -> None:
    chat = Chat()
    _, turn = await chat.ask()
    chat.says("ok")
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_one_chat_has_a_bounded_number_of_open_cards_and_others_their_own() -> None:
    chat = Chat(max_open=2)
    turns = [(await chat.ask())[1], (await chat.ask())[1]]
    third = await chat.broker.ask(card(chat.broker), ORIGIN)
    assert (third.outcome, "2 questions" in third.told) == (Outcome.NOT_SHOWN, True)
    turns.append((await chat.ask(replace(ORIGIN, address=OTHER)))[1])
    for turn in turns:
        turn.cancel()


async def test_command_that_nobody_can_read_is_declined() -> None:
    chat = Chat()
    for command in ("x" * 70_000, "\u202e" * 20_000):
        answer = await chat.broker.ask(card(chat.broker, command), ORIGIN)
        assert answer.outcome is Outcome.NOT_SHOWN
    assert chat.approver.shown.empty()


async def test_card_with_an_open_id_is_a_mistake_of_the_program() -> None:
    chat = Chat()
    asked, turn = await chat.ask()
    with pytest.raises(ValueError, match=asked.id):
        await chat.broker.ask(asked, ORIGIN)
    assert chat.broker.open_cards(CHAT) == (asked,)
    turn.cancel()


def test_ids_are_short_easy_to_type_and_never_used_again() -> None:
    broker = ApprovalBroker(lambda _: None)
    ids = [broker.new_id() for _ in range(5000)]
    assert len(set(ids)) == len(ids)
    assert {len(ident) for ident in ids} == {4}
    assert set("".join(ids)) <= set(ID_LETTERS)
    assert not set("01loiu") & set(ID_LETTERS)


@pytest.mark.req("APPR-03", "CORE-05")
async def test_waiting_card_holds_none_of_the_places_for_turns() -> None:
    chat = Chat()
    places = asyncio.Semaphore(1)

    async def turn(work: Callable[[], asyncio.Future[Answer] | None]) -> Answer | None:
        async with places:
            waiting = work()
        return None if waiting is None else await waiting

    asking = asyncio.create_task(turn(lambda: asyncio.ensure_future(chat.broker.ask(card(chat.broker), ORIGIN))))
    await chat.approver.shown.get()
    assert await turn(lambda: None) is None
    chat.says("ok")
    answer = await asking
    assert answer is not None
    assert answer.approved
