"""What a message says to a card. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

YES = frozenset({"ok", "同意", "yes", "y"})
NO = frozenset({"no", "拒绝", "n"})
MAX_CHARACTERS = 80
"""Nothing longer is an answer."""

TRAILING = " \t\r\n.,!;:…。，！；：、～~"  # noqa: RUF001 - as Chinese keyboards write them
"""What may follow a word. No question mark: who writes "ok?" asks."""
SLASH = re.compile(r"/(approve|deny)(?:@\S+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)
"""In a group some platforms add ``@name-of-the-bot`` to a slash command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A message that can be an answer."""

    approves: bool
    card: str | None = None
    """The id that a slash command names, in lower case; blank if it names none. None for a bare word."""


def understood(text: str) -> Word | None:
    """The answer that ``text`` is; None for anything else: "ok let us" is a message like any other."""
    if len(text) > MAX_CHARACTERS:
        return None
    trimmed = text.strip()
    if command := SLASH.fullmatch(trimmed):
        named = (command[2] or "").strip().strip("[]").casefold()
        return Word(approves=command[1].casefold() == "approve", card=named)
    word = trimmed.rstrip(TRAILING).casefold()
    return Word(approves=word in YES) if word in YES or word in NO else None
