"""Mentions as all channels write them, ``<@id>``, and what of a Markdown text is code (CHAN-06).

Nothing is a mention in code: not in a fenced block, not between backticks (CommonMark 0.31, 6.1).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

from bubbles.channels.fences import blocks

MENTION = re.compile(r"<@([^<>\s]{1,200})>")
"""Some ids have an ``@`` of their own: those of mail and Matrix."""
_EVERYBODY = frozenset({"all", "channel", "everyone", "group", "here", "room"})
"""With an ``@`` before them these call many people at once, on one platform or another."""
_PARAGRAPH_END = re.compile(
    r"^ {0,3}#{1,6}[ \t].*\n|\n(?=[ \t\r]*(?:\n|>|#{1,6}[ \t]|[-+*][ \t]|\d{1,9}[.)][ \t]))", re.MULTILINE
)
"""Backticks before and after it do not belong together."""
_TICKS = re.compile("`+")
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Of scripts whose words may stand right beside a name."""
_BEFORE = rf"(?<![^\W{_UNSPACED}])(?<![.+%@/=&~-])"
_AFTER = rf"(?![^\W{_UNSPACED}])(?![@/]|[.-][^\W{_UNSPACED}])"
_CALLING = r"\s*(?:[,:;!?.\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1f]|$)"
_AFTER_LEADING = re.compile(r"[\s,:;\uff0c\uff1a]*")


def code_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Inline code in a part of ``text`` that has no fences: where each span begins and ends, its backticks included."""
    if text.find("`", start, end) < 0:
        return
    breaks = (found.end() for found in _PARAGRAPH_END.finditer(text, start, end))
    for begin, stop in pairwise((start, *breaks, end)):
        yield from _spans(text, begin, stop)


def _spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    runs = [found.span() for found in _TICKS.finditer(text, start, end)]
    places: dict[int, list[int]] = defaultdict(list)
    for begin, stop in runs:
        places[stop - begin].append(begin)
    at = start
    for begin, stop in runs:
        opens = begin + _escaped(text, begin, start)
        if begin < at or opens == stop:
            continue
        alike = places.get(stop - opens, [])
        number = bisect_right(alike, begin)
        if number < len(alike):
            at = alike[number] + stop - opens
            yield opens, at


def _escaped(text: str, at: int, start: int) -> bool:
    """Whether a backslash stands before it that is not itself after one."""
    first = at
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1


def outside_code(text: str) -> Iterator[tuple[bool, str]]:
    """The whole text in parts, each with whether it is code."""
    at = 0
    for begin, end in _code(text):
        if begin > at:
            yield False, text[at:begin]
        yield True, text[begin:end]
        at = end
    if at < len(text):
        yield False, text[at:]


def _code(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    for block in blocks(text):
        yield from code_spans(text, at, block.start)
        yield block.start, block.end
        at = block.end
    yield from code_spans(text, at, len(text))


def mentions_out(text: str, render: Callable[[str], str | None]) -> str:
    """Puts what ``render`` makes of an id in the place of its mention. None: it is nobody who is known, and what stays
    of it calls nobody.
    """

    def rendered(found: re.Match[str]) -> str:
        ident = found[1]
        shown = render(ident)
        if shown is not None:
            return shown
        return ident if ident.lower().lstrip("!@&") in _EVERYBODY else f"@{ident}"

    return "".join(part if is_code else MENTION.sub(rendered, part) for is_code, part in outside_code(text))


def strip_leading_mention(text: str, ids: Collection[str]) -> str:
    """Without mentions of one of ``ids`` at the beginning, and the comma or colon after them."""
    text = text.lstrip()
    while (found := MENTION.match(text)) is not None and found[1] in ids:
        text = text[_AFTER_LEADING.match(text, found.end()).end() :]  # type: ignore[union-attr]  # it matches nothing too
    return text


def is_mentioned(text: str, names: Collection[str]) -> bool:
    """Whether it is said to somebody of one of these names: ``@name`` anywhere, or ``name,`` at the beginning.

    A longer name, a mail address, a part of a web address or code is not it (B103), whoever else is mentioned (B104).
    """
    either = "|".join(re.escape(name) for name in names if name)
    if not either:
        return False
    tagged = re.compile(rf"{_BEFORE}@(?:{either}){_AFTER}", re.IGNORECASE)
    called = re.compile(rf"\s*(?:{MENTION.pattern}\s*)*(?:{either})(?={_CALLING}){_AFTER}", re.IGNORECASE)
    return called.match(text) is not None or any(
        not is_code and tagged.search(part) is not None for is_code, part in outside_code(text)
    )
