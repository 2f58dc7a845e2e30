"""Shell text to tokens, as bash cuts them.

This is one of two readers that must agree before anything is allowed; the other is tree-sitter's grammar
(``agreement``). It never fails: what it cannot make sense of it notes as a doubt and goes on, for suspicion needs
something to look at even then. Source: bash's manual, "Shell Grammar" and "Shell Expansions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bubbles.controller.policy.shell.reading import Word
from bubbles.controller.policy.shell.tokens import Token
from bubbles.controller.policy.shell.words import MAX_NESTED, WordScan

MAX_TOKENS = 2500
MAX_BODIES = 16
"""Here-documents of one text."""

_USUAL = re.compile(
    r"[ \t]*(?:([A-Za-z0-9_./:@%+,=^-]+)(?=[ \t\n;&|()]|[<>](?!\()|\Z)|(&&|\|\||>&|>>|;(?![;&])|\|(?!&)))"
)
"""The most frequent tokens by far, with the blanks before them."""
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_OPERATOR = re.compile(r"&&|\|\||;;&|;&|;;|\|&|&>>|&>|<<<|<<-|<<|<&|>&|<>|>>|>\||[;&|()<>\n]")


@dataclass(slots=True)
class Lexer:
    """``tokens`` of ``text``. ``values`` are the variables whose text is known, for guesses only."""

    text: str
    home: str
    values: Mapping[str, str]
    depth: int = 0
    tokens: list[Token] = field(init=False, default_factory=list)
    doubts: list[str] = field(init=False, default_factory=list)
    constructs: list[str] = field(init=False, default_factory=list)
    """What is valid, and not read for certain."""
    inner: list[tuple[str, str]] = field(init=False, default_factory=list)
    """Scripts inside words, as (kind, text): ``$(…)``, backquotes, ``<(…)``."""
    exhausted: bool = field(init=False, default=False)

    def run(self) -> None:
        text, end, here = self.text, len(self.text), 0
        bodies: list[tuple[int, bool]] = []
        documents = 0
        tokens, usual = self.tokens, _USUAL.match
        while here < end:
            if len(tokens) >= MAX_TOKENS or documents > MAX_BODIES:
                self.exhausted = True
                return
            if (token := usual(text, here)) is not None:
                here = token.end()
                value = token[1]
                if value is not None:
                    tokens.append(Token(here - len(value), here, "", (Word(value),), value, value))
                else:
                    value = token[2]
                    tokens.append(Token(here - len(value), here, value))
            elif (blank := _BLANK.match(text, here)) is not None:
                here = blank.end()
            elif text[here] == "#":
                here = text.find("\n", here)
                here = end if here < 0 else here
            elif text[here] in "<>" and text.startswith("(", here + 1):
                here = self._word(here)
            elif (operator := _OPERATOR.match(text, here)) is not None:
                self.tokens.append(Token(here, operator.end(), operator[0]))
                here = operator.end()
                if operator[0] in ("<<", "<<-"):
                    bodies.append((len(self.tokens), operator[0] == "<<-"))
                    documents += 1
                elif operator[0] == "\n" and bodies:
                    here = self._bodies(bodies, here)
                    bodies = []
            elif (after := self._word(here)) > here:
                here = after
            else:
                self.doubt(f"the character {text[here]!r} here")
                here += 1

    def doubt(self, what: str, *, breaks: bool = True) -> None:
        """Note it; one that ``breaks`` means that bash would not run the text either."""
        found = self.doubts if breaks else self.constructs
        if what not in found:
            found.append(what)

    def _bodies(self, bodies: list[tuple[int, bool]], here: int) -> int:
        """Step over here-documents; the body becomes the guess of the delimiter's token."""
        for index, tabs in bodies:
            if index >= len(self.tokens):
                continue
            token = self.tokens[index]
            ending = "".join(word.text for word in token.words)
            start = here
            while here < len(self.text):
                stop = self.text.find("\n", here)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[here:stop]
                here = min(stop + 1, len(self.text))
                if (line.lstrip("\t") if tabs else line) == ending:
                    body = self.text[start : here - len(line) - 1]
                    break
            else:
                body = self.text[start:]
            if all(word.literal for word in token.words):
                self.look_inside(body)
            self.tokens[index] = Token(token.start, token.end, "", token.words, body)
        return here

    def look_inside(self, body: str) -> None:
        """Note the scripts in ``body``, which is expanded as if in double quotes."""
        if self.depth >= MAX_NESTED:
            self.exhausted = True
            return
        sub = Lexer('"' + body.replace('"', "") + '"', self.home, self.values, self.depth + 1)
        sub.run()
        self.inner.extend(sub.inner)
        self.exhausted = self.exhausted or sub.exhausted

    def _word(self, start: int) -> int:
        """One word from ``start``; returns where it ends."""
        scan = WordScan(self, start)
        end = scan.run()
        self.tokens.append(scan.token())
        return end
