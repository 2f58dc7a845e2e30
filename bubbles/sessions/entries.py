"""What the lines of a history say, apart from how they are written down."""

from __future__ import annotations

from dataclasses import dataclass

from bubbles.bus import Origin
from bubbles.providers.contract import AssistantMessage, ToolMessage, Usage, UserMessage
from bubbles.sessions.contract import Author, TurnEnd

VERSION = 1
"""Of the format. A line of an unknown kind is passed over; a file of a higher version is not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """``session``"""

    key: str
    version: int = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """``user``"""

    message: UserMessage
    author: Author
    origin: Origin | None = None
    """None in what was read back: nobody asks for it there."""
    ticket: str = ""
    """By which whoever keeps the message knows it (OPS-02)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """``assistant``"""

    message: AssistantMessage
    usage: Usage
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """``call``"""

    reply: int
    """The ``seq`` of the reply that holds the call: some vendors use an id again in every reply."""
    call_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resulted:
    """``result``"""

    reply: int
    """As in ``Began``."""
    message: ToolMessage
    full_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """``compaction``"""

    summary: str
    kept_from: int
    open_turn: str | None = None
    """The turn that had not ended then: the lines that tell of its beginning may be among those that are not read."""
    tickets: tuple[str, ...] = ()
    """Of the messages that it has, for the same reason (OPS-02)."""
    offset: int | None = None
    """Where the line ``kept_from`` begins in the file, in bytes, so that what is before it need not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """``turn``"""

    end: TurnEnd
    discard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """``skipped``: the person has been told of lines that cannot be read."""

    before: int
    """Of all that begin before this place in the file, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A kind that a later version writes. It stays in the file, and means nothing here."""


Content = Opened | Said | Replied | Began | Resulted | Compacted | Ended | Skipped | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line."""

    seq: int
    turn: str
    """Empty where there is none."""
    content: Content
