"""What a turn is, seen from outside. Open this file first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from bubbles.providers.contract import NO_USAGE, ProviderError, TextSink, ToolCall, Usage
from bubbles.sessions.contract import Author, TurnEnd
from bubbles.tools.contract import ToolResult


class TurnObserver(TextSink, Protocol):
    """Sees a turn while it runs (CORE-04). Called on the event loop, in order; must not block or raise.

    ``text`` pieces of one reply of the model come before its ``tool`` calls; ``reply_ended`` closes each reply.
    """

    def reply_ended(self) -> None: ...
    def tool(self, call: ToolCall, hint: str) -> None:
        """It is about to run."""
        ...

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None: ...
    def notice(self, sentence: str) -> None:
        """Of the program, for the person: history was compacted, a sandbox was reset, a limit was reached."""
        ...


async def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a turn takes in beside its message: the report of a task in the background (TOOL-05), what a person wrote
    meanwhile, or a note about that.
    """

    text: str
    author: Author = Author.PROGRAM
    ticket: str = ""
    """Of the message that it is, or stands for, as whoever keeps it knows it."""
    written: Callable[[], Awaitable[None]] = _nothing
    """Called once it is in the history: from then on it is delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    end: TurnEnd
    text: str
    """The final reply; or, for LIMIT, the explanation of what was done and what is left (CORE-02). Empty if the turn
    was silent (TOOL-10), stopped or failed."""
    turn: str
    """Its id in the history."""
    usage: Usage = NO_USAGE
    """Of all its requests together."""
    calls: int = 0
    """Tool calls that ran."""
    tickets: tuple[str, ...] = ()
    """Of messages that an earlier process gave to the same turn: they are dealt with by it, too."""
    error: ProviderError | None = None
    """Why it failed, when a provider did. Any other failure is raised."""
