"""What of a running turn is shown in one chat (CORE-04). Nothing of it is kept, and all of it may be left out."""

from __future__ import annotations

from collections import deque

from bubbles.channels.contract import Traits
from bubbles.channels.split import split

EDIT_EVERY_S = 1.0
MAX_NOTES = 5
"""Of those that wait where each is a message of its own."""
MAX_LINES = 200


class Progress:
    """Where the platform can edit: one message with the newest lines. Where not: a message for each, if it may be."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._lines: deque[str] = deque(maxlen=MAX_LINES if traits.edits else MAX_NOTES)
        self._dead = False
        self.turn = 0
        """Which it is of: what was begun for one says nothing of the next."""
        self.waits = False
        """Something is to be shown."""
        self.message_id: str | None = None
        """Of the message that is edited."""

    def add(self, text: str) -> None:
        if self._dead or not (self._traits.edits or self._traits.progress):
            return
        if fitting := self._fitting(text):
            self._lines.append(fitting)
            self.waits = True

    def take(self) -> str:
        """The text that is to be shown now."""
        if not self._traits.edits:
            text = self._lines.popleft()
            self.waits = bool(self._lines)
            return text
        self.waits = False
        while len(self._lines) > 1 and self._traits.measure("\n".join(self._lines)) > self._traits.max_text:
            self._lines.popleft()
        return "\n".join(self._lines)

    def shown(self, message_id: str | None, turn: int) -> None:
        """As a message of that id; without one it cannot be edited, and nothing more is shown of this turn."""
        if turn == self.turn:
            self.message_id = message_id if self._traits.edits else None
            self._dead = self._traits.edits and message_id is None

    def wait(self, turn: int) -> None:
        """The platform did not take it yet."""
        if turn == self.turn:
            self.waits = bool(self._lines)

    def give_up(self, turn: int) -> None:
        """Nothing more of this turn."""
        if turn == self.turn:
            self._lines.clear()
            self.waits, self._dead = False, True

    def end(self) -> None:
        """Of the turn: what follows is of another, in a message of its own."""
        self.turn += 1
        self._lines.clear()
        self.waits, self._dead, self.message_id = False, False, None

    @property
    def idle(self) -> bool:
        return not self.waits and not self._dead and self.message_id is None

    def _fitting(self, text: str) -> str:
        """A length error must not come of it, nor a second try for one: only its beginning, if it is too long."""
        text = text.strip()
        if self._traits.measure(text) <= self._traits.max_text:
            return text
        return next(iter(split(text, self._traits.max_text, self._traits.measure)), "")
