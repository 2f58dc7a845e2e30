"""What the dispatcher needs of its neighbours. Open this file first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import InboundMessage, Origin, OutboundMessage
from bubbles.controller.approvals.contract import Heard
from bubbles.errors import BubblesError
from bubbles.providers.contract import UserMessage

Send = Callable[[OutboundMessage], Awaitable[None]]
"""To the channel of the message's address."""
Pending = Callable[[], list[UserMessage]]
"""Takes what was written to the session since the turn began (CORE-06)."""


class CommandError(BubblesError):
    """A slash command that cannot be done as it was written; the message is for whoever wrote it, in any chat."""

    exit_code = 2


class Turns(Protocol):
    """Runs the turns of sessions. ``TurnRunner`` is the real one."""

    async def run(
        self, message: InboundMessage, origin: Origin, observer: TurnObserver, pending: Pending
    ) -> TurnOutcome:
        """One turn of the origin's session. Raises BubblesError, or whatever broke."""
        ...


@runtime_checkable
class OutcomeObserver(Protocol):
    """A ``TurnObserver`` with this method also learns how its turn ended, unless it was stopped."""

    def ended(self, came: TurnOutcome | Exception) -> None:
        """Before anything is said of it to a channel."""
        ...


class Commands(Protocol):
    """Slash commands that belong to a session."""

    def known(self, text: str) -> bool:
        """Whether the text is a command of these; any other text that begins with a slash is a message."""
        ...

    def waits(self, text: str) -> bool:
        """Whether it must wait for the session's running turn to end."""
        ...

    async def run(self, text: str, origin: Origin) -> str:
        """What to tell the person. Raises BubblesError with a sentence for them."""
        ...


class Answers(Protocol):
    """Takes messages that answer an approval card; the broker is the real one."""

    def answer(self, text: str, *, origin: Origin, reply_to: str | None = None) -> Heard | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What of a running turn reaches a channel (CORE-04)."""

    send_progress: bool = True
    send_tool_hints: bool = False
