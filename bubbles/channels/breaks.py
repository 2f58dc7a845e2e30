"""Where a text breaks well, and what in it should stay whole. Knows nothing of code blocks."""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterator

from bubbles.channels.markup import MENTION, code_spans

Span = tuple[int, int]


class Break(enum.Enum):
    """Kinds of places, the best first. A place is where the next part begins."""

    PARAGRAPH = re.compile(r"\n(?:[ \t\r]*\n)+")
    LINE = re.compile(r"\n(?:[ \t\r]*\n)*")
    SENTENCE = re.compile(
        r"[.!?\u2026][\"')\]\u201d\u2019*_]{0,5}\s|[\u3002\uff01\uff1f]+[\"')\]\u201d\u2019\u300d\u300f]{0,5}"
    )
    CLAUSE = re.compile(r"[,;:]\s|[\uff0c\u3001\uff1b\uff1a]")
    WORD = re.compile(r"\n(?:[ \t\r]*\n)*|(?<=\S)[^\S\n]+")

    def places(self, text: str, start: int, end: int) -> list[int]:
        found = self.value.finditer(text, start, end)
        if self in (Break.PARAGRAPH, Break.LINE):
            return [one.end() for one in found if not _is_heading(text, start, one.start())]
        return [one.end() for one in found]


_HEADING = re.compile(r" {0,3}#{1,6}\s")
_LINK = re.compile(r"\[[^\[\]\n]{1,300}\]\([^()\s]{1,2000}\)")
_MARKER = re.compile(r"\s*(?:[-+*>#]|\d{1,9}[.)]\s|`{3}|~{3})")
_MAX_CLUSTER = 64
"""Characters that belong together, such as a letter and what is put on it; more is cut anywhere."""
_JOINER = "\u200d"


def _is_heading(text: str, start: int, end: int) -> bool:
    """Whether the line that ends here is one: what it is about comes next."""
    return _HEADING.match(text, max(start, text.rfind("\n", start, end) + 1), end) is not None


def would_mean_more(text: str, at: int) -> bool:
    """Whether what stands here in the middle of a line would be a list, a heading or a fence at its beginning."""
    return text[at - 1 : at] != "\n" and _MARKER.match(text, at) is not None


def whole_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Inline code, mentions and links between ``start`` and ``end``, where there is no code block."""
    yield from code_spans(text, start, end)
    for pattern in (MENTION, _LINK):
        yield from (found.span() for found in pattern.finditer(text, start, end))


def merged(spans: Iterator[Span]) -> list[Span]:
    """In order, and none touching another: those that overlap are one."""
    whole: list[Span] = []
    for begin, end in sorted(spans):
        if whole and begin < whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((begin, end))
    return whole


def cluster_start(text: str, least: int, at: int) -> int:
    """``at``, or a little before it so that a cut separates no characters that are seen as one; after ``least``."""
    for place in range(at, max(least, at - _MAX_CLUSTER), -1):
        if not _joined(text, place):
            return place
    return at


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and after this place are seen as one (after UAX 29, 3.1.1)."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return before + after == "\r\n"
    if unicodedata.category(after)[0] == "M" or _JOINER in (before, after):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # colours of skin, and the letters of a flag
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_regional(before) and _is_regional(after):
        first = at - 1
        while first > max(0, at - _MAX_CLUSTER) and _is_regional(text[first - 1]):
            first -= 1
        return (at - first) % 2 == 1
    return _is_jamo(before) and "\u1160" <= after <= "\u11ff"


def _is_regional(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"


def _is_jamo(letter: str) -> bool:
    return "\u1100" <= letter <= "\u11ff" or "\uac00" <= letter <= "\ud7a3"
