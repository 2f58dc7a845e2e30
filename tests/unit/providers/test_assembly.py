"""Replies out of pieces, as many servers send them, and as none should."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.providers.assembly import MAX_WRITTEN, Assembly
from bubbles.providers.contract import AssistantMessage, Category, Message, ModelReply, ProviderError, Stop, ToolCall
from bubbles.providers.toolcalls import MAX_CALLS
from tests.playback import piece


def streamed(*chunks: object, done: bool = True, messages: tuple[Message, ...] = ()) -> ModelReply:
    assembly = Assembly("custom", messages)
    shown = [assembly.event(chunk if isinstance(chunk, str) else json.dumps(chunk)) for chunk in chunks]
    if done:
        assembly.event("[DONE]")
    reply = assembly.reply()
    assert "".join(shown) == reply.message.text
    return reply


def whole(message: object, finish: str | None = "stop", **more: object) -> ModelReply:
    assembly = Assembly("custom")
    assembly.whole(json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more}))
    return assembly.reply()


def part(arguments: object = "", name: object = None, **more: object) -> dict[str, Any]:
    """A piece of a call, in a chunk of its own."""
    function = {"arguments": arguments, **({"name": name} if name is not None else {})}
    return piece(tool_calls=[{"function": function, **more}])


def calls(reply: ModelReply) -> list[tuple[str, str]]:
    assert all(call.id for call in reply.message.tool_calls)
    assert len({call.id for call in reply.message.tool_calls}) == len(reply.message.tool_calls)
    return [(call.name, call.arguments) for call in reply.message.tool_calls]


TWO = [("a", '{"x":1}'), ("b", '{"y":2}')]


@pytest.mark.req("PROV-10")
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [
                part(name="a", index=0, id="1"),
                part('{"x"', index=0),
                part(name="b", index=1, id="2"),
                part(":1}", index=0),
                part('{"y":2}', index=1),
            ],
            id="as OpenAI, mixed",
        ),
        pytest.param([part('{"x":1}', "a", index=0, id="1"), part('{"y":2}', "b", index=1, id="2")], id="whole calls"),
        pytest.param(
            [part('{"x":1}', "a", index=0, id="1"), part('{"y":2}', "b", index=0, id="2")], id="all numbered 0"
        ),
        pytest.param([part('{"x":1}', "a", index=0), part('{"y":2}', "b", index=0)], id="all numbered 0, no ids"),
        pytest.param([part('{"x":1}', "a", id="1"), part('{"y":2}', "b", id="2")], id="no numbers"),
        pytest.param([part({"x": 1}, "a"), part({"y": 2}, "b")], id="no numbers, no ids, objects"),
        pytest.param(
            [part('{"x"', "a", id="1"), part(":1}"), part('{"y"', "b", id="2"), part(":2}")], id="no numbers, in pieces"
        ),
        pytest.param(
            [
                part('{"x"', "a", index=0, id="1"),
                part(":1}", "a", index=0, id="1"),
                part('{"y"', "b", index=1, id="2"),
                part(":2}", "b", index=1, id="2"),
            ],
            id="names and ids repeated",
        ),
        pytest.param(
            [
                part('{"x"', "a", index=0),
                part(":1}", "a", index=0),
                part('{"y"', "b", index=1),
                part(":2}", "b", index=1),
            ],
            id="names repeated, no ids",
        ),
        pytest.param(
            [
                part('{"x"', "a", index=0, id="1"),
                part(":1}", index=0, id="other"),
                part('{"y":2}', "b", index=1, id="2"),
                part("", "", index=1, id=""),
            ],
            id="an id of its own for each piece",
        ),
        pytest.param(
            [part('{"x":1}', "a", index=7, id="same"), part('{"y":2}', "b", index=9, id="same")], id="the same id twice"
        ),
        pytest.param(
            [piece(tool_calls=[{"function": {"name": n, "arguments": a}, "index": None, "id": None} for n, a in TWO])],
            id="nothing but names",
        ),
    ],
)
def test_calls_are_put_together_however_a_server_sends_them(chunks: list[object]) -> None:
    for finish in ("tool_calls", "stop", "function_call"):
        reply = streamed(*chunks, piece(finish=finish))
        assert [(name, json.loads(text)) for name, text in calls(reply)] == [("a", {"x": 1}), ("b", {"y": 2})]
        assert reply.stop is Stop.TOOL_CALLS


def test_a_name_may_come_in_pieces_or_grow() -> None:
    assert calls(streamed(part("", "read_", index=0), part("{}", "file", index=0))) == [("read_file", "{}")]
    assert calls(streamed(part("", "read", index=0), part("{}", "read_file", index=0))) == [("read_file", "{}")]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert calls(streamed(part(None, "a", index=0, id="1"))) == [("a", "{}")]


def test_ids_that_the_history_has_already_are_made_anew() -> None:
    before = AssistantMessage(text="", tool_calls=(ToolCall(id="call_0", name="a", arguments="{}"),))
    reply = streamed(part("{}", "a", index=0, id="call_0"), part("{}", "b", index=1, id="call_1"), messages=(before,))
    ids = [call.id for call in reply.message.tool_calls]
    assert ids[0] != "call_0"
    assert ids[1] == "call_1"


@pytest.mark.parametrize("odd", ["a b", "x" * 300, "名", "\x00"])
def test_ids_that_cannot_go_back_are_made_anew(odd: str) -> None:
    [call] = streamed(part("{}", "a", index=0, id=odd)).message.tool_calls
    assert call.id.startswith("call_")


def test_a_reply_that_is_not_streamed_is_understood() -> None:
    tool_calls = [{"id": "1", "type": "function", "function": {"name": n, "arguments": a}} for n, a in TWO]
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}
    reply = whole({"role": "assistant", "content": "Hm.", "tool_calls": tool_calls}, usage=usage)
    assert (reply.message.text, calls(reply), reply.stop) == ("Hm.", TWO, Stop.TOOL_CALLS)
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (5, 2, 3)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", Stop.END),
        ("tool_calls", Stop.END),  # there are none
        ("length", Stop.LENGTH),
        ("max_tokens", Stop.LENGTH),
        ("MAX_TOKENS", Stop.LENGTH),
        ("content_filter", Stop.CONTENT_FILTER),
        ("eos", Stop.END),
    ],
)
def test_reasons_for_the_end(finish: str, stop: Stop) -> None:
    assert streamed("", piece("Hm."), piece(finish=finish)).stop is stop


def test_b062_a_call_cut_by_the_output_limit_is_told_from_a_whole_one() -> None:
    reply = streamed(part('{"path": "a', "a", index=0, id="1"), piece(finish="length"))
    assert (reply.stop, calls(reply)) == (Stop.LENGTH, [("a", '{"path": "a')])


def test_a_server_may_leave_out_the_end_marker_or_the_reason_but_not_both() -> None:
    assert streamed(piece("Hm."), piece(finish="stop"), done=False).message.text == "Hm."
    assert streamed(piece("Hm.")).message.text == "Hm."
    with pytest.raises(ProviderError) as caught:
        streamed(piece("Hm."), done=False)
    assert caught.value.category is Category.UNAVAILABLE


def test_nothing_at_all_is_no_reply() -> None:
    with pytest.raises(ProviderError):
        streamed()


def test_what_a_vendor_wants_back_is_kept() -> None:
    reply = streamed(
        piece(reasoning_content="I "),
        piece(reasoning_content="think."),
        piece(reasoning_details=[{"type": "reasoning.text", "text": "I ", "index": 0}]),
        piece(reasoning_details=[{"type": "reasoning.text", "text": "think.", "index": 0, "signature": "s"}]),
        piece(reasoning_details=[{"type": "reasoning.encrypted", "data": "x", "index": 1}]),
        part("{}", "a", index=0, id="1", extra_content={"google": {"thought_signature": "sig"}}),
        piece(annotations=[1], finish="tool_calls"),
    )
    assert reply.message.provider == "custom"
    assert reply.message.vendor == {
        "reasoning_content": "I think.",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "I think.", "index": 0, "signature": "s"},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
        ],
    }
    assert reply.message.tool_calls[0].vendor == {"extra_content": {"google": {"thought_signature": "sig"}}}


def test_thoughts_inside_the_text_stay_where_they_are() -> None:
    assert streamed(piece("<think>Hm.</think>Yes.")).message.text == "<think>Hm.</think>Yes."


def test_a_character_cut_in_half_is_joined_and_half_a_one_replaced() -> None:
    reply = streamed('{"choices":[{"delta":{"content":"a\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00b"}}]}')
    assert reply.message.text == "a😀b"
    lone = Assembly("custom")
    assert lone.event('{"choices":[{"delta":{"content":"\\ude00a\\ud83d"}}]}') == "\ufffda"
    lone.done = True
    assert lone.reply().message.text == "\ufffda\ufffd"


def test_events_without_blank_lines_between_them_are_understood() -> None:
    assert streamed(json.dumps(piece("a")) + "\n" + json.dumps(piece("b")) + "\n[DONE]").message.text == "ab"


def test_text_may_come_as_parts_and_other_choices_are_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert streamed(piece(content=parts), other).message.text == "ab"


@pytest.mark.parametrize(
    "usage", [None, [], "x", {"prompt_tokens": "7"}, {"prompt_tokens": -1, "completion_tokens": 10**30}]
)
def test_odd_token_counts_do_no_harm(usage: object) -> None:
    reply = streamed(piece("a"), {"choices": [], "usage": usage})
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (0, 0)


def test_empty_token_counts_take_nothing_back() -> None:
    counted = {"choices": [], "usage": {"prompt_tokens": 7}}
    assert streamed(piece("a"), counted, {"choices": [], "usage": {}}).usage.input_tokens == 7


@pytest.mark.parametrize(
    "chunk",
    [
        "{",
        "nonsense",
        "[" * 100_000,
        "9" * 5_000,
        "[]",
        "7",
        '{"choices": 7}',
        '{"choices": [7]}',
        '{"choices": [{"delta": 7}]}',
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": [{"delta": {"content": {}}}]}',
        '{"choices": [{"finish_reason": 7}]}',
        '{"choices": [{"finish_reason": "error"}]}',
        '{"choices": [{"delta": {"tool_calls": {"a": 1}}}]}',
        '{"choices": [{"delta": {"tool_calls": [7]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"id": 7}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": 7}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"name": 7}}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"name": "a", "arguments": [7]}}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}',
        json.dumps(part("{}", "n" * 300)),
        json.dumps({"choices": [{"delta": {"extra_content": json.loads("[" * 50 + "]" * 50)}}]}),
        json.dumps(piece(reasoning_details=[0] * 30_000)),
        json.dumps(piece(tool_calls=[{"index": i, "function": {"name": "a"}} for i in range(MAX_CALLS + 1)])),
    ],
    ids=lambda chunk: chunk[:60],
)
def test_what_makes_no_sense_is_a_failure_that_passes(chunk: str) -> None:
    with pytest.raises(ProviderError) as caught:
        streamed(chunk)
    assert caught.value.category is Category.UNAVAILABLE
    assert caught.value.retryable


def test_pieces_that_pose_as_whole_calls_are_not_read_again_and_again() -> None:
    pieces = [{"index": 0, "function": {"name": "a", "arguments": "[}"}}]
    pieces += [{"index": 0, "function": {"name": "a", "arguments": "{}"}}] * 200_000
    began = time.process_time()
    (call,) = streamed(piece(tool_calls=pieces)).message.tool_calls
    assert len(call.arguments) == 400_002
    assert time.process_time() - began < 30  # it was minutes


@pytest.mark.req("CTX-04", "PROV-06")
@pytest.mark.parametrize("where", ["content", "reasoning_content", "arguments"])
def test_a_reply_that_no_line_of_a_history_can_hold_is_a_broken_one(where: str) -> None:
    """A control character is one byte from a careless server, and six in JSON."""
    grows = "\x01" * (MAX_WRITTEN // 6)
    assembly = Assembly("custom")
    assembly.piece(part(grows, "exec", index=0) if where == "arguments" else piece(finish="stop", **{where: grows}))
    assembly.event("[DONE]")
    with pytest.raises(ProviderError, match="longer than") as failed:
        assembly.reply()
    assert failed.value.category is Category.UNAVAILABLE


NAMES = """
choices delta message content tool_calls function name arguments index id finish_reason usage error reasoning_details
extra_content text type code prompt_tokens
""".split()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["{", "}", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
DELTA = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, JSON))
CHUNK = JSON | st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": DELTA}, optional={"finish_reason": JSON}), max_size=2)},
    optional={"usage": JSON, "error": JSON},
)


@settings(max_examples=50, deadline=None)
@given(st.lists(CHUNK, max_size=4), st.booleans())
def test_no_reply_makes_anything_but_a_reply_or_a_provider_error(chunks: list[Any], is_whole: bool) -> None:
    assembly = Assembly("custom")
    try:
        for chunk in chunks:
            (assembly.whole if is_whole else assembly.event)(json.dumps(chunk))
        reply = assembly.reply()
    except ProviderError:
        return
    json.dumps([dict(reply.message.vendor), *[dict(call.vendor) for call in reply.message.tool_calls]], allow_nan=False)
    reply.message.text.encode()
    assert all(call.id and call.name and call.arguments for call in reply.message.tool_calls)
