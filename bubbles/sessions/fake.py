"""A history in memory, for tests of what is above sessions. It behaves as the real one and forgets at the end."""

from __future__ import annotations

from collections.abc import Sequence

from bubbles.sessions.entries import Content, Entry
from bubbles.sessions.history import WrittenHistory
from bubbles.sessions.transcript import Transcript


class MemoryHistory(WrittenHistory):
    """``History``. ``entries`` are the lines that a real one would have written, in order.

    ``lines`` is what it begins with: as after a crash, if calls or a turn are open in it. ``settle()`` then does what
    an opening does.
    """

    def __init__(self, lines: Sequence[Entry] = ()) -> None:
        self.entries: list[Entry] = list(lines)
        transcript = Transcript()
        for entry in lines:
            transcript.add(entry)
        super().__init__(transcript, self._remember)

    @property
    def contents(self) -> list[Content]:
        """What the lines say."""
        return [entry.content for entry in self.entries]

    async def _remember(self, entries: Sequence[Entry]) -> None:
        self.entries.extend(entries)
