"""Estimates of tokens: near enough, cheap, never nothing for something."""

from __future__ import annotations

import pytest

from bubbles.providers.contract import AssistantMessage, Image, Message, ToolCall, ToolMessage, UserMessage
from bubbles.sessions.tokens import IMAGE, MESSAGE, estimate, of_message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 1),
        ("abcd" * 10, 10),
        ("日本語", 3),
        ("Привет", 4),
        ("ab日", 2),
        ("\N{GRINNING FACE}", 2),
        ("\ud800", 1),
    ],
)
def test_text_is_counted_by_its_bytes(text: str, expected: int) -> None:
    assert estimate(text) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (UserMessage(text="abcd"), MESSAGE + 1),
        (UserMessage(text="", images=(Image(media_type="image/png", data=b"x" * 10_000),)), MESSAGE + IMAGE),
        (ToolMessage(call_id="abcd", name="x", text="abcd"), MESSAGE + 2),
        (
            AssistantMessage(text="abcd", tool_calls=(ToolCall(id="abcd", name="abcd", arguments="abcd"),)),
            2 * MESSAGE + 4,
        ),
        (AssistantMessage(text="", vendor={"a": "b"}), MESSAGE + 3),
    ],
)
def test_message_is_counted_with_all_that_is_sent_of_it(message: Message, expected: int) -> None:
    assert of_message(message) == expected
