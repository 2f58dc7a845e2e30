"""Cuts Markdown that is still being written into blocks that are finished. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_FENCE_LINES = 200
"""A longer piece of code is shown in parts."""
MAX_LIST_CHARACTERS = 2_000
"""A longer list is shown in parts, between two items."""
MAX_CHARACTERS = 8_000
"""Of any block; what has no line ends is cut there."""

FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^\n]*)")
INDENTED_FENCE = re.compile(r"(\s*)(`{3,}|~{3,})([^\n]*)")
ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
INDENTED = re.compile(r"(?: {2,}|\t)\S")


@dataclass(slots=True)
class Blocks:
    """``feed`` it pieces as they come; ``rest`` is what is not finished yet."""

    _partial: str = ""
    """A line without its end."""
    _lines: list[str] = field(default_factory=list)
    """Of the block that is open."""
    _fence: str = ""
    """The line that opened the code the block is in."""
    _size: int = 0

    @property
    def rest(self) -> str:
        return "\n".join([*self._lines, self._partial])

    @property
    def tail(self) -> str:
        """The last line or two of ``rest``, cheaply."""
        return "\n".join([*self._lines[-3:], self._partial])

    def feed(self, piece: str) -> list[str]:
        """The blocks that this finishes."""
        head, *lines = piece.split("\n")
        self._partial += head
        finished: list[str] = []
        for line in lines:
            finished += self._line(self._partial)
            self._partial = line
        if len(self._partial) + self._size > MAX_CHARACTERS:
            finished += self._cut()
        return finished

    def end(self) -> list[str]:
        """What is left, as a block."""
        line, self._partial = self._partial, ""
        return [*(self._line(line) if line else ()), *self._close()]

    def clear(self) -> None:
        self._partial, self._lines, self._fence, self._size = "", [], "", 0

    def _line(self, line: str) -> list[str]:
        if self._fence:
            return self._code(line)
        finished: list[str] = []
        if opening := self._opens(line):
            if not opening[1] or not self._is_list:
                finished += self._close()
            self._fence = line
            self._add(line)
            return finished
        if not line.strip():
            if self._is_list:
                self._add(line)  # whether the list is over is seen by what follows
                return []
            return self._close()
        if self._is_list and self._is_over(line):
            finished += self._close()
        if HEADING.match(line):
            return [*finished, *self._close(), line]
        self._add(line)
        return finished

    def _is_over(self, line: str) -> bool:
        """Whether this line, no blank one, does not belong to the list any more, or the list is long enough."""
        after_blank = not self._lines[-1].strip()
        return (after_blank and not _continues(line)) or (self._size > MAX_LIST_CHARACTERS and bool(ITEM.match(line)))

    def _opens(self, line: str) -> re.Match[str] | None:
        found = (INDENTED_FENCE if self._is_list else FENCE).fullmatch(line)
        return None if found is None or ("`" in found[2] and "`" in found[3]) else found

    def _code(self, line: str) -> list[str]:
        self._add(line)
        if _closes(line, self._fence):
            self._fence = ""
            return [] if self._is_list else self._close()
        if len(self._lines) > MAX_FENCE_LINES or self._size > MAX_CHARACTERS:
            return self._cut()
        return []

    def _cut(self) -> list[str]:
        """Show what there is of a block that is too long, and go on as if a new one began."""
        fence, in_list = self._fence, self._is_list
        if not fence or in_list:
            return self.end()
        if self._partial and len(self._lines) <= 1:
            self._add(self._partial)
            self._partial = ""
        mark = fence.strip()[: len(fence.strip()) - len(fence.strip().lstrip("`~"))]
        block = "\n".join([*self._lines, mark])
        self._lines, self._size = [fence], len(fence)
        return [block]

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _close(self) -> list[str]:
        block = "\n".join(self._lines).strip("\n")
        self._lines, self._fence, self._size = [], "", 0
        return [block] if block.strip() else []

    @property
    def _is_list(self) -> bool:
        return bool(self._lines) and ITEM.match(self._lines[0]) is not None


def _continues(line: str) -> bool:
    return bool(ITEM.match(line) or INDENTED.match(line))


def _closes(line: str, fence: str) -> bool:
    mark, opened = line.strip(), fence.strip()
    length = len(opened) - len(opened.lstrip(opened[0]))
    return len(mark) >= length and set(mark) == {opened[0]}
