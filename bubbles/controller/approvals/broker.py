"""The one place where cards wait for answers.

A card lives in memory only, in the call that asks: if the program ends, so does the call, and nothing is left that
could run the command (APPR-04). What is asked of whom is decided by the origin of each call, never by a state of the
process (B046).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace

from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.approvals.answers import Word, understood
from bubbles.controller.approvals.card import MAX_ROWS, MAX_SHOWN, readable
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Approver, Heard, Outcome

TIMEOUT_S = 300.0
MAX_OPEN = 20
"""Cards of one chat. A person who is asked more at once reads none of them."""
CLOSE_S = 2.0
"""How long a turn waits for its card to be marked as closed."""

ID_LETTERS = "bcdfghjkmnpqrstvwxz23456789"
"""No vowels, so no words; nothing that looks like another."""
ID_LENGTH = 4

_log = logging.getLogger(__name__)

MayAnswer = Callable[[ApprovalCard, Origin, Origin], bool]
"""Of a card, who asked, and who answers from the same chat: whether that person may. The caller has already checked
that the sender is on the channel's allow-list."""


def any_user(_card: ApprovalCard, _asked: Origin, answering: Origin) -> bool:
    return answering.trigger is Trigger.USER


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    card: ApprovalCard
    origin: Origin
    settled: asyncio.Future[Answer]
    shown: bool = False
    """Whether it has been put before a person: what was written earlier answers something else."""

    def settle(self, answer: Answer) -> bool:
        """Whether this answer is the one that counts: the first."""
        if self.settled.done():
            return False
        self.settled.set_result(answer)
        return True


class ApprovalBroker:
    """All calls belong to one event loop.

    ``approver_for`` gives the way to the person behind an origin, or None if there is none.

    ``away`` is entered while a card waits: whoever bounds how many turns run at a time (CORE-05) gives the turn's place
    free by it (APPR-03).
    """

    def __init__(
        self,
        approver_for: Callable[[Origin], Approver | None],
        *,
        timeout_s: float = TIMEOUT_S,
        max_open: int = MAX_OPEN,
        may_answer: MayAnswer = any_user,
        away: Callable[[Origin], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self._approver_for = approver_for
        self._timeout_s = timeout_s
        self._max_open = max_open
        self._may_answer = may_answer
        self._away = away
        self._open: dict[str, _Open] = {}
        self._used: set[str] = set()

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def new_id(self) -> str:
        """An id that no other card of this process has had, easy to type."""
        length = ID_LENGTH
        while True:
            for _ in range(100):
                ident = "".join(secrets.choice(ID_LETTERS) for _ in range(length))
                if ident not in self._used:
                    self._used.add(ident)
                    return ident
            length += 1

    def open_cards(self, address: Address) -> tuple[ApprovalCard, ...]:
        """Those that wait in this chat, oldest first."""
        return tuple(waiting.card for waiting in self._open.values() if waiting.origin.address == address)

    async def ask(self, card: ApprovalCard, origin: Origin) -> Answer:
        """Show the card and wait. Cancelling the call closes the card.

        Only ``Answer.approved`` lets the command run.
        """
        if card.id in self._open:
            raise ValueError(f"card {card.id} is open already")
        if refusal := self._unaskable(card, origin):
            return refusal
        approver = self._approver_for(origin)
        if approver is None:
            return nobody("there is no terminal and no chat to ask in")
        card = replace(card, timeout_s=self._timeout_s)
        waiting = _Open(card=card, origin=origin, settled=asyncio.get_running_loop().create_future())
        self._open[card.id] = waiting
        answer = Answer(outcome=Outcome.CANCELLED, told="The turn was ended before anybody answered: nothing was run.")
        try:
            async with self._away(origin):
                answer = await self._settled(waiting, approver)
        finally:
            del self._open[card.id]
            await _closed(approver, card, answer)
        return answer

    def answer(self, text: str, *, origin: Origin, reply_to: str | None = None) -> Heard | None:
        """Take a message as an answer. None if it is none: it is then a message like any other.

        Only a card that has been shown can be answered. ``reply_to`` is the id of the card whose message this one
        replies to, on platforms that have replies. The caller has checked the sender against the allow-list (APPR-01).
        """
        word = understood(text)
        if word is None:
            return None
        here = [
            waiting
            for waiting in self._open.values()
            if waiting.origin.address == origin.address and self._may_answer(waiting.card, waiting.origin, origin)
        ]
        named = word.card or (reply_to or "").casefold()
        if named:
            meant = next((waiting for waiting in here if waiting.card.id == named), None)
            return _unknown(named) if meant is None else _take(meant, word, origin)
        shown = [waiting for waiting in here if waiting.shown]
        if len(shown) == 1:
            return _take(shown[0], word, origin)
        if shown:
            return Heard(say=_which(shown))
        return None if word.card is None else Heard(say="Nothing waits for an answer here.")

    def _unaskable(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        """Why nobody is asked, told at once: an unattended job must not wait for a person who is not there (B036)."""
        if origin.trigger in UNATTENDED:
            return nobody(UNATTENDED[origin.trigger])
        if not readable(card):
            return Answer(
                outcome=Outcome.NOT_SHOWN,
                told=f"It was declined unseen: over {MAX_SHOWN:,} characters or {MAX_ROWS:,} rows are more than a "
                "person can judge; write them to a file and run that.",
            )
        if len(self.open_cards(origin.address)) >= self._max_open:
            return Answer(
                outcome=Outcome.NOT_SHOWN,
                told=f"It was declined unseen: {self._max_open} questions wait in this chat already; wait for answers.",
            )
        return None

    async def _settled(self, waiting: _Open, approver: Approver) -> Answer:
        async def show() -> None:
            try:
                answer = await approver.show(waiting.card, waiting.origin)
            except Exception as error:  # noqa: BLE001 - whatever breaks on the way to a person is a refusal
                _log.warning("card %s could not be shown", waiting.card.id, exc_info=error)
                answer = Answer(
                    outcome=Outcome.NOT_SHOWN,
                    told="It was declined unseen: the question could not be shown to anybody.",
                )
            if answer is None:
                waiting.shown = True
            else:
                waiting.settle(answer)

        try:
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as tasks:
                showing = tasks.create_task(show())
                answer = await waiting.settled
                showing.cancel()
            return answer
        except TimeoutError:
            if waiting.settled.done() and not waiting.settled.cancelled():
                return waiting.settled.result()  # in the same instant, and the person was told that it counts
            return Answer(
                outcome=Outcome.TIMED_OUT,
                told=f"It was declined: nobody answered within {self._timeout_s:g} seconds.",
            )


UNATTENDED = {
    Trigger.CRON: "this turn was begun by a scheduled job",
    Trigger.HEARTBEAT: "this turn was begun by the heartbeat",
    Trigger.BYSTANDER: "this turn was begun by somebody who may not approve anything",
}


def nobody(why: str) -> Answer:
    return Answer(outcome=Outcome.NOBODY, told=f"It was declined at once, since nobody can be asked: {why}.")


def decided(*, approved: bool, by: str) -> Answer:
    """What a person said."""
    if approved:
        return Answer(outcome=Outcome.APPROVED, by=by, told="A person approved it.")
    return Answer(outcome=Outcome.DENIED, by=by, told="A person declined it.")


def _take(waiting: _Open, word: Word, origin: Origin) -> Heard:
    if not waiting.shown:
        return Heard(say=f"Question {waiting.card.id} has not been shown yet: answer it once it is here.")
    if not waiting.settle(decided(approved=word.approves, by=origin.sender)):
        return _unknown(waiting.card.id)
    said = "Approved" if word.approves else "Declined"
    return Heard(card=waiting.card, approved=word.approves, say=f"{said}: {waiting.card.id}.")


def _unknown(ident: str) -> Heard:
    """The same for an id of another chat, so that nothing is learnt of those."""
    return Heard(say=f"No question {ident[:20]!r} waits here: it was answered, was too old, or never was.")


def _which(here: list[_Open]) -> str:
    listed = ", ".join(waiting.card.id for waiting in here)
    return f"Which one? {listed} wait: reply to the one that is meant, or write /approve ID or /deny ID."


async def _closed(approver: Approver, card: ApprovalCard, answer: Answer) -> None:
    """Tell the approver, whatever becomes of that."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await approver.close(card, answer)
    except Exception as error:  # noqa: BLE001 - the answer stands, however it is shown
        _log.warning("card %s could not be marked as closed", card.id, exc_info=error)
