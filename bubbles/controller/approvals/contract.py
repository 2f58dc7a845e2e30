"""What is shown to a person before a command runs, and what can become of it. Open this file first.

Only ``Outcome.APPROVED`` lets a command run. Every other end, an error included, is a refusal (B045).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

from bubbles.bus import Origin


class Outcome(enum.StrEnum):
    """How a card was closed; also the word that the timeline records."""

    APPROVED = "approved"
    DENIED = "denied"
    UNCLEAR = "unclear"
    """A person wrote several lines at the terminal, none of them an answer."""
    TIMED_OUT = "timed_out"
    NOBODY = "nobody"
    """No person can be asked: a turn that no person began, or no terminal."""
    NOT_SHOWN = "not_shown"
    """The card could not be shown: too long, too many open, or the way to the person is broken."""
    CANCELLED = "cancelled"
    """The turn ended first."""
    LOST = "lost"
    """The program ended first; found at a later start (APPR-04)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How it ended."""

    outcome: Outcome
    by: str = ""
    """The sender who answered; empty when nobody did."""
    told: str
    """One sentence for the model: which end it was (APPR-02)."""

    @property
    def approved(self) -> bool:
        return self.outcome is Outcome.APPROVED


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCard:
    """One question. Texts are as they are, hostile or not: ``card.render`` makes them safe to show."""

    id: str
    """From ``ApprovalBroker.new_id``."""
    command: str
    """The whole command: the script, or the argv in shell form."""
    segment: str
    """The part of it that is why a person is asked."""
    reason: str
    directory: str
    """Absolute; where it would run."""
    sandbox: str
    """The backend's name."""
    network: str
    """``none``, ``allowlist`` or ``full``."""
    task: str = ""
    """Id of the task in the background that wants it; empty for the conversation's own turn."""
    timeout_s: float | None = field(default=None, compare=False)
    """How long it waits for an answer: the broker sets it when it asks. None while it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a message did that was an answer to a card, or tried to be one."""

    card: ApprovalCard | None = None
    """The card that it closed."""
    approved: bool = False
    say: str
    """One sentence for the person who wrote it."""


class Approver(Protocol):
    """A way to a person. All calls come from the broker's event loop."""

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        """Show the card. A terminal waits for the answer and returns it; a chat returns None once the card is sent, and
        its answer comes by ``ApprovalBroker.answer``, which takes none before that. Cancelled when the card is closed.
        What is raised closes the card as ``NOT_SHOWN``.
        """

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        """The card is closed; said after every ``show`` that was begun. A second or two, no more: the turn waits."""
