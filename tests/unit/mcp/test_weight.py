"""How much work a message of a server is, weighed before it is read."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bubbles.mcp.client.weight import PER_VALUE, Scale, is_heavy

TEXT = some.text(some.sampled_from('a,[{"\\\n\ré'), max_size=6)
VALUES = some.recursive(
    some.none() | some.integers() | TEXT,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)
MEGABYTES = 12 << 20


def weight(text: bytes, piece: int) -> int:
    scale = Scale()
    return sum(scale.weigh(text[at : at + piece]) for at in range(0, len(text), piece))


def marks(value: Any) -> int:
    """Brackets that open, and commas, but for those in strings."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(0, len(value) - 1) + sum(map(marks, value.values() if isinstance(value, dict) else value))


@given(VALUES, some.integers(1, 9), some.booleans())
def test_values_weigh_and_strings_only_by_their_bytes_wherever_the_text_is_cut(
    value: object, piece: int, plain: bool
) -> None:
    text = json.dumps(value, ensure_ascii=plain).encode()
    assert weight(text, piece) == len(text) + PER_VALUE * marks(value)


def test_a_quote_that_is_left_open_hides_nothing_beyond_its_line() -> None:
    assert weight(b': "\ndata: [1,2,3]\n', 5) > 3 * PER_VALUE


HEAVY = {
    "lists": b"[" + b"[]," * (MEGABYTES // 3),
    "objects": b"[" + b"{}," * (MEGABYTES // 3),
    "numbers": b"[" + b"1," * (MEGABYTES // 2),
    "strings": b"[" + b'"a",' * (MEGABYTES // 4),
}
LIGHT = {
    "a table as text": json.dumps({"text": "1,2,3\n" * (MEGABYTES // 8)}).encode(),
    "JSON as text": json.dumps({"text": json.dumps([{"row": number} for number in range(500_000)])}).encode(),
    "quotes": b'"' * MEGABYTES,
    "escapes": b'"' + b"\\n" * (MEGABYTES // 2),
    "a picture": json.dumps({"data": "A" * MEGABYTES}).encode(),
    "open strings": b'"\n' * (MEGABYTES // 2),
}


@pytest.mark.parametrize(
    ("text", "heavy"),
    [(text, True) for text in HEAVY.values()] + [(text, False) for text in LIGHT.values()],
    ids=[*HEAVY, *LIGHT],
)
def test_what_would_become_a_gigabyte_of_objects_is_told_from_a_long_text_in_no_time(text: bytes, heavy: bool) -> None:
    began = time.perf_counter()
    assert is_heavy(text) is heavy
    assert time.perf_counter() - began < 2  # 0.4 s at most on the machine this was written on
