"""What a terminal is to a conversation. Open this file first.

Two exist: one with an editor for what is typed (``prompting``), and one that knows only lines (``lines``).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

MAX_LINES = 100
"""Messages that were typed and not yet taken."""


class Question(Protocol):
    """Takes the answers to what was shown; nothing that was typed before it was there."""

    async def answer(self, prompt: str) -> str | None:
        """The next line that is typed; None for Ctrl-C, Ctrl-D and a terminal that is gone."""
        ...


class Terminal(Protocol):
    """All calls belong to one event loop. Text must be safe to show: see ``text.shown``."""

    def write(self, text: str) -> None:
        """Show text above what is being typed. It ends with a newline."""
        ...

    def live(self, text: str) -> None:
        """Show, near what is typed, the end of what is still growing; empty for nothing."""
        ...

    def ready(self) -> None:
        """It is the person's turn to write."""
        ...

    @property
    def encoding(self) -> str:
        """Of what is written; what it lacks is written as escapes."""
        ...

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    async def line(self) -> str | None:
        """The next message; None when the person leaves."""
        ...

    def asking(self, text: str) -> AbstractAsyncContextManager[Question]:
        """Show a question and, once it is seen, let what is typed answer it."""
        ...


class Keys(Protocol):
    """What the conversation does when keys are pressed that are no text."""

    def interrupted(self) -> None:
        """Ctrl-C, with nothing typed and no question open, or while a turn runs."""
        ...

    @property
    def running(self) -> bool:
        """Whether a turn runs here that Ctrl-C would stop."""
        ...
