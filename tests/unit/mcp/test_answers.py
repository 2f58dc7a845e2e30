"""What a tool's result becomes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bubbles.mcp.client.answers import MAX_IMAGE_BYTES, MAX_IMAGES, MAX_TEXT, answer_of

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PART = some.fixed_dictionaries(
    {"type": some.sampled_from(["text", "image", "audio", "resource", "resource_link", "x"])},
    optional=dict.fromkeys(("text", "data", "mimeType", "resource", "uri", "name"), JSON),
)
PNG = b"\x89PNG\r\n\x1a\n"


def image(data: bytes, kind: str = "image/png") -> dict[str, str]:
    return {"type": "image", "mimeType": kind, "data": base64.b64encode(data).decode()}


@given(
    some.fixed_dictionaries(
        {}, optional={"content": JSON | some.lists(PART), "structuredContent": JSON, "isError": JSON}
    )
)
def test_whatever_it_is_there_is_an_answer(result: dict[str, object]) -> None:
    answer = answer_of(result)
    answer.text.encode()
    assert answer.text or answer.images


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
    ],
)
def test_a_picture_is_what_its_bytes_say(data: bytes, kind: str) -> None:
    (found,) = answer_of({"content": [image(data, "image/tiff")]}).images
    assert (found.media_type, found.data) == (kind, data)


def test_pictures_are_bounded_in_size_and_number() -> None:
    answer = answer_of({"content": [image(PNG)] * (MAX_IMAGES + 2)})
    assert len(answer.images) == MAX_IMAGES
    assert answer.text.count("one of too many") == 2
    assert "too large" in answer_of({"content": [image(PNG + bytes(MAX_IMAGE_BYTES))]}).text


def test_text_is_bounded_and_says_so() -> None:
    answer = answer_of({"content": [{"type": "text", "text": "t" * MAX_TEXT}, {"type": "text", "text": "more"}]})
    assert len(answer.text) < MAX_TEXT + 200
    assert answer.text.endswith("the rest is lost.]")


def test_a_structure_is_shown_where_there_is_no_text() -> None:
    assert answer_of({"content": [], "structuredContent": {"n": "ü"}}).text == '{"n": "ü"}'
    shown = answer_of({"content": [{"type": "text", "text": "seven"}], "structuredContent": {"n": 7}})
    assert shown.text == "seven"


def test_only_true_is_an_error() -> None:
    assert answer_of({"isError": True}).is_error
    assert not answer_of({"isError": "yes"}).is_error
