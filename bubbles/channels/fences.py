"""Which lines of a Markdown text are in a fenced code block (CommonMark 0.31, 4.5, 5.1 and 5.2).

Fences are found as a renderer finds them: in quotes and in lists too, where they end with their quote or list. Left out
is what matters to nobody here: indented code, HTML blocks, lazy continuation. Takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TELLING = re.compile(r"^[ \t]*(?:>|[-+*](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$)|`{3}|~{3}).*|^[ \t\r]*\n\S.*", re.MULTILINE)
"""Lines outside of code that begin something, or end a list: all others say nothing about fences."""
_BULLET = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?= |$)")
_OPENER = re.compile(r"(?P<marker>`{3,})(?P<info>[^`]*)$|(?P<tildes>~{3,})(?P<words>.*)$")
_QUOTE = -1
_MAX_DEPTH = 50
"""Of quotes and lists in each other: nobody writes more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced code block. Numbers are offsets into the text unless said otherwise."""

    start: int
    """Of the line that opens it."""
    body: int
    """Of the first line of code."""
    close: int
    """Of the line that closes it; ``end`` if there is none."""
    end: int
    """After the line that closes it."""
    marker: str
    info: str
    lead: str
    """What stands before the marker, without tabs."""
    indent: int
    """Columns between the innermost quote and the marker."""
    item: int | None
    """Of the outermost list item that it is in: where that item begins."""

    @property
    def quotes(self) -> int:
        """Depth."""
        return self.lead.count(">")


def blocks(text: str) -> Iterator[Block]:
    """All fenced code blocks, in order."""
    nest, at = _Nest(), 0
    while (telling := _TELLING.search(text, at)) is not None:
        start = text.rfind("\n", telling.start(), telling.end()) + 1 or telling.start()
        line = _plain(telling[0][start - telling.start() :])
        at = telling.end()
        first = nest.enter(line, start)
        if first is None or (opener := _OPENER.match(line, first)) is None:
            continue
        marker = opener["marker"] or opener["tildes"]
        indent, item = first - nest.base, next((offset for kind, offset in nest.open if kind != _QUOTE), None)
        body = min(at + 1, len(text))
        close, at = nest.ending(text, body, marker)
        yield Block(
            start=start,
            body=body,
            close=close,
            end=at,
            marker=marker,
            info=(opener["info"] or opener["words"] or "").strip(),
            lead=line[:first],
            indent=indent,
            item=item,
        )


class _Nest:
    """The quotes and list items that are open, outermost first."""

    def __init__(self) -> None:
        self.open: list[tuple[int, int]] = []
        """``_QUOTE``, or the column where an item's text begins; and the offset of the line that began it."""
        self.base = 0
        """Where the innermost quote's text begins in the line that was looked at last: columns count from here."""
        self._margin = 0
        """Column where the text of the innermost item begins."""

    def enter(self, line: str, offset: int) -> int | None:
        """Take a line outside of code: where its own text begins, None if that is too far right for a fence."""
        known, first = self._along(line)
        del self.open[known:]
        while first - self.base - self._margin <= 3:
            bullet = _BULLET.match(line, first)
            if len(self.open) >= _MAX_DEPTH or (bullet is None and line[first : first + 1] != ">"):
                return first
            if bullet is None:
                first = self._quote(line, first)
                self.open.append((_QUOTE, offset))
            else:
                text = _first(line, bullet.end())
                gap = text - bullet.end()
                self._margin = bullet.end() - self.base + (1 if text == len(line) or gap > 4 else gap)
                self.open.append((self._margin, offset))
                first = text
        return None

    def ending(self, text: str, body: int, marker: str) -> tuple[int, int]:
        """Where the line that closes a block begins and ends."""
        closer = re.compile(rf"{marker[0]}{{{len(marker)},}}[ \t\r]*$\n?", re.MULTILINE)
        if not self.open:
            found = re.compile(rf"^ {{0,3}}{closer.pattern}", re.MULTILINE).search(text, body)
            return (len(text), len(text)) if found is None else (found.start(), found.end())
        quoted = any(kind == _QUOTE for kind, _ in self.open)
        while body < len(text):
            end = text.find("\n", body) + 1 or len(text)
            line = _plain(text[body:end])
            if line or quoted:
                known, first = self._along(line)
                if known < len(self.open):
                    del self.open[known:]
                    return body, body
                if first - self.base - self._margin <= 3 and closer.match(line, first):
                    return body, end
            body = end
        return body, body

    def _along(self, line: str) -> tuple[int, int]:
        """How much of what is open this line goes on with, and where its text begins after that."""
        self.base = self._margin = 0
        first = _first(line, 0)
        for number, (kind, _) in enumerate(self.open):
            if kind != _QUOTE:
                if first < len(line) and first - self.base < kind:
                    return number, first
                self._margin = kind
            elif first - self.base - self._margin <= 3 and line[first : first + 1] == ">":
                first = self._quote(line, first)
            else:
                return number, first
        return len(self.open), first

    def _quote(self, line: str, at: int) -> int:
        self.base, self._margin = at + (2 if line[at + 1 : at + 2] == " " else 1), 0
        return _first(line, self.base)


def _plain(line: str) -> str:
    line = line.rstrip()
    return line.expandtabs(4) if "\t" in line else line


def _first(line: str, at: int) -> int:
    """Where something else than a space stands, from ``at`` on."""
    while line[at : at + 1] == " ":
        at += 1
    return at
