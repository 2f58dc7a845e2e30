"""Questions in chats: who may answer them, by what, and that nothing runs without an answer (APPR-01 to APPR-04)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bubbles.channels.contract import Piece
from bubbles.channels.fake import FakeChannel
from bubbles.config.channels import ChannelSettings
from bubbles.dispatch.dispatcher import WAITS
from bubbles.gateway.intake import VOID
from bubbles.providers.contract import ModelRequest, ToolMessage
from bubbles.providers.scripted import Step, calls
from tests.gateway_at_work import Disk, at_work, results, said, texts, until

COMMAND = "python3 -c \"open('data/made', 'a').write('x')\""
"""A command that no rule allows and nothing forbids. It leaves a letter each time that it runs."""


def ask(request: ModelRequest) -> Step:
    """``run``: the command, and then what came of it. Anything else gets an answer."""
    newest = request.messages[-1]
    if isinstance(newest, ToolMessage):
        return f"It said: {newest.text}"
    text = texts(request)[-1]
    return calls(("exec", {"script": COMMAND})) if text.endswith("run") else f"You said: {text}"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def asked(channel: FakeChannel, chat: str, count: int = 1) -> list[tuple[str, Piece]]:
    """The cards in a chat, with the platform's ids of their messages, once there are so many."""

    def there() -> list[tuple[str, Piece]]:
        return [(ident, piece) for ident, piece in channel.sent if piece.chat_id == chat and piece.card]

    await channel.until(lambda: len(there()) >= count)
    return there()


async def card_in(channel: FakeChannel, chat: str) -> str:
    ((_, piece),) = await asked(channel, chat)
    assert piece.card
    return piece.card


def made(disk: Disk, key: str = "telegram.7") -> int:
    """How often the command ran."""
    path = disk.desk(key) / "data" / "made"
    return len(path.read_text()) if path.exists() else 0


def resolved(disk: Disk) -> list[tuple[str, str]]:
    return [(line["chat"], line["outcome"]) for line in disk.timeline if line["event"] == "approval_resolved"]


ANSWERS = [
    ("OK", False, True),
    ("同意", False, True),
    ("yes.", False, True),
    ("/approve {}", False, True),
    ("/approve {}", True, True),
    ("no", False, False),
    ("拒绝", False, False),
    ("/deny {}", False, False),
    ("/deny {}", True, False),
]
"""What is written, or pressed, and whether the command then runs."""


@pytest.mark.req("APPR-01", "APPR-02")
async def test_a_card_comes_to_the_chat_of_its_turn_and_is_answered_there(disk: Disk) -> None:
    async with at_work(disk, ask) as here:
        for number, (text, press, approves) in enumerate(ANSWERS):
            chat = f"c{number}"
            await disk.telegram.say("run", chat=chat)
            ((ident, card),) = await asked(disk.telegram, chat)
            assert card.text.startswith("```\n")
            assert COMMAND in re.sub(r"\n  \| ⟨…⟩", "", card.text)
            assert f"/approve {card.card}" in card.text
            assert not made(disk, f"telegram.{chat}")
            await disk.telegram.say(text.format(card.card), chat=chat, press=press)
            await here.settled()
            told = (await said(disk.telegram, chat))[-1]
            assert ("A person declined it" in told) is not approves, text
            assert made(disk, f"telegram.{chat}") == approves, text
            closed = dict(disk.telegram.edited)[ident]
            assert closed.text.startswith(
                f"{'Approved' if approves else 'Declined'} by <@ann> [{card.card}]: ` python3"
            )
            assert closed.card is None, "its buttons are gone"
        assert all("OK" not in texts(request)[-1] for request in here.model.requests)
    outcomes = {True: "approved", False: "denied"}
    assert resolved(disk) == [(f"c{n}", outcomes[approves]) for n, (_, _, approves) in enumerate(ANSWERS)]


@pytest.mark.req("APPR-01")
async def test_where_there_are_no_buttons_and_no_edits_words_do(disk: Disk) -> None:
    async with at_work(disk, ask) as here:
        await disk.other.say("run", chat="9")
        await asked(disk.other, "9")
        await disk.other.say("well, ok, but why?", chat="9")  # no answer: it is a message of the turn
        await disk.other.say("hello?", chat="9")
        await disk.other.say("OK", chat="9")
        await here.settled()
        assert (await said(disk.other, "9")).count(WAITS) == 1
        assert (await said(disk.other, "9"))[-1] == "You said: hello?"
    assert made(disk, "other.9") == 1
    assert disk.other.edited == []


@pytest.mark.req("APPR-03", "SESS-02")
async def test_a_bare_ok_counts_for_one_card_and_with_two_it_must_be_said_for_which(tmp_path: Path) -> None:
    """Two people of one group, each with a session of their own, and each with a question in the same chat."""
    disk = Disk(tmp_path, {"channels": {"sessionMode": "user"}})
    async with at_work(disk, ask) as here:
        await disk.telegram.say("run", chat="g", sender="ann", is_group=True)
        await asked(disk.telegram, "g")
        await disk.telegram.say("run", chat="g", sender="bob", is_group=True)
        (_, of_ann), (ident, of_bob) = await asked(disk.telegram, "g", 2)
        await disk.telegram.say("OK", chat="g", sender="bob", is_group=True)
        await until(lambda: here.ledger.undone == 2)
        which = (await said(disk.telegram, "g", 3))[2]
        assert which.startswith("Which one? ")
        assert str(of_ann.card) in which
        assert str(of_bob.card) in which
        assert not resolved(disk)
        await disk.telegram.say("no", chat="g", sender="ann", is_group=True, reply_to=ident)
        await until(lambda: here.ledger.undone == 1)
        await disk.telegram.say("OK", chat="g", sender="bob", is_group=True)
        await here.settled()
    assert (made(disk, "telegram.ann"), made(disk, "telegram.bob")) == (1, 0)
    assert [outcome for _, outcome in resolved(disk)] == ["denied", "approved"]


@pytest.mark.req("APPR-01", "CHAN-02", "CHAN-03")
async def test_who_may_not_answer_and_what_names_no_open_card_here_approves_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, access={"telegram": ChannelSettings(allow_from=("ann", "bob"), group_policy="all")})
    async with at_work(disk, ask) as here:
        await disk.telegram.say("run", chat="g", is_group=True)
        card = await card_in(disk.telegram, "g")
        approve = f"/approve {card}"
        forged: list[tuple[str, dict[str, object]]] = [
            (approve, {"sender": "eve", "press": True}),
            (approve, {"sender": "", "press": True}),
            (approve, {"sender": "eve"}),
            ("OK", {"sender": "eve"}),
            (approve, {"sender": "bob", "addressed": False}),  # not said to the assistant: a bystander's
            ("OK", {"sender": "bob", "addressed": False}),
            (approve, {"chat": "7", "is_group": False, "press": True}),
            (approve, {"chat": "other group", "press": True}),
            ("/approve zzzz", {"press": True}),
            ("OK", {"press": True}),
            (COMMAND, {"press": True}),
        ]
        for text, more in forged:
            await disk.telegram.say(text, **{"chat": "g", "is_group": True, **more})  # type: ignore[arg-type]
        await disk.other.say(approve, chat="g", is_group=True)
        await until(lambda: here.ledger.undone == 3)  # the turn that waits; what a bystander says is no answer
        assert made(disk, "telegram.g") == 0
        assert not resolved(disk)
        (void,) = await said(disk.telegram, "7")
        assert void.startswith(f"No question '{card}' waits here")

        for word, message_id in (("/deny", "p1"), ("/approve", "p1"), ("/approve", "p2")):  # the second comes again
            press = {"chat": "g", "is_group": True, "sender": "bob", "press": True, "message_id": message_id}
            await disk.telegram.say(f"{word} {card}", **press)  # type: ignore[arg-type]
        await here.settled()
        heard = await said(disk.telegram, "g")
        assert [text for text in heard if text.startswith(f"No question '{card}' waits here")]
    assert made(disk, "telegram.g") == 0
    assert resolved(disk) == [("g", "denied")]


@pytest.mark.req("APPR-04", "OPS-02")
async def test_a_card_that_died_with_the_program_runs_nothing_whatever_is_answered_to_it(disk: Disk) -> None:
    async with at_work(disk, ask, hurry=True):
        await disk.telegram.say("run", chat="7")
        ((ident, piece),) = await asked(disk.telegram, "7")
    presses = [(f"/approve {piece.card}", True, "p1"), (f"/approve {piece.card}", True, "p1"), ("OK", False, "m2")]
    async with at_work(disk, lambda request: f"You said: {texts(request)[-1]}") as here:
        await here.settled()  # the turn is taken up, and the model asks nothing this time
        for text, press, message_id in presses:
            await disk.telegram.say(text, chat="7", press=press, message_id=message_id, reply_to=ident)
        await here.settled()
        interrupted, reply, void, ok = (await said(disk.telegram, "7"))[1:]
    assert "I take it up again" in interrupted
    assert "Note of the program" in reply
    assert void.startswith(f"No question '{piece.card}' waits here")
    assert ok == "You said: OK", "nothing was asked, so it is a word like any other"
    assert made(disk) == 0
    assert resolved(disk) == [("7", "cancelled")]
    assert "How far it got is not known" in results(here.model.requests[0])[0]


@pytest.mark.req("APPR-04")
async def test_an_answer_that_came_before_the_kill_and_was_not_dealt_with_is_void_and_said_to_be(disk: Disk) -> None:
    async with at_work(disk, ask, hurry=True) as here:
        await disk.telegram.say("run", chat="7")
        card = await card_in(disk.telegram, "7")
        # As by a kill between the disk and the broker: it is taken, and nobody has looked at it yet.
        message = (await here.ledger.waiting())[0].message
        pressed = replace(message, text=f"/approve {card}", message_id="p9", ticket="", resumed=False)
        assert await here.ledger.take(pressed)
    async with at_work(disk, lambda request: "I leave it.") as again:
        await again.settled()
        assert VOID.format(text=f"/approve {card}") in await said(disk.telegram, "7")
    assert made(disk) == 0
    assert len(again.model.requests) == 1


@pytest.mark.req("APPR-02")
async def test_no_answer_in_time_is_a_no_and_the_model_is_told(tmp_path: Path) -> None:
    disk = Disk(tmp_path, {"tools": {"approvals": {"timeoutS": 0.2}}})
    async with at_work(disk, ask) as here:
        await disk.telegram.say("run", chat="7")
        ((ident, card),) = await asked(disk.telegram, "7")
        await here.settled()
        assert "nobody answered within 0.2 seconds" in (await said(disk.telegram, "7"))[-1]
        assert dict(disk.telegram.edited)[ident].text.startswith("Declined: nobody answered in time")
        await disk.telegram.say(f"/approve {card.card}", chat="7", press=True)
        await here.settled()
    assert made(disk) == 0


@pytest.mark.req("APPR-03", "CORE-05")
async def test_a_turn_that_waits_for_a_person_is_in_nobodys_way(tmp_path: Path) -> None:
    disk = Disk(tmp_path, {"agents": {"concurrency": 1}})
    async with at_work(disk, ask) as here:
        await disk.telegram.say("run", chat="7")
        await asked(disk.telegram, "7")
        await disk.telegram.say("hi", chat="8")
        assert await said(disk.telegram, "8") == ["You said: hi"]
        here.model.hold("busy")
        await disk.telegram.say("busy", chat="8")
        await here.model.asked(3)
        await disk.telegram.say("OK", chat="7")
        await asyncio.sleep(0.05)
        assert made(disk) == 0, "it has to have its place again before it goes on"
        here.model.release()
        await here.settled()
    assert made(disk) == 1


@pytest.mark.req("APPR-01", "TOOL-05")
async def test_a_task_in_the_background_asks_in_the_chat_that_had_it_begun(disk: Disk) -> None:
    def think(request: ModelRequest) -> Step:
        text = texts(request)[-1]
        if text == "delegate":
            return "It is under way." if results(request) else calls(("spawn", {"task": "do: run", "label": "making"}))
        return ask(request) if text.endswith("run") else "It was made."

    async with at_work(disk, think) as here:
        await disk.telegram.say("delegate", chat="7")
        card = await card_in(disk.telegram, "7")
        assert "a task in the background" in re.sub(r"\n +", " ", (await asked(disk.telegram, "7"))[0][1].text)
        await disk.telegram.say(f"/approve {card}", chat="7", press=True)
        await until(lambda: made(disk) == 1)
        assert "It was made." in await said(disk.telegram, "7", 4)
        await here.settled()
