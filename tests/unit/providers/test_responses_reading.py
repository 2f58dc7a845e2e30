"""What becomes of the events of the Responses API, sensible and not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.providers.contract import AssistantMessage, Category, ModelReply, ProviderError, Stop, ToolCall, Usage
from bubbles.providers.responses.reading import MAX_ITEMS, ResponsesReading
from bubbles.providers.responses.wire import ResponsesWriter
from bubbles.providers.wire import OUTLINE
from tests.responses_wire import Event, Output, ended
from tests.unit.providers.test_responses_wire import kinds, sent


def read(*events: Any, reading: ResponsesReading | None = None) -> tuple[ModelReply, str]:
    """The reply, and what was shown of it."""
    reading = reading or ResponsesReading("openai_codex")
    shown = "".join([reading.event(json.dumps(event)) for event in events])
    return reading.reply(), shown


def failure(*events: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read(*events)
    return caught.value


def test_a_reply_with_reasoning_remarks_and_calls_is_put_together_and_can_go_back() -> None:
    out = Output()
    events = [
        *({"type": "response.created", "response": {"status": "in_progress"}}, {"type": "response.in_progress"}),
        *out.reasoning("c2VhbGVk", "Hm.", "So."),
        *out.text("I lo", "ok.", phase="commentary"),
        *out.call("c1", "list_dir", '{"path"', ':"a"}'),
        *out.reasoning("bGF0ZXI="),
        *out.call("c2", "list_dir", "{}"),
        ended(),
    ]
    reply, shown = read(*events)
    assert (reply.message.text, shown, reply.stop) == ("I look.", "I look.", Stop.TOOL_CALLS)
    assert reply.message.provider == "openai_codex"
    assert [(call.id, call.arguments) for call in reply.message.tool_calls] == [("c1", '{"path":"a"}'), ("c2", "{}")]
    assert reply.usage == Usage(input_tokens=10, output_tokens=5, cached_tokens=4)
    found = sent(ResponsesWriter("openai_codex"), reply.message)["input"]
    assert kinds(found) == ["c2VhbGVk", "I look.", "c1", "bGF0ZXI=", "c2"]
    assert (found[0]["summary"][1], found[1]["phase"]) == ({"type": "summary_text", "text": "So."}, "commentary")


def test_several_texts_are_kept_apart_for_people_and_for_the_vendor() -> None:
    out = Output()
    events = [*out.text("I look.", phase="commentary"), *out.text(), *out.text("It", " is so.", phase="final_answer")]
    reply, shown = read(*events, ended())
    assert reply.message.text == shown == "I look.\n\nIt is so."
    found = sent(ResponsesWriter("openai_codex"), reply.message)["input"]
    assert [(item["content"][0]["text"], item["phase"]) for item in found] == [
        ("I look.", "commentary"),
        ("It is so.", "final_answer"),
    ]


def test_what_says_no_more_than_the_message_is_not_kept() -> None:
    out = Output()
    reply, _ = read(*out.reasoning(None, "Hm."), *out.text("Yes."), *out.call("c1", "f", "{}"), ended())
    assert dict(reply.message.vendor) == {}


def test_characters_that_are_cut_in_two_are_joined() -> None:
    whole = json.dumps("😀")[1:-1]
    begun = '{"type": "response.output_text.delta", "output_index": 0, "delta": "%s"}'
    for pieces, text in (((whole[:6], whole[6:]), "😀"), ((whole[:6],), "\ufffd"), ((whole[6:],), "\ufffd")):
        reading = ResponsesReading("openai_codex")
        shown = "".join([reading.event(begun % piece) for piece in pieces])
        reply, _ = read(ended(), reading=reading)
        assert reply.message.text == text
        assert text.startswith(shown)


@pytest.mark.parametrize(
    ("events", "text", "calls"),
    [
        pytest.param(Output().text("Yes.")[-1:], "Yes.", [], id="text that comes whole"),
        pytest.param(
            [*Output().text("Ye", "s.")[:2], Output().text("Yes.")[-1]],
            "Yes.",
            [],
            id="text whose end comes with the whole",
        ),
        pytest.param(Output().call("c1", "f", '{"a":', "1}")[-1:], "", ['{"a":1}'], id="a call that comes whole"),
        pytest.param(Output().call("c1", "f", '{"a":', "1}")[:-1], "", ['{"a":1}'], id="a call without its end"),
        pytest.param(
            [
                {"type": "response.output_text.delta", "delta": "Yes."},
                {"type": "response.output_item.done", "item": {**Output().call("c1", "f", "{}")[-1]["item"]}},
                {"type": "response.output_item.done", "item": {**Output().call("c2", "f", "{}")[-1]["item"]}},
            ],
            "Yes.",
            ["{}", "{}"],
            id="no places",
        ),
        pytest.param(
            [{"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."}], "I will not.", [], id="no"
        ),
        pytest.param([{"type": "response.new", "output_index": {}}, *Output().text("Yes.")], "Yes.", [], id="news"),
        pytest.param(Output().item({"type": "web_search_call", "id": "ws_1"}), "", [], id="something else"),
    ],
)
def test_events_in_other_forms_are_understood(events: list[Event], text: str, calls: list[str]) -> None:
    reply, shown = read(*events, ended())
    assert (reply.message.text, shown) == (text, text)
    assert [call.arguments for call in reply.message.tool_calls] == calls


def test_output_that_only_comes_at_the_end_counts_and_is_not_taken_twice() -> None:
    out = Output()
    events = [*out.text("Yes."), *out.call("c1", "f", "{}")]
    output = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    for sent_before in ([], events):
        reply, shown = read(*sent_before, ended(output=output))
        assert (reply.message.text, shown, len(reply.message.tool_calls)) == ("Yes.", "Yes.", 1)


def test_an_answer_that_is_no_stream_is_understood() -> None:
    reading = ResponsesReading("openai_codex")
    output = [event["item"] for event in Output().text("Yes.") if event["type"] == "response.output_item.done"]
    assert reading.whole(json.dumps(ended(output=output)["response"])) == "Yes."
    assert reading.reply().usage.input_tokens == 10


@pytest.mark.parametrize(
    ("event", "stop"),
    [
        (ended(), Stop.TOOL_CALLS),
        (ended("incomplete", incomplete_details={"reason": "max_output_tokens"}), Stop.LENGTH),
        (ended("incomplete", incomplete_details={"reason": "content_filter"}), Stop.CONTENT_FILTER),
        (ended("incomplete", incomplete_details=None), Stop.LENGTH),
        ({"type": "response.done", "response": {"status": "incomplete"}}, Stop.LENGTH),
        ({"type": "response.done", "response": {"status": "completed"}}, Stop.TOOL_CALLS),
    ],
)
def test_why_it_ended(event: Event, stop: Stop) -> None:
    assert read(*Output().call("c1", "f", '{"a'), event)[0].stop is stop


@pytest.mark.parametrize(
    ("error", "category", "retryable"),
    [
        ({"code": "rate_limit_exceeded", "message": "Please try again in 11.054s."}, Category.RATE_LIMIT, True),
        (
            {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."},
            Category.CONTEXT_TOO_LONG,
            False,
        ),
        ({"code": "insufficient_quota", "message": "You exceeded your current quota."}, Category.RATE_LIMIT, False),
        (
            {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_in_seconds": 9_000},
            Category.RATE_LIMIT,
            False,
        ),
        ({"code": "usage_not_included", "message": "Upgrade."}, Category.RATE_LIMIT, False),
        ({"code": "server_is_overloaded", "message": "Later."}, Category.UNAVAILABLE, True),
        ({"code": "cyber_policy", "message": "This request has been flagged."}, Category.REJECTED, False),
        ({"code": "invalid_prompt", "message": "Invalid."}, Category.REJECTED, False),
        (None, Category.UNAVAILABLE, True),
        ("odd", Category.UNAVAILABLE, True),
    ],
    ids=str,
)
def test_failures_within_a_stream_keep_their_meaning(error: Any, category: Category, retryable: bool) -> None:
    for event in (
        ended("failed", error=error),
        {"type": "error", "error": error, "sequence_number": 3},
        {"type": "error", **(error if isinstance(error, dict) else {})},
    ):
        if isinstance(error, dict) and "type" in error and event.get("type") == error["type"]:
            continue
        found = failure(*Output().text("I"), event)
        assert (found.category, found.retryable) == (category, retryable), event


def test_a_wait_within_a_stream_is_understood() -> None:
    error = {"code": "rate_limit_exceeded", "message": "Rate limit reached for m. Please try again in 11.054s. Visit"}
    assert failure(ended("failed", error=error)).retry_after_s == 11.054


@pytest.mark.parametrize(
    "events",
    [
        [],
        Output().text("Half"),
        [{"type": "response.created", "response": {}}],
        [{"type": "response.completed"}],
        [{"type": "response.completed", "response": []}],
        [{"type": "response.cancelled", "response": {"status": "cancelled"}}],
        [{"type": "response.completed", "response": {"status": "completed", "output": 7}}],
        [{"type": "response.output_item.done", "item": "text"}],
        [{"type": "response.output_text.delta", "delta": 7}],
        [{"type": "response.function_call_arguments.delta", "delta": {}}],
        [*Output().call("c1", "", "{}"), ended()],
        [[]],
        [{}],
        [{"choices": []}],
        ["text"],
    ],
    ids=str,
)
def test_what_makes_no_sense_or_is_half_a_reply_is_a_failure_that_passes(events: list[Any]) -> None:
    found = failure(*events)
    assert (found.category, found.retryable) == (Category.UNAVAILABLE, True)


def test_a_stream_that_is_done_without_an_end_is_half_a_reply() -> None:
    reading = ResponsesReading("openai_codex")
    for event in Output().text("Half"):
        reading.event(json.dumps(event))
    reading.event("[DONE]")
    with pytest.raises(ProviderError, match="before the reply did"):
        reading.reply()


def test_a_reply_has_a_limited_number_of_parts() -> None:
    item = {"type": "response.output_item.added", "item": {"type": "reasoning"}}
    reading = ResponsesReading("openai_codex")
    for _ in range(MAX_ITEMS):
        reading.event(json.dumps(item))
    with pytest.raises(ProviderError, match="parts"):
        reading.event(json.dumps(item))
    with pytest.raises(ProviderError, match="parts"):
        ResponsesReading("openai_codex").event(json.dumps(ended(output=[item["item"]] * 2_000)))


def test_ids_that_the_history_has_already_are_replaced() -> None:
    old = AssistantMessage(text="", tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),))
    out = Output()
    events = [*out.call("c1", "f", "{}"), *out.call("c2", "f", "{}"), *out.call("c2", "f", "{}"), *out.call("", "f")]
    reply, _ = read(*events, ended(), reading=ResponsesReading("openai_codex", [old]))
    ids = [call.id for call in reply.message.tool_calls]
    assert len({"c1", *ids}) == 5
    assert "c2" in ids


def test_odd_counts_count_as_none() -> None:
    odd: list[Any] = [None, [], {"input_tokens": -1, "output_tokens": 1.5, "input_tokens_details": [4]}]
    for usage in odd:
        assert read(*Output().text("Yes."), ended(usage=usage))[0].usage == Usage()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "text", "\ud83d", "c1", "reasoning"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner),
    max_leaves=6,
)
FIELDS = ("output_index", "item_id", "delta", "arguments", "item", "response", "error")
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "other"])},
    optional=dict.fromkeys(
        ("content", "summary", "encrypted_content", "call_id", "name", "arguments", "phase", "status"), JSON
    ),
)
KINDS = ("output_item.added", "output_item.done", "output_text.delta", "function_call_arguments.delta", "completed")
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from([f"response.{kind}" for kind in KINDS])},
    optional={name: ITEMS if name in ("item", "response") else JSON for name in FIELDS},
)


@given(st.lists(EVENTS, max_size=8))
def test_whatever_comes_is_a_reply_or_a_failure(events: list[Any]) -> None:
    reading = ResponsesReading("openai_codex")
    try:
        reply, _ = read(*events, ended(), reading=reading)
    except ProviderError:
        return
    json.dumps(dict(reply.message.vendor), ensure_ascii=False, allow_nan=False).encode()
    body = sent(ResponsesWriter("openai_codex"), reply.message)
    assert [item["encrypted_content"] for item in body["input"] if item["type"] == "reasoning"] == [
        entry["encrypted_content"] for entry in reply.message.vendor.get(OUTLINE, ()) if entry["type"] == "reasoning"
    ] or not (reply.message.text or reply.message.tool_calls)
