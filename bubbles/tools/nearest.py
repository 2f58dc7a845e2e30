"""The part of a text that is most like one that was looked for in vain. Bounded in time, whatever both are."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from dataclasses import dataclass

BUDGET_S = 0.3
MAX_SHOWN = 20
"""Lines that are shown."""
MAX_WIDTH = 160
"""Characters of a line that are compared and shown."""
MAX_WANTED = 200
"""Lines of what is looked for that are compared."""
MAX_PLACES = 200
"""Places of one line that are followed; what is more frequent tells nothing."""
LIKE = 0.5
"""How alike two lines must be at least (``difflib`` ratio)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    line: int
    """Where it begins, from 1."""
    text: str
    only_blanks: bool
    """It differs in nothing but white space."""


def nearest(text: str, wanted: str) -> Nearest | None:
    """None if nothing is much like it, or that was not found in time."""
    lines = text.split("\n")
    sought = wanted.strip("\n").split("\n")
    start = _by_same_lines(lines, sought)
    if start is None:
        start = _by_likeness(lines, sought)
    if start is None:
        return None
    found = lines[start : start + len(sought)]
    shown = [line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}…" for line in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        shown.append("…")
    return Nearest(
        line=start + 1,
        text="\n".join(shown),
        only_blanks=len(found) <= MAX_WANTED and [one.split() for one in found] == [one.split() for one in sought],
    )


def _by_same_lines(lines: list[str], sought: list[str]) -> int | None:
    """Where most lines are the same but for white space around them."""
    at: dict[str, list[int]] = {line.strip(): [] for line in sought[:MAX_WANTED] if line.strip()}
    for number, line in enumerate(lines):
        places = at.get(line.strip())
        if places is not None and len(places) <= MAX_PLACES:
            places.append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(sought[:MAX_WANTED]):
        places = at.get(line.strip(), [])
        if len(places) <= MAX_PLACES:
            weight = 1 + min(len(line.strip()), MAX_WIDTH)
            for place in places:
                votes[max(0, place - offset)] += weight
    return max(votes, key=lambda start: (votes[start], -start)) if votes else None


def _by_likeness(lines: list[str], sought: list[str]) -> int | None:
    """Where the line is that is most like the longest one that is sought."""
    offset, longest = max(enumerate(sought[:MAX_WANTED]), key=lambda one: len(one[1].strip()))
    deadline = time.monotonic() + BUDGET_S
    matcher = difflib.SequenceMatcher(b=longest.strip()[:MAX_WIDTH], autojunk=False)
    best, score = None, LIKE
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:MAX_WIDTH])
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score and (ratio := matcher.ratio()) > score:
            best, score = number, ratio
        if time.monotonic() > deadline:
            break
    return None if best is None else max(0, best - offset)
