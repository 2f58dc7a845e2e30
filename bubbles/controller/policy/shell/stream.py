"""The tokens of a text, one after the other, and what is wrong with it so far."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bubbles.controller.policy.shell.lexer import Lexer
from bubbles.controller.policy.shell.reading import Segment
from bubbles.controller.policy.shell.tokens import SPLIT, Token

MAX_VALUE = 500
"""Characters of a variable that are guessed with: values made of values would grow without end."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^]]*\])?(\+?)=", re.DOTALL)


@dataclass(slots=True)
class Stream:
    """``text`` cut into tokens, at one of which it stands.

    ``values`` are the texts of variables as far as they are known, for guesses; those assigned in ``text`` are added.
    """

    text: str
    home: str
    values: dict[str, str]
    via: tuple[str, ...] = ()
    segments: list[Segment] = field(init=False, default_factory=list)
    doubts: list[str] = field(init=False, default_factory=list)
    broken: bool = field(init=False, default=False)
    lexer: Lexer = field(init=False)
    tokens: list[Token] = field(init=False)
    operators: list[str] = field(init=False)
    """Of each token, ``""`` for a word; then ``end``, for good."""
    written: list[str] = field(init=False)
    """Of each token, its text if it is a word without quotes or expansions; else ``""``."""
    at: int = field(init=False, default=0)
    nested: int = field(init=False, default=0)
    upstream: tuple[tuple[str, ...], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.lexer = Lexer(self.text, self.home, self.values)
        self.lexer.run()
        if "$" in self.text and self._learn_values():
            self.lexer = Lexer(self.text, self.home, self.values)
            self.lexer.run()
        self.tokens = self.lexer.tokens
        self.operators = [token.operator for token in self.tokens]
        self.operators += ("end", "end")
        self.written = [token.plain for token in self.tokens]
        if self.lexer.exhausted:
            self.fail("it is too long to be read whole")
        for doubt in self.lexer.doubts:
            self.fail(doubt)
        for construct in self.lexer.constructs:
            self.doubt(construct)

    def _learn_values(self) -> bool:
        """Note what variables are assigned anywhere, before words that use them are guessed."""
        known = dict(self.values)
        for index, token in enumerate(self.lexer.tokens):
            match = None if token.operator else ASSIGNMENT.match(self.text, token.start, token.end)
            if match is not None:
                guess = token.guess[token.guess.find("=") + 1 :].replace(SPLIT, " ")
                whole = self.values.get(match[1], "") + guess if match[3] else guess
                self.values[match[1]] = whole[:MAX_VALUE]
            elif token.guess in ("for", "select"):
                self._learn_loop(index + 1)
        return self.values != known

    def _learn_loop(self, index: int) -> None:
        """``for name in a b``: any of the words may be the value."""
        words: list[str] = []
        for token in self.lexer.tokens[index : index + 100]:
            if token.operator or token.guess == "do":
                break
            words.append(token.guess)
        if len(words) > 2:
            self.values[words[0]] = " ".join(words[2:]).replace(SPLIT, " ")[:MAX_VALUE]

    def operator(self) -> str:
        try:
            return self.operators[self.at]
        except IndexError:
            return "end"

    def word_text(self) -> str:
        """The next token, if it is a word written without quotes or expansions; else nothing."""
        try:
            return self.written[self.at]
        except IndexError:
            return ""

    def skip(self, count: int = 1) -> None:
        """Step over tokens, not past the end."""
        self.at = min(self.at + count, len(self.tokens))

    def doubt(self, what: str) -> None:
        if what not in self.doubts:
            self.doubts.append(what)

    def fail(self, what: str) -> None:
        """It is not a script that bash would run, as far as can be seen."""
        self.broken = True
        self.doubt(what)

    def skip_newlines(self) -> None:
        while self.operator() == "\n":
            self.at += 1
