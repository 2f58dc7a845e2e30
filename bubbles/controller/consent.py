"""What becomes of a decision: it is recorded, and where it says so a person is asked. For all that passes the gate."""

from __future__ import annotations

import asyncio
import logging

from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.approvals.card import command_text
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.controller.contract import DeclinedError
from bubbles.controller.policy.contract import Verdict
from bubbles.controller.timeline.events import Subject
from bubbles.controller.timeline.writing import Timeline
from bubbles.errors import BubblesError

_log = logging.getLogger(__name__)


class Consent:
    """All calls belong to one event loop, but for ``record``."""

    def __init__(self, broker: ApprovalBroker, timeline: Timeline) -> None:
        self._broker = broker
        self._timeline = timeline

    def record(self, subject: Subject) -> None:
        """A verdict that needs no person is on record before anything else happens. Blocks on the disk."""
        if subject.decision.verdict is not Verdict.ASK:
            self._timeline.record_decided(subject)

    async def settle(self, subject: Subject, network: str) -> None:
        """Return if it may be done. A verdict that needs no person is on record already, an answer is then. Raises
        DeclinedError otherwise. ``network`` is what a card says of it.
        """
        decision = subject.decision
        if decision.verdict is Verdict.ASK:
            answer = await self._ask(subject, network)
            if not answer.approved:
                raise DeclinedError(f"{answer.told} {decision.reason}", decision)
            return
        if decision.verdict is Verdict.DENY:
            raise DeclinedError(f"It was declined without asking. {decision.reason}", decision)

    async def _ask(self, subject: Subject, network: str) -> Answer:
        """Ask a person. What was requested and how it was resolved is on the disk before anything runs."""
        decision = subject.decision
        card = ApprovalCard(
            id=self._broker.new_id(),
            command=command_text(subject.command),
            segment=decision.segment,
            reason=decision.reason,
            directory=subject.cwd,
            sandbox=subject.backend,
            network=network,
            task=subject.origin.task,
        )
        await self._timeline.requested(subject, card.id, self._broker.timeout_s)
        try:
            answer = await self._broker.ask(card, subject.origin)
        except asyncio.CancelledError:
            await asyncio.shield(self._note_stopped(subject, card.id))
            raise
        await asyncio.shield(self._timeline.resolved(subject, card.id, answer))
        return answer

    async def _note_stopped(self, subject: Subject, card: str) -> None:
        """A turn that is stopped while its card is open leaves a line that says so, if it can; stopped it is."""
        answer = Answer(outcome=Outcome.CANCELLED, told="The turn was ended before anybody answered.")
        try:
            await self._timeline.resolved(subject, card, answer)
        except BubblesError as error:
            _log.warning("that card %s was closed is not on record: %s", card, error)
