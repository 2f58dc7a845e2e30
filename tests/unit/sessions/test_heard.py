"""Messages that somebody keeps: whether the history has them, and what became of their turn (OPS-02)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbles.bus import Address, Origin
from bubbles.providers.contract import NO_USAGE, AssistantMessage, UserMessage
from bubbles.sessions.contract import Author, Heard, History, TurnEnd
from bubbles.sessions.fake import MemoryHistory
from bubbles.sessions.session import Session, Sessions
from bubbles.sessions.transcript import MAX_HEARD

pytestmark = pytest.mark.req("OPS-02")

ORIGIN = Origin(session_key="fake.1", address=Address(channel="fake", chat_id="1"), sender="ann")


async def says(history: History, ticket: str, turn: str) -> None:
    message = UserMessage(text=f"I am {ticket}.")
    await history.add_user(message, author=Author.PERSON, origin=ORIGIN, turn=turn, ticket=ticket)


async def replies(history: History, text: str, turn: str, end: TurnEnd = TurnEnd.DONE) -> None:
    await history.add_reply(AssistantMessage(text=text), usage=NO_USAGE, model="m", turn=turn)
    await history.end_turn(end, turn=turn)


async def opened(base: Path) -> Session:
    """As another process finds it."""
    return await Sessions(base).open("fake.1")


async def test_a_message_is_known_with_its_turns_last_words_after_a_restart(tmp_path: Path) -> None:
    async with (await opened(tmp_path)).turn() as history:
        await says(history, "a", "t1")
        await says(history, "b", "t1")
        assert history.heard("a") == Heard(turn="t1")
        await replies(history, "Both.", "t1")
        assert history.heard("b") == Heard(turn="t1", end=TurnEnd.DONE, reply="Both.")
        await says(history, "c", "t2")
    async with (await opened(tmp_path)).turn() as history:
        assert history.heard("a") == Heard(turn="t1", end=TurnEnd.DONE, reply="Both.")
        assert history.heard("c") == Heard(turn="t2", end=TurnEnd.INTERRUPTED)
        assert history.heard("d") is None


async def test_a_turn_that_a_compaction_has_cut_down_is_known_to_have_the_message(tmp_path: Path) -> None:
    async with (await opened(tmp_path)).turn() as history:
        await says(history, "old", "t0")
        await replies(history, "Done.", "t0")
        await says(history, "a", "t1")
        await says(history, "b", "t1")
        await history.compact("Ann is a, and b.", kept_from=history.units[-1].seq, turn="t1")
    async with (await opened(tmp_path)).turn() as history:
        assert [history.heard(ticket) for ticket in ("old", "a", "b")] == [
            None,
            Heard(turn="t1", end=TurnEnd.INTERRUPTED),
            Heard(turn="t1", end=TurnEnd.INTERRUPTED),
        ]


async def test_what_goes_on_in_a_later_turn_has_the_end_of_that(tmp_path: Path) -> None:
    async with (await opened(tmp_path)).turn() as history:
        await says(history, "a", "t1")
        await history.end_turn(TurnEnd.STOPPED, turn="t1")
        await says(history, "a", "t2")
        await replies(history, "At last.", "t2")
        assert history.heard("a") == Heard(turn="t2", end=TurnEnd.DONE, reply="At last.")


async def test_a_reply_with_calls_is_no_last_word_and_memory_is_bounded() -> None:
    history = MemoryHistory()
    for number in range(MAX_HEARD + 1):
        await says(history, str(number), "t1")
    await replies(history, "", "t1", TurnEnd.FAILED)
    assert history.heard("0") is None
    assert history.heard(str(MAX_HEARD)) == Heard(turn="t1", end=TurnEnd.FAILED)
