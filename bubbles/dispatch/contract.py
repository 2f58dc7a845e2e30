"""What the dispatcher needs of its neighbours. Open this file first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Origin, OutboundMessage
from bubbles.controller.approvals.contract import ApprovalCard, Heard
from bubbles.errors import BubblesError
from bubbles.tools.services import TaskInfo

Send = Callable[[OutboundMessage], Awaitable[None]]
"""To the channel of the message's address."""
Begun = Callable[[str], Awaitable[None]]
"""Told of the ticket of a message when its turn begins: whoever keeps it counts how often that was tried."""
Pending = Callable[[], list[InboundMessage]]
"""Takes what came to the session since the turn began and belongs to it (CORE-06)."""


class CommandError(BubblesError):
    """A slash command that cannot be done as it was written; the message is for whoever wrote it, in any chat."""

    exit_code = 2


class Turns(Protocol):
    """Runs the turns of sessions. ``TurnRunner`` is the real one."""

    async def run(
        self, message: InboundMessage, origin: Origin, observer: TurnObserver, pending: Pending
    ) -> TurnOutcome | None:
        """One turn of the origin's session. Raises BubblesError, or whatever broke. None: nothing was to be done, since
        an earlier turn has had the report that the message stands for.
        """
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


class RunningTasks(Protocol):
    """Tasks in the background, as far as the dispatcher has to do with them (TOOL-05)."""

    def running(self, session_key: str) -> tuple[TaskInfo, ...]: ...
    async def stop(self, session_key: str, task: str) -> bool:
        """Whether it ran, and now ends."""
        ...

    def due(self, session_key: str, task: str) -> bool:
        """Whether its report has not been given to a turn yet."""
        ...


class NoTasks:
    """``RunningTasks`` of a program that has none."""

    def running(self, session_key: str) -> tuple[TaskInfo, ...]:
        del session_key
        return ()

    async def stop(self, session_key: str, task: str) -> bool:
        del session_key, task
        return False

    def due(self, session_key: str, task: str) -> bool:
        del session_key, task
        return False


class Answers(Protocol):
    """Takes messages that answer an approval card; the broker is the real one."""

    def answer(self, text: str, *, origin: Origin, reply_to: str | None = None) -> Heard | None: ...

    def open_cards(self, address: Address) -> Sequence[ApprovalCard]:
        """Those that wait in this chat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What of a running turn reaches a channel (CORE-04)."""

    send_progress: bool = True
    send_tool_hints: bool = False
