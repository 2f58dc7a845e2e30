"""What the events of a stream say about its end."""

from __future__ import annotations

import json

import pytest

from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.endings import StreamWitness
from bubbles.providers.registry import Wire
from tests.playback import event, piece, usage
from tests.providers_wire import ANTHROPIC, GEMINI, OPENAI, RESPONSES


def bytes_of(*values: object) -> bytes:
    return b"".join(map(event, values))


@pytest.mark.parametrize(
    ("wire", "values", "over"),
    [
        (Wire.OPENAI, OPENAI, False),
        (Wire.OPENAI, RESPONSES, True),
        (Wire.ANTHROPIC, ANTHROPIC, True),
        (Wire.GEMINI, GEMINI, False),
        (Wire.GEMINI, ({"promptFeedback": {"blockReason": "SAFETY"}},), False),
    ],
)
def test_the_end_is_seen_however_the_bytes_are_cut(wire: Wire, values: tuple[object, ...], over: bool) -> None:
    stream = bytes_of(*values)
    for size in (1, 7, 64, len(stream)):
        witness = StreamWitness(wire)
        for start in range(0, len(stream), size):
            witness.see(stream[start : start + size])
        assert (witness.ended, witness.over) == (True, over)


@pytest.mark.parametrize(
    ("wire", "values"), [(Wire.OPENAI, OPENAI), (Wire.ANTHROPIC, ANTHROPIC), (Wire.GEMINI, GEMINI)]
)
def test_what_only_looks_like_an_end_is_none(wire: Wire, values: tuple[object, ...]) -> None:
    witness = StreamWitness(wire)
    for value in (
        values[0],
        piece('"finish_reason": "stop", data: [DONE]'),
        piece(finish=""),
        usage(1, 1),
        {"type": "ping"},
    ):
        witness.see(event(value))
    witness.finish()
    assert not witness.ended


def test_done_is_the_end_and_nothing_after_it_counts() -> None:
    witness = StreamWitness(Wire.OPENAI)
    witness.see(event(piece("Hi")) + b": a comment\n\ndata: [DONE]\n\ndata: {nonsense\n\n")
    assert (witness.ended, witness.over) == (True, True)


@pytest.mark.parametrize(
    ("value", "category"),
    [
        ({"error": {"message": "Slow down", "code": 429}}, Category.RATE_LIMIT),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Category.UNAVAILABLE),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Oh."}}},
            Category.UNAVAILABLE,
        ),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, Category.CONTEXT_TOO_LONG),
        ({"object": "error", "message": "Oh.", "code": 500}, Category.UNAVAILABLE),
    ],
)
def test_an_error_among_the_events_is_one(value: object, category: Category) -> None:
    with pytest.raises(ProviderError) as caught:
        StreamWitness(Wire.OPENAI).see(event(value))
    assert caught.value.category is category


@pytest.mark.parametrize("data", [b"{nonsense", b"[1]", b"7", b"[" * 100_000, json.dumps("x").encode()])
def test_what_is_no_object_is_a_broken_reply(data: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        StreamWitness(Wire.OPENAI).see(b"data: " + data + b"\n\n")
    assert caught.value.retryable
