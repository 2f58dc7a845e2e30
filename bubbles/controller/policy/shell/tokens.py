"""What the lexer cuts a text into."""

from __future__ import annotations

from typing import NamedTuple

from bubbles.controller.policy.shell.reading import Word

SPLIT = "\1"
"""In a guess: here an unquoted expansion may part the word."""


class Token(NamedTuple):
    """An operator, or a word. Positions count characters."""

    start: int
    end: int
    operator: str = ""
    words: tuple[Word, ...] = ()
    """More than one where braces expand."""
    guess: str = ""
    """The text with every guess taken, and SPLIT where it may come apart."""
    plain: str = ""
    """The text of a word that is written without quotes or expansions."""
