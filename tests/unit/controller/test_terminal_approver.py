"""Asking at a terminal: a pseudo-terminal with a person's keys at its other end."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import resource
import signal
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TextIO

import pytest

from bubbles.bus import Address, Origin
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.controller.approvals.terminal import PROMPT, PROMPT_AGAIN, TerminalApprover, _Attention, _interruption

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

    def asked(self, timeout_s: float = 5.0, card: ApprovalCard = CARD) -> asyncio.Task[Answer]:
        approver = TerminalApprover(self.source, self.stream)
        broker = ApprovalBroker(lambda _: approver, timeout_s=timeout_s)
        return asyncio.create_task(broker.ask(card, ORIGIN))


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
        (b"y?\nn\n", Outcome.DENIED),
        (b"\n" * 9, Outcome.UNCLEAR),
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


async def test_card_says_how_to_answer_and_how_long_there_is() -> None:
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        assert "y or n, within 5 s; OK, 同意, no and 拒绝 work too" in person.seen
        person.types(b"perhaps\n")
        await person.sees(PROMPT_AGAIN)
        person.types("拒绝\n".encode())
        assert (await asked).outcome is Outcome.DENIED


async def test_giving_up_after_unclear_lines_is_an_end_of_its_own() -> None:
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        person.types(b"hm\n" * 5)
        answer = await asked
        assert (answer.outcome, answer.approved) == (Outcome.UNCLEAR, False)
        assert "clear answer" in answer.told


@pytest.mark.req("APPR-01")
async def test_card_is_broken_to_the_width_of_the_terminal() -> None:
    async with at_a_terminal() as person:
        termios.tcsetwinsize(person.source, (10, 40))
        asked = person.asked(card=replace(CARD, command="git push #" + "-" * 400))
        await person.sees(PROMPT)
        person.types(b"n\n")
        await asked
        card = person.seen.partition("Answer y or n")[0].splitlines()
        assert max(map(len, card)) == 39
        assert "scroll up" in card[-2]
        assert card[-1] == "May this run? [k7m3]"


async def test_terminal_that_is_too_narrow_for_a_card_shows_none() -> None:
    async with at_a_terminal() as person:
        termios.tcsetwinsize(person.source, (10, 12))
        answer = await person.asked()
        assert answer.outcome is Outcome.NOT_SHOWN
        assert "12 columns" in answer.told


async def test_stopped_terminal_does_not_hold_up_the_time_limit() -> None:
    """Ctrl-S."""
    async with at_a_terminal() as person:
        termios.tcflow(person.source, termios.TCOOFF)
        approver, begun = TerminalApprover(person.source, person.stream), time.monotonic()
        closed = Answer(outcome=Outcome.TIMED_OUT, told="")
        try:
            person.types(b"y\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(approver.show(CARD, ORIGIN), 0.2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(approver.close(CARD, closed), 0.1)
        finally:
            termios.tcflow(person.source, termios.TCOON)
        assert time.monotonic() - begun < 2


async def test_control_c_ends_the_question_at_a_stopped_terminal() -> None:
    async with at_a_terminal() as person:
        termios.tcflow(person.source, termios.TCOOFF)
        try:
            asked = person.asked()
            await asyncio.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
            assert (await asked).outcome is Outcome.DENIED
        finally:
            termios.tcflow(person.source, termios.TCOON)


async def test_line_that_somebody_else_takes_does_not_hold_up_the_time_limit() -> None:
    """As Ctrl-C takes it in the same instant: there was something to read, and then there is nothing."""
    async with at_a_terminal() as person:
        taken: list[bytes] = []
        loop = asyncio.get_running_loop()
        loop.add_reader(person.source, lambda: taken.append(os.read(person.source, 100)))
        try:
            asked = person.asked(timeout_s=0.3)
            await person.sees(PROMPT)
            person.types(b"y\n")
            answer = await asyncio.wait_for(asked, 2)
        finally:
            loop.remove_reader(person.source)
        assert (taken, answer.outcome) == ([b"y\n"], Outcome.TIMED_OUT)


async def test_high_descriptors_can_be_asked_at() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this process may not open so many files")
    async with at_a_terminal() as person:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        high = fcntl.fcntl(person.source, fcntl.F_DUPFD_CLOEXEC, 1500)
        try:
            asked = replace(person, source=high).asked()
            await person.sees(PROMPT)
            person.types(b"y\n")
            assert (await asked).approved
        finally:
            os.close(high)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_control_c_before_the_answer_is_read_wins() -> None:
    async with at_a_terminal() as person:
        asked = person.asked()
        await person.sees(PROMPT)
        person.types(b"y\n")
        os.kill(os.getpid(), signal.SIGINT)
        assert (await asked).outcome is Outcome.DENIED


async def test_control_c_after_the_answer_is_delivered_to_the_program() -> None:
    delivered: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: delivered.append(number))
    try:
        early = _Attention()
        with _interruption(early):
            signal.raise_signal(signal.SIGINT)
            assert not early.settles()
        assert delivered == []
        late = _Attention()
        with _interruption(late):
            assert late.settles()
            signal.raise_signal(signal.SIGINT)
            assert delivered == []
        assert delivered == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


async def test_terminal_that_goes_away_approves_nothing() -> None:
    master, source = pty.openpty()
    with open(source, "w", encoding="utf-8") as stream:
        person = Person(master=master, source=source, stream=stream)
        asked = person.asked()
        await person.sees(PROMPT)
        os.close(master)
        assert not (await asyncio.wait_for(asked, 2)).approved
