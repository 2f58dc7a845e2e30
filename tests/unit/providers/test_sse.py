"""Events out of bytes, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.sse import MAX_EVENT_BYTES, MAX_LINE_BYTES, EventReader


def read(*chunks: bytes) -> list[str]:
    reader = EventReader()
    return [data for chunk in chunks for data in reader.feed(chunk)] + list(reader.finish())


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata:b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b": keep-alive\n\n: again\n\ndata: a\n\n", ["a"]),
        (b"event: message\nid: 7\nretry: 3\ndata: a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a", ["a"]),
        (b"data: a\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data\n\ndatum: x\n\n", []),
        ("data: wörld €\n\n".encode(), ["wörld €"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"", []),
        (b"\xef", []),
        (b"\n\n\r\n", []),
    ],
)
def test_events_are_the_same_whole_or_byte_by_byte(sent: bytes, events: list[str]) -> None:
    assert read(sent) == events
    assert read(*[sent[at : at + 1] for at in range(len(sent))]) == events


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=80) | st.lists(st.sampled_from([b"data: x", b"\n", b"\r", b":", b"\xef\xbb\xbf"])).map(b"".join)
)
def test_any_bytes_give_the_same_events_however_they_are_cut(sent: bytes) -> None:
    whole = read(sent)
    assert read(*[sent[at : at + 1] for at in range(len(sent))]) == whole
    assert read(sent[: len(sent) // 2], b"", sent[len(sent) // 2 :]) == whole


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"data: " + b"x" * 2**20] * (MAX_LINE_BYTES // 2**20 + 1), id="a line without end"),
        pytest.param([b"data: " + b"x" * 2**20 + b"\n"] * (MAX_EVENT_BYTES // 2**20 + 1), id="an event without end"),
        pytest.param([b"data: " + b"x" * MAX_LINE_BYTES + b"\n"], id="a line that comes at once"),
    ],
)
def test_what_has_no_end_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(ProviderError) as caught:
        read(*chunks)
    assert caught.value.category is Category.UNAVAILABLE
