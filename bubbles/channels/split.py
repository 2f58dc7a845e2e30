"""Cuts a long Markdown text into messages that a platform takes (CHAN-08).

A cut is made between paragraphs, else lines, sentences, words; within a word only where nothing else is left. A code
block that is cut is closed in one piece and opened again in the next, in the same language (B097). Mentions, inline
code and links stay whole if they fit into a piece at all. Only white space is lost, where a cut is.

Takes time in proportion to the text, whatever it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from bubbles.channels.breaks import Break, Span, cluster_start, merged, whole_spans, would_mean_more
from bubbles.channels.fences import Block, blocks

MIN_TEXT = 40
"""A fence and some code have room in it."""
_LEAST = 3
"""A third of a piece must be full for a good place to cut; else the next best kind of place is taken."""
_SOLID = re.compile(r"\S")
_QUOTED = re.compile(r"[^\s>]")

Measure = Callable[[str], int]


def split(text: str, max_text: int, measure: Measure = len) -> list[str]:
    """Pieces of at most ``max_text``, as ``measure`` counts: none is blank, and a blank text has none.

    ``measure`` must not shrink as a text grows, nor find ``max_text`` in a single character. ValueError for a
    ``max_text`` under 40.
    """
    if max_text < MIN_TEXT:
        raise ValueError(f"max_text is {max_text}, it must be {MIN_TEXT} at least")
    return list(_Cutter(text, max_text, measure).pieces())


class _Cutter:
    def __init__(self, text: str, max_text: int, measure: Measure) -> None:
        self._text, self._max, self._measure = text, max_text, measure
        self._blocks = [block for block in blocks(text) if self._has_room(block)]
        self._starts = [block.start for block in self._blocks]

    def pieces(self) -> Iterator[str]:
        at = 0
        while (start := self._begin(at)) < len(self._text):
            piece, at = self._next(start)
            yield piece

    # -- what is where --

    def _has_room(self, block: Block) -> bool:
        """Whether it can be opened and closed with much room left between; else it is taken for plain text."""
        if block.body - block.start > self._max // 2:
            return False
        opener = max(self._text[block.start : block.body], _opening(block, mid_line=True), key=self._measure)
        return self._measure(f"{opener}\n{_closing(block, fresh=True)}") <= self._max // 2

    def _broken_at(self, at: int) -> Block | None:
        """The code block that a cut here would break."""
        number = bisect_left(self._starts, at) - 1
        return self._blocks[number] if number >= 0 and at < self._blocks[number].end else None

    def _within(self, start: int, end: int) -> list[Block]:
        """The code blocks of which a part is here."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._blocks[first].end <= start:
            first += 1
        return self._blocks[first : bisect_left(self._starts, end)]

    def _solid(self, start: int, end: int) -> int:
        """Where the first character is that is not white space, else ``end``."""
        found = _SOLID.search(self._text, start, end)
        return end if found is None else found.start()

    def _is_mid_line(self, at: int) -> bool:
        return at > 0 and self._text[at - 1] != "\n"

    def _is_whole(self, block: Block) -> bool:
        """Whether it fits into one piece."""
        if block.end - block.start > self._max:
            return False
        return self._measure(self._text[block.start : block.end].rstrip()) <= self._max

    # -- one piece --

    def _begin(self, at: int) -> int:
        """Where the next piece begins if the last one ended here: after white space, but before the indent of code."""
        while (block := self._broken_at(at)) is not None:
            first = self._solid(at, block.close)
            if first < block.close:
                return self._with_indent(at, first)
            at = block.end
        first = self._solid(at, len(self._text))
        if first == len(self._text):
            return first
        opened = self._broken_at(first)
        if opened is not None and first < opened.body:
            return opened.start
        return first if at else self._with_indent(0, first)

    def _with_indent(self, at: int, first: int) -> int:
        begin = max(at, self._text.rfind("\n", at, first) + 1)
        return begin if first - begin < self._max // 4 else first

    def _next(self, start: int) -> tuple[str, int]:
        """The piece that begins here, and where it ends."""
        limit = min(len(self._text), start + self._max)
        while True:
            limit = self._fitting(start, limit)
            end = limit if limit == len(self._text) else self._cut(start, limit)
            piece = self._made(start, end)
            if self._measure(piece) <= self._max or end - start <= 1:
                return piece, end
            limit = start + max(1, (min(end, limit) - start) * 3 // 4)

    def _fitting(self, start: int, most: int) -> int:
        """How far the text goes into one piece."""
        block = self._broken_at(start)
        opening = "" if block is None else _opening(block, mid_line=self._is_mid_line(start))
        return self._last(start + 1, most, lambda end: opening + self._text[start:end])

    def _last(self, least: int, most: int, made: Callable[[int], str]) -> int:
        """The last of these ends whose piece is not too long; ``least`` if none is."""
        if self._measure(made(most)) <= self._max:
            return most
        while most - least > 1:
            middle = (least + most) // 2
            if self._measure(made(middle)) <= self._max:
                least = middle
            else:
                most = middle
        return least

    def _made(self, start: int, end: int) -> str:
        """The text from ``start`` to ``end``, its code blocks whole: opened, closed, and clear of a list that began in
        another piece, since what is far right without one is no fence.
        """
        parts, at = [], start
        for block in self._within(start, end):
            fresh, strayed = block.start >= start, block.item is not None and block.item < start
            first, last = max(block.start, start), min(block.end, end)
            parts.append(self._text[at:first])
            mid_line = not fresh and self._is_mid_line(first)
            if not fresh:
                parts.append(_opening(block, mid_line=mid_line))
            code = self._text[first:last]
            if strayed:
                code = _moved_left(code, block, fresh=fresh, mid_line=mid_line)
            if last < block.end or (strayed and block.close == block.end < end):
                code = f"{code.rstrip()}\n{_closing(block, fresh=fresh, strayed=strayed)}"
                code += "\n" if last < end else ""
            parts.append(code)
            at = last
        parts.append(self._text[at:end])
        return "".join(parts).rstrip()

    # -- where to cut --

    def _cut(self, start: int, limit: int) -> int:
        """The best end of a piece that can go as far as ``limit``."""
        solid, room, broken = self._solid(start, limit), limit, self._broken_at(limit)
        if broken is not None:
            if broken.start > solid and self._is_whole(broken):
                return broken.start
            least = max(broken.body, start + 1)
            room = self._last(least, max(least, min(limit, broken.close)), lambda end: self._made(start, end))
            if room == broken.close:
                return room
        spans = merged(self._spans(solid, min(len(self._text), limit + self._max)))
        for kept in (spans, None):
            end = self._at_break(solid, limit, room, kept) or self._within_word(solid, room, kept)
            if end is not None:
                return end
        return max(start + 1, room)

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        at = start
        for block in self._within(start, end):
            yield from whole_spans(self._text, at, max(at, block.start))
            at = block.end
        yield from whole_spans(self._text, at, max(at, end))

    def _at_break(self, solid: int, limit: int, room: int, spans: list[Span] | None) -> int | None:
        """``spans``: what is not to be cut; None: anything may be."""
        broken = self._broken_at(limit)

        def is_good(end: int, in_code: bool | None) -> bool:
            block = self._broken_at(end)
            if in_code is (block is None):
                return False
            if block is None:
                return spans is None or not (_around(spans, end) or would_mean_more(self._text, end))
            if not block.body < end < block.close or (block is broken and end > room):
                return False
            return (_QUOTED if block.quotes else _SOLID).search(self._text, max(block.body, solid), end) is not None

        full = solid + (limit - solid) // _LEAST
        for kind, in_code in _KINDS:
            places = kind.places(self._text, solid, limit)
            if kind is Break.PARAGRAPH and not in_code:
                edges = {edge for block in self._within(solid, limit) for edge in (block.start, block.end)}
                places = sorted(edges.union(places))
            least = solid if kind is Break.WORD else full
            for end in reversed(places):
                if end <= least:
                    break
                if end <= limit and is_good(end, in_code):
                    return end
        return None

    def _within_word(self, solid: int, room: int, spans: list[Span] | None) -> int | None:
        end = cluster_start(self._text, solid, room)
        block = self._broken_at(end)
        if block is not None and end <= block.body:
            end = block.start
        elif block is None and spans is not None and (span := _around(spans, end)):
            end = span[0]
        return end if end > solid else None


_KINDS = (
    (Break.PARAGRAPH, False),
    (Break.LINE, False),
    (Break.PARAGRAPH, True),
    (Break.LINE, True),
    (Break.SENTENCE, False),
    (Break.CLAUSE, False),
    (Break.WORD, None),
)
"""What is tried, one after another, and whether in code; None: wherever it is."""


def _around(spans: list[Span], at: int) -> Span | None:
    """What would be broken by a cut here."""
    number = bisect_left(spans, (at, at)) - 1
    return spans[number] if number >= 0 and at < spans[number][1] else None


def _opening(block: Block, *, mid_line: bool) -> str:
    """What a piece begins with that goes on with this block's code."""
    quoted = "> " * block.quotes
    return f"{quoted}{block.marker}{block.info}\n{quoted if mid_line else ''}"


def _closing(block: Block, *, fresh: bool, strayed: bool = False) -> str:
    """What ends the code in a piece; ``fresh``: it began there, ``strayed``: without its list."""
    if not fresh:
        return "> " * block.quotes + block.marker
    lead = _LEAD_MARKS.sub(" ", block.lead)
    return (_moved_left(lead, block, fresh=True) if strayed else lead) + block.marker


def _moved_left(code: str, block: Block, *, fresh: bool, mid_line: bool = False) -> str:
    """Lines of a block without the indent that its list gave it."""
    inner = block.lead.rpartition(">")[2]
    columns = len(inner) - len(inner.lstrip(" ")) if fresh else block.indent
    indent = re.compile(rf"^((?: {{0,3}}> ?){{{block.quotes}}})(?:\t| {{1,{max(1, columns)}}})", re.MULTILINE)
    kept = (code.find("\n") + 1 or len(code)) if mid_line else 0
    return code[:kept] + (indent.sub(r"\1", code[kept:]) if columns else code[kept:])


_LEAD_MARKS = re.compile(r"[^>\s]")
