"""Cuts a rule file into its top-level statements, also where some of them are damaged.

An intact file is cut exactly. In a damaged one a lost quote or bracket would swallow what follows, so there a line that
looks like the beginning of a statement is one (``guarded``). What may be a piece of a damaged statement, and not a
statement of its own, is *doubtful*: it may restrict, but neither grant nor lift anything.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

_TOKEN = re.compile(
    r"""
    (?P<string>[A-Za-z]{0,2}+(?:
        \"{3}[^"\\]*+(?:(?:\\.|"{1,2}(?!"))[^"\\]*+){0,2000}\"{3}
      | '{3}[^'\\]*+(?:(?:\\.|'{1,2}(?!'))[^'\\]*+){0,2000}'{3}
      | (?!\"{3})"[^"\\\n]*+(?:\\.[^"\\\n]*+)*" | (?!'{3})'[^'\\\n]*+(?:\\.[^'\\\n]*+)*' ))
  | (?P<open>[A-Za-z]{0,2}+(?:\"{3}|'{3}))
  | (?P<cut>[A-Za-z]{0,2}+["'][^\n]*+)
  | (?P<comment>\#[^\n]*+)
  | (?P<newline>\n)
  | (?P<joined>\\\r?\n)
  | (?P<bracket>[()\[\]{}])
  | (?P<semicolon>;)
  | (?P<blank>[ \t\r]++)
  | (?P<text>\w++|[^\w\s"'\#()\[\]{};\\]++|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"(": ")", "[": "]", "{": "}"}
MAX_GUESS = 20_000
"""Characters of one statement, where all is guessed."""
UNCLOSED_TEXT = "a text is not closed: a quotation mark is missing"
INDENTED = "it is indented, but belongs to no block"
_QUOTES = re.compile("[A-Za-z]{0,2}(?:\"\"\"|''')")
_BLOCK = re.compile(r"(?:if|elif|else|for|def|while)\b")
_GOES_ON = re.compile(r"(?:elif|else)\b")
_BLANKS = " \t\r\n"
_BEGINS = re.compile(
    r"""(?:prefix_rule|host_executable|network_rule)\s*\(
      | (?:def|if|for|load)\b
      | [A-Za-z_]\w*(?:\.\w+)*\(
      | \[\s*[A-Za-z_]\w*\(
      | [A-Za-z_]\w*\s*=(?!=)(?![^\n]*,[ \t]*(?:\#[^\n]*)?(?:\n|$))""",
    re.VERBOSE,
)
"""A line that begins a statement, and would be an odd continuation of one. ``pattern=…,`` continues a call."""
_BEGINNING = re.compile(f"^(?={_BEGINS.pattern})", re.VERBOSE | re.MULTILINE)
_CALL = re.compile(
    r"""(?:prefix_rule|host_executable|network_rule)\(
        (?: (?:[A-Za-z_]\w*=)?(?: " | \[ (?: " | \[[",]*\] | , )* \] ) | , )* \)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A stretch of the text."""

    start: int
    end: int
    line: int
    """1-based."""
    last_line: int
    plain: bool
    """A call with literal arguments and nothing else: it cannot cost more than its length."""
    fault: str = ""
    """Why it cannot be one."""
    doubtful: bool = False
    first: str = ""
    """Its first characters."""
    open_ended: bool = False
    """Its last character promises more, outside of any bracket."""


_NOTHING = Statement(start=0, end=0, line=1, last_line=1, plain=False)


def split(text: str) -> list[Statement]:
    """The statements of ``text``, in order."""
    exact = _Cutter(text, guarded=False).cut()
    return exact if exact is not None else cut_again(text, 0, len(text))


def cut_again(text: str, start: int, end: int) -> list[Statement]:
    """The statements within a stretch that is damaged somewhere."""
    stretch, before = text[start:end], text.count("\n", 0, start)
    unclosed = next((found.start() for found in _TOKEN.finditer(stretch) if found.lastgroup == "open"), None)
    found = _Cutter(stretch, guarded=True).cut() if unclosed is None else list(_guessed(stretch, unclosed))
    return [_moved(each, start, before) for each in found or []]


def _moved(statement: Statement, characters: int, lines: int) -> Statement:
    return replace(
        statement,
        start=statement.start + characters,
        end=statement.end + characters,
        line=statement.line + lines,
        last_line=statement.last_line + lines,
    )


def _guessed(text: str, unclosed: int) -> Iterator[Statement]:
    """The statements of a text with an unclosed triple quote.

    What stands inside and what outside of texts in triple quotes may have changed places, so each line that looks like
    the beginning of a statement is tried as one. These may overlap, and all of them are doubtful.
    """
    fault = replace(_NOTHING, start=unclosed, end=unclosed + 3, fault=UNCLOSED_TEXT)
    yield _moved(fault, 0, text.count("\n", 0, unclosed))
    line = at = 0
    for found in _BEGINNING.finditer(text):
        line, at = line + text.count("\n", at, found.start()), found.start()
        for each in _Cutter(text[at : at + MAX_GUESS], guarded=True).first():
            if not each.fault:
                yield replace(_moved(each, at, line), doubtful=True)


@dataclass(slots=True)
class _Chunk:
    start: int
    end: int
    first: str
    indent: str | None = field(default=None, init=False)
    """That of its body."""
    fault: str = field(default="", init=False)
    unclosed: bool = field(default=False, init=False)
    cuts: list[int] = field(default_factory=list, init=False)
    """Where semicolons stand."""
    skeleton: list[str] = field(default_factory=list, init=False)
    """Its tokens, each string as one quotation mark."""
    colon: bool = field(default=False, init=False)
    """Its first line ends with one."""

    @property
    def block(self) -> bool:
        return self.colon or _BLOCK.match(self.first) is not None


class _Cutter:
    def __init__(self, text: str, *, guarded: bool) -> None:
        self._text = text
        self._guarded = guarded
        self._chunks: list[_Chunk] = []
        self._chunk: _Chunk | None = None
        self._brackets: list[str] = []
        self._damaged = False
        self._line_begins = True
        """The next token is the first of a logical line."""

    def cut(self) -> list[Statement] | None:
        """``None`` if the text is damaged and no guesses are wanted."""
        self._read(most=len(self._text))
        return None if self._damaged and not self._guarded else list(self._statements())

    def first(self) -> list[Statement]:
        """The statements of the first line, or the block that begins there."""
        self._read(most=1)
        del self._chunks[1:]
        return list(self._statements())

    def _read(self, most: int) -> None:
        """On to the end, or until there are more than ``most`` chunks."""
        at = 0
        while len(self._chunks) <= most and (found := _TOKEN.match(self._text, at)) is not None:
            kind, token, at = found.lastgroup or "", found.group(), found.end()
            if self._guarded and kind == "string" and "\n" in token:
                kind, at = self._mistrusted(token, found.start())
                token = self._text[found.start() : at]
            if kind in ("comment", "blank"):
                continue
            if kind in ("newline", "joined"):
                self._end_line(kind, at)
            else:
                self._take(kind, token, found.start(), at)
            if self._damaged and not self._guarded:
                return
        if self._brackets:
            self._leave_open()

    def _mistrusted(self, token: str, start: int) -> tuple[str, int]:
        """What a text of several lines may be instead, where quotes are damaged, and where that ends."""
        newline = token.index("\n")
        if _QUOTES.match(token) is None and _BEGINS.match(self._text, start + newline + 1):
            return "cut", start + newline
        return "string", start + len(token)

    def _spoil(self, fault: str) -> None:
        self._damaged = True
        if self._chunk is not None:
            self._chunk.fault = self._chunk.fault or fault

    def _leave_open(self) -> None:
        self._spoil("a bracket is not closed")
        self._brackets.clear()
        if self._chunk is not None:
            self._chunk.unclosed = True

    def _end_line(self, kind: str, after: int) -> None:
        if kind == "newline" and not self._brackets:
            chunk = self._chunk
            if chunk is not None and chunk.indent is None and chunk.skeleton and not self._line_begins:
                chunk.colon = chunk.colon or chunk.skeleton[-1].endswith(":")
            self._line_begins = True
        elif self._guarded and not self._line_begins and _BEGINS.match(self._text, after):
            if self._brackets:
                self._leave_open()
            else:
                self._spoil("its last character joins it to the next statement")
            if kind == "joined" and self._chunk is not None:
                self._chunk.end = self._text.rindex("\\", 0, after) + 1
            self._line_begins = True

    def _take(self, kind: str, token: str, start: int, end: int) -> None:
        if self._line_begins:
            self._begin_line(start)
        chunk = self._chunk
        assert chunk is not None
        chunk.end = end
        if kind == "bracket":
            self._nest(token)
        elif kind in ("open", "cut"):
            self._spoil(UNCLOSED_TEXT)
        elif kind == "semicolon" and not self._brackets:
            chunk.cuts.append(start)
        if kind == "string":
            token = '"' if token[0] in "\"'" else 'f"'
        chunk.skeleton.append(token)

    def _nest(self, bracket: str) -> None:
        if bracket in _CLOSES:
            self._brackets.append(_CLOSES[bracket])
        elif not self._brackets:
            self._spoil(f"a {bracket} closes nothing")
        elif self._brackets.pop() != bracket:
            self._spoil(f"a {bracket} closes another bracket")

    def _begin_line(self, start: int) -> None:
        self._line_begins = False
        margin = self._text[self._text.rfind("\n", 0, start) + 1 : start]
        chunk = self._chunk
        first = self._text[start : start + 8]
        if chunk is not None and chunk.fault and (margin or first[0] in ")]}"):
            return
        if chunk is not None and chunk.block:
            if margin:
                if chunk.indent is None:
                    chunk.indent = margin
                if margin.startswith(chunk.indent):
                    return
            elif _GOES_ON.match(first):
                return
        self._chunk = _Chunk(start=start, end=start, first=first)
        if margin:
            self._chunk.fault = INDENTED
        self._chunks.append(self._chunk)

    def _statements(self) -> Iterator[Statement]:
        newlines = [found.start() for found in re.finditer("\n", self._text)]
        for chunk, following in zip(self._chunks, [*self._chunks[1:], None], strict=False):
            pieces = list(self._pieces(chunk))
            for start, end in pieces:
                yield Statement(
                    start=start,
                    end=end,
                    line=bisect_right(newlines, start) + 1,
                    last_line=bisect_right(newlines, end - 1) + 1,
                    plain=not chunk.fault and len(pieces) == 1 and _CALL.fullmatch("".join(chunk.skeleton)) is not None,
                    fault=chunk.fault,
                    doubtful=self._guarded and self._looks_inner(end, following),
                    first=chunk.first,
                    open_ended=not chunk.unclosed and self._text[end - 1] in ":=+-*/%<>|&.",
                )

    def _pieces(self, chunk: _Chunk) -> Iterator[tuple[int, int]]:
        """Where its statements begin and end, of which there are several where semicolons are."""
        cuts = chunk.cuts if not chunk.block and not chunk.fault else []
        among = frozenset(cuts)
        for start, end in itertools.pairwise((chunk.start - 1, *cuts, chunk.end)):
            piece = self._text[start + 1 : end]
            begin = start + 1 + len(piece) - len(piece.lstrip(_BLANKS))
            stripped = piece.strip(_BLANKS)
            if stripped:
                yield begin, begin + len(stripped)
            elif end in among:
                yield end, end + 1  # a semicolon that ends nothing

    def _looks_inner(self, end: int, following: _Chunk | None) -> bool:
        """It stands like an element of a list whose brackets are damaged."""
        return self._text[end - 1] == "," or (following is not None and self._text[following.start] in ")]}")


def doubt(statements: Sequence[Statement], bad: Sequence[bool]) -> list[Statement]:
    """Marks what may be the rest of a damaged neighbour: the body of a broken header, the branch before one."""
    marked = list(statements)
    for index, damaged in enumerate(bad):
        here = statements[index]
        if not damaged:
            continue
        for neighbour in (index - 1, index + 1):
            if 0 <= neighbour < len(marked) and here.line in (marked[neighbour].line, marked[neighbour].last_line):
                marked[neighbour] = replace(marked[neighbour], doubtful=True)
        if here.open_ended and index + 1 < len(marked):
            marked[index + 1] = replace(marked[index + 1], doubtful=True)
        before = statements[index - 1] if index else None
        branch = before is not None and before.first.startswith(("if", "for")) and before.last_line == here.line - 1
        if branch and not _BLOCK.match(here.first) and _has_body(statements, index):
            marked[index - 1] = replace(marked[index - 1], doubtful=True)
    return marked


def _has_body(statements: Sequence[Statement], index: int) -> bool:
    here = statements[index]
    following = statements[index + 1 : index + 2]
    return here.last_line > here.line or any(each.fault == INDENTED for each in following)
