"""Spans of time as people write them, and in words. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

LEAST = timedelta(seconds=10)
MOST = timedelta(days=366)
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_WORDS = (("day", _UNITS["d"]), ("hour", _UNITS["h"]), ("minute", _UNITS["m"]), ("second", _UNITS["s"]))


def span(text: str) -> timedelta:
    """``90s``, ``30m``, ``2h``, ``1d``: ``LEAST`` to ``MOST``. Raises ValueError with the mend, the rest of a sentence.

    A number alone is refused: it would be minutes to one person and seconds to the next.
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        unit = " with its unit" if text.isascii() and text.isdecimal() else ""
        raise ValueError(f"write a number{unit}, one of s, m, h and d behind it, such as 90s, 30m, 2h or 1d")
    value = int(found[1]) * _UNITS[found[2]] if int(found[1]) <= MOST.total_seconds() else MOST * 2
    if not LEAST <= value <= MOST:
        raise ValueError("it is 10s at least and 366d at most")
    return value


def in_words(delta: timedelta) -> str:
    """In its largest unit, rounded down: ``42 minutes``, ``1 hour``."""
    name, unit = next(((name, unit) for name, unit in _WORDS if delta >= unit), _WORDS[-1])
    number = max(delta, timedelta(0)) // unit
    return f"{number} {name}{'' if number == 1 else 's'}"
