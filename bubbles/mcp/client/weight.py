"""How much work a JSON text is to be read: its bytes, and the values in it, each of which becomes an object.

Sixteen megabytes of empty lists are a gigabyte of objects, and seconds in which nothing else goes on.
"""

from __future__ import annotations

import re

MAX_WEIGHT = 64 << 20
"""Of one message."""
PER_VALUE = 100
LIGHT = 64 << 10
"""Bytes that are never too heavy."""

_STRING = re.compile(rb'"[^"\n\r]*["\n\r]')
_ESCAPE = re.compile(rb"\\.", re.DOTALL)


class Scale:
    """Weighs a text that comes piece by piece. A string of JSON does not go over the end of a line."""

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of what the next piece goes on with: a string, an escape."""

    def weigh(self, piece: bytes) -> int:
        text = self._rest + piece
        escape = b"\\" if (len(text) - len(text.rstrip(b"\\"))) % 2 else b""
        outside, string, _ = _STRING.sub(b"", _ESCAPE.sub(b"", text)).partition(b'"')
        self._rest = string + escape
        return len(piece) + PER_VALUE * sum(map(outside.count, (b",", b"[", b"{")))


def is_heavy(line: bytes) -> bool:
    """Whether a whole message is more than is read."""
    if len(line) <= LIGHT:
        return False
    scale = Scale()
    return sum(scale.weigh(line[at : at + LIGHT]) for at in range(0, len(line), LIGHT)) > MAX_WEIGHT
