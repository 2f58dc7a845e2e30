"""One word of shell text, with its quotes undone and its expansions noted.

Source: bash's manual, "Quoting" and "Shell Expansions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bubbles.controller.policy.shell.quoting import ansi_c, braces
from bubbles.controller.policy.shell.reading import UNKNOWN, Hole, Word
from bubbles.controller.policy.shell.tokens import SPLIT, Token

if TYPE_CHECKING:
    from bubbles.controller.policy.shell.lexer import Lexer

MAX_NESTED = 8
"""Expansions inside expansions of one word."""

_ORDINARY = re.compile(r"[^\s;&|()<>\"'`$\\{}~*?\[]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?#$!@*-])\}")
_DEFAULT_VALUE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*:?[-=]([^${}`'\"\\]*)\}")
_WORD_ENDS = frozenset(" \t\n;&|()<>")
_IN_DOUBLE = re.compile(r"[^\"$`\\]+")
_TILDE = re.compile(r"~[^/\s\"'$`\\;&|()<>:]*")
_ASSIGNING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_NUMBERS = frozenset("?#$")


@dataclass(slots=True)
class WordScan:
    """One word that is more than plain characters."""

    lexer: Lexer
    start: int
    here: int = field(init=False, default=0)
    value: list[str] = field(init=False, default_factory=list)
    guess: list[str] = field(init=False, default_factory=list)
    holes: Hole = field(init=False, default=Hole.NONE)
    literal: bool = field(init=False, default=True)
    brace: bool = field(init=False, default=False)
    quoted: bool = field(init=False, default=False)

    def token(self) -> Token:
        value = "".join(self.value)
        guess = "".join(self.guess)
        if not self.brace:
            if value == "[":  # the command of that name, not a pattern
                self.holes = Hole.NONE
            word = Word(value, self.holes, self.literal)
            return Token(self.start, self.here, "", (word,), guess, value if self.literal else "")
        # A tilde that braces bring to the front of a word is expanded: {~,x}/y.
        sure = not self.quoted and "~" not in value and not self.holes & ~Hole.GLOB
        words = braces(value) if sure else None
        if words is None:
            spread = braces(guess) or (guess,)
            return Token(
                self.start, self.here, "", (Word(value, self.holes | Hole.BRACE, self.literal),), SPLIT.join(spread)
            )
        made = tuple(Word(word, self.holes, len(words) == 1) for word in words)
        plain = value if self.literal and len(words) == 1 else ""
        return Token(self.start, self.here, "", made, SPLIT.join(words), plain)

    def run(self) -> int:
        text, end = self.lexer.text, len(self.lexer.text)
        self.here = self.start
        while self.here < end:
            character = text[self.here]
            if character in "<>" and text.startswith("(", self.here + 1):
                self._parenthesised(self.here + 2, character + "(…)")
            elif character in _WORD_ENDS:
                return self.here
            elif (ordinary := _ORDINARY.match(text, self.here)) is not None:
                self._add(ordinary[0])
                self.here = ordinary.end()
                self._tilde_in_assignment()
            elif character.isspace():
                return self.here
            else:
                self._special(character)
        return self.here

    def _add(self, value: str) -> None:
        self.value.append(value)
        self.guess.append(value)

    def _special(self, character: str) -> None:
        if character == "'":
            self._single()
        elif character == '"':
            self._double()
        elif character == "\\":
            self._backslash()
        elif character == "$":
            self._dollar(quoted=False)
        elif character == "`":
            self._backquote()
        elif character == "~" and self.here == self.start:
            self._tilde()
        else:
            if character in "*?[":
                self.holes |= Hole.GLOB
            elif character == "{":
                self.brace = True
            self._add(character)
            self.here += 1

    def _backslash(self) -> None:
        self.literal = False
        following = self.lexer.text[self.here + 1 : self.here + 2]
        if not following:
            self.lexer.doubt("a backslash at the very end")
        elif following != "\n":
            self.quoted = self.quoted or following in "{},"
            self._add(following)
            if following in "*?[" and self.holes & Hole.GLOB:
                self.holes |= Hole.VARIABLE  # which of the characters is a pattern is not kept
        else:
            self._continued()
        self.here += 2

    def _continued(self) -> None:
        """A backslash at the end of a line: bash joins the lines before it looks for ``$`` and operators."""
        self.lexer.doubt("a line continued inside a word", breaks=False)

    def _single(self) -> None:
        closing = self.lexer.text.find("'", self.here + 1)
        if closing < 0:
            self.lexer.doubt("a quote that is not closed")
            closing = len(self.lexer.text)
        self._quoted(self.lexer.text[self.here + 1 : closing])
        self.here = closing + 1

    def _quoted(self, value: str) -> None:
        self.literal = False
        if self.holes & Hole.GLOB and any(c in "*?[" for c in value):
            self.holes |= Hole.VARIABLE
        if any(c in "{}," for c in value):
            self.quoted = True
        self._add(value)

    def _double(self) -> None:
        text = self.lexer.text
        self.literal = False
        self.here += 1
        while self.here < len(text):
            character = text[self.here]
            if character == '"':
                self.here += 1
                return
            if character == "$":
                self._dollar(quoted=True)
            elif character == "`":
                self._backquote()
            elif character == "\\":
                following = text[self.here + 1 : self.here + 2]
                if following in ("$", "`", '"', "\\"):
                    self._quoted(following)
                elif following != "\n":
                    self._quoted("\\" + following)
                else:
                    self._continued()
                self.here += 2
            else:
                run = _IN_DOUBLE.match(text, self.here)
                assert run is not None
                self._quoted(run[0])
                self.here = run.end()
        self.lexer.doubt("a quote that is not closed")

    def _dollar(self, *, quoted: bool) -> None:
        text = self.lexer.text
        self.literal = False
        following = text[self.here + 1 : self.here + 2]
        if following == "'" and not quoted:
            self._ansi_c()
        elif following == '"' and not quoted:
            self.holes |= Hole.VARIABLE  # translated by the locale
            self.here += 1
            self._double()
        elif following == "(":
            arithmetic = text.startswith("((", self.here + 1)
            self._parenthesised(self.here + 2, "$((…))" if arithmetic else "$(…)")
        elif following == "[":
            self._unknown(Hole.SUBSTITUTION)
            self.lexer.doubt("$[…]", breaks=False)
            self.here += 2
        elif following == "{":
            self._braced(quoted)
        elif (name := _NAME.match(text, self.here + 1)) is not None:
            self._variable(name[0], quoted)
            self.here = name.end()
        elif following and following in "?#$!@*-0123456789":
            self._variable(following, quoted)
            self.here += 2
        else:
            self._quoted("$")
            self.here += 1

    def _ansi_c(self) -> None:
        text, end = self.lexer.text, self.here + 2
        while end < len(text) and text[end] != "'":
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            self.lexer.doubt("a quote that is not closed")
        self._quoted(ansi_c(text[self.here + 2 : end]))
        self.here = end + 1

    def _variable(self, name: str, quoted: bool) -> None:
        if name in _NUMBERS:
            self.value.append(UNKNOWN)
            self.guess.append(UNKNOWN)
            self.holes |= Hole.INTEGER
            return
        known = self.lexer.values.get(name, UNKNOWN)
        self.holes |= Hole.VARIABLE
        self.value.append(known)
        if quoted and name not in ("@", "*"):
            self.guess.append(known)
        else:
            self.guess.append(SPLIT if name == "IFS" else re.sub(r"[ \t\n]+", SPLIT, known))

    def _braced(self, quoted: bool) -> None:
        text = self.lexer.text
        simple = _SIMPLE_PARAMETER.match(text, self.here + 1)
        if simple is not None:
            self._variable(simple[1], quoted)
            self.here = simple.end()
            return
        end = _closing(text, self.here + 2, "{", "}")
        body = text[self.here + 1 : end]
        self.holes |= Hole.VARIABLE
        default = _DEFAULT_VALUE.fullmatch(body)
        self.value.append(UNKNOWN)
        name = _NAME.match(body, 1)
        known = self.lexer.values.get(name[0], "") if name is not None else ""
        self.guess.append(known or (re.sub(r"[ \t\n]+", SPLIT, default[1]) if default is not None else UNKNOWN))
        self.lexer.doubt("${…} with more than a name in it", breaks=False)
        if "@" in body:  # ${A@P} expands the value once more
            body += self.lexer.values.get(name[0], "") if name is not None else ""
        if "$(" in body or "`" in body:
            self.holes |= Hole.SUBSTITUTION
            self.lexer.look_inside(body[1:-1])
        self.here = end

    def _parenthesised(self, opened: int, kind: str) -> None:
        end = _closing(self.lexer.text, opened, "(", ")")
        body = self.lexer.text[opened : end - 1]
        self._unknown(Hole.SUBSTITUTION)
        self.literal = False
        if kind != "$((…))":
            self.lexer.inner.append((kind, body))
        elif "$(" in body or "`" in body:
            self.lexer.look_inside(body)
        if end > len(self.lexer.text):
            self.lexer.doubt("a parenthesis that is not closed")
        self.here = min(end, len(self.lexer.text))

    def _backquote(self) -> None:
        text, end = self.lexer.text, self.here + 1
        while end < len(text) and text[end] != "`":
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            self.lexer.doubt("a backquote that is not closed")
        body = re.sub(r"\\([$`\\])", r"\1", text[self.here + 1 : end])
        self.lexer.inner.append(("`…`", body))
        self._unknown(Hole.SUBSTITUTION)
        self.literal = False
        self.here = end + 1

    def _unknown(self, hole: Hole) -> None:
        self.holes |= hole
        self.value.append(UNKNOWN)
        self.guess.append(UNKNOWN)

    def _tilde(self) -> None:
        prefix = _TILDE.match(self.lexer.text, self.here)
        assert prefix is not None
        self.literal = False
        self.here = prefix.end()
        following = self.lexer.text[self.here : self.here + 1]
        if prefix[0] == "~" and (following in ("", "/") or following in _WORD_ENDS):
            self._add(self.lexer.home)
        else:
            self.holes |= Hole.TILDE
            self._add(prefix[0])

    def _tilde_in_assignment(self) -> None:
        """``name=~/x`` is expanded even as an argument; ``name=a:~/x`` may be."""
        if self.lexer.text.startswith("~", self.here) and self.value[-1][-1] in "=:":
            written = self.lexer.text[self.start : self.here]
            if _ASSIGNING.match(written):
                if not _ASSIGNING.fullmatch(written):
                    self.holes |= Hole.TILDE
                self._tilde()


def _closing(text: str, start: int, opening: str, closing: str, nested: int = 0) -> int:
    """The position after the ``closing`` of an ``opening`` that stands before ``start``; past the end if there is none.

    Quotes are stepped over. Where a here-document or a ``case`` inside misleads it, the two readers disagree.
    """
    depth, here = 1, start
    while here < len(text):
        character = text[here]
        if character == "\\":
            here += 1
        elif character == "'":
            here = text.find("'", here + 1)
            if here < 0:
                return len(text) + 1
        elif character == '"':
            here = _after_double(text, here + 1, nested)
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return here + 1
        here += 1
    return len(text) + 1


def _after_double(text: str, here: int, nested: int) -> int:
    """The position of the quote that closes a double-quoted text; substitutions inside have quotes of their own."""
    while here < len(text):
        if text[here] == "\\":
            here += 1
        elif text.startswith("$(", here):
            if nested >= MAX_NESTED:
                return len(text) + 1
            here = _closing(text, here + 2, "(", ")", nested + 1) - 1
        elif text[here] == '"':
            return here
        here += 1
    return here
