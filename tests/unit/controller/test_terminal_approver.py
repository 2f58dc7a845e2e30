"""Asking at a terminal: a pseudo-terminal with a person's keys at its other end."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TextIO

import pytest

from bubbles.bus import Address, Origin
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.controller.approvals.terminal import PROMPT, TerminalApprover

pytestmark = [pytest.mark.req("APPR-02"), pytest.mark.blocking]  # the test's own keys are pressed on its loop

ORIGIN = Origin(session_key="cli-direct", address=Address(channel="cli", chat_id="direct"), sender="me")
CARD = ApprovalCard(
    id="k7m3",
    command="git push",
    segment="git push",
    reason="No rule allows it.",
    directory="/work/project",
    sandbox="local",
    network="full",
)


@dataclass(slots=True, kw_only=True)
class Person:
    """Sits at the master side."""

    master: int
    source: int
    stream: TextIO
    seen: str = ""

    def types(self, keys: bytes) -> None:
        os.write(self.master, keys)

    async def sees(self, text: str) -> None:
        while text not in self.seen:
            self.seen += (await asyncio.to_thread(os.read, self.master, 4096)).decode()

    def asked(self, timeout_s: float = 5.0) -> asyncio.Task[Answer]:
        approver = TerminalApprover(self.source, self.stream)
        broker = ApprovalBroker(lambda _: approver, timeout_s=timeout_s)
        return asyncio.create_task(broker.ask(CARD, ORIGIN))


@asynccontextmanager
async def at_a_terminal() -> AsyncIterator[Person]:
    master, source = pty.openpty()
    with open(master, "rb", buffering=0), open(source, "w", encoding="utf-8") as stream:
        yield Person(master=master, source=source, stream=stream)


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        (b"y\n", Outcome.APPROVED),
        (b"OK\n", Outcome.APPROVED),
        (b"what?\ny\n", Outcome.APPROVED),
        (b"/approve k7m3\n", Outcome.APPROVED),
        (b"n\n", Outcome.DENIED),
        (b"/approve zzzz\nn\n", Outcome.DENIED),
        (b"\n" * 9, Outcome.DENIED),
        (b"\x04", Outcome.DENIED),
    ],
)
async def test_keys_of_the_person_answer_the_card(keys: bytes, outcome: Outcome) -> None:
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        assert "| git push" in person.seen
        person.types(keys)
        answer = await asked
        assert (answer.outcome, answer.by) == (outcome, "terminal")


async def test_what_was_typed_before_the_card_answers_nothing() -> None:
    async with at_a_terminal() as person:
        person.types(b"y\n")
        asked = person.asked()
        await person.sees(PROMPT)
        person.types(b"n\n")
        assert (await asked).outcome is Outcome.DENIED


async def test_control_c_means_no_and_goes_no_further() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        os.kill(os.getpid(), signal.SIGINT)
        assert (await asked).outcome is Outcome.DENIED
    assert signal.getsignal(signal.SIGINT) is before


async def test_time_limit_ends_the_question_and_says_so() -> None:
    async with at_a_terminal() as person:
        assert (await person.asked(timeout_s=0.1)).outcome is Outcome.TIMED_OUT
        await person.sees("[k7m3] nobody answered in time")


async def test_cancelled_turn_leaves_the_terminal_alone() -> None:
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await person.sees("the turn was ended")


async def test_two_cards_are_shown_one_after_the_other() -> None:
    async with at_a_terminal() as person:
        approver = TerminalApprover(person.source, person.stream)
        second = replace(CARD, id="w4x9", command="git fetch")
        turns = [asyncio.create_task(approver.show(card, ORIGIN)) for card in (CARD, second)]
        await person.sees(PROMPT)
        assert "w4x9" not in person.seen
        person.types(b"y\n")
        await person.sees("w4x9")
        person.seen = person.seen.partition("w4x9")[2]
        await person.sees(PROMPT)
        person.types(b"n\n")
        answers = [await turn for turn in turns]
        assert [answer and answer.outcome for answer in answers] == [Outcome.APPROVED, Outcome.DENIED]


async def test_without_a_terminal_there_is_nobody() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb"):
        approver = TerminalApprover(reader, io.StringIO())
        answer = await ApprovalBroker(lambda _: approver).ask(CARD, ORIGIN)
    assert answer.outcome is Outcome.NOBODY
    assert "standard input is not a terminal" in answer.told


async def test_card_that_would_go_unseen_is_not_asked() -> None:
    async with at_a_terminal() as person:
        approver = TerminalApprover(person.source, io.StringIO())
        answer = await ApprovalBroker(lambda _: approver).ask(CARD, ORIGIN)
    assert answer.outcome is Outcome.NOBODY
    assert "standard error is not a terminal" in answer.told
