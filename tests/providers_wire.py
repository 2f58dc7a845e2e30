"""One reply with text and a tool call, as each family of APIs streams it."""

from __future__ import annotations

from bubbles.providers.registry import Wire
from tests.playback import Answer, piece, stream, usage


def _call(arguments: str, **more: object) -> dict[str, object]:
    name = {"name": more.pop("name")} if "name" in more else {}
    return piece(tool_calls=[{"index": 0, "function": {"arguments": arguments, **name}, **more}])


OPENAI: tuple[object, ...] = tuple(
    {"id": "chatcmpl-1", "created": 1, "model": "some-model", **chunk}
    for chunk in (
        piece("Hello"),
        _call("", id="call_1", type="function", name="f"),
        _call('{"a":'),
        _call("1}"),
        piece(finish="tool_calls"),
        usage(10, 5, 4),
    )
)


def _delta(index: int, kind: str, **fields: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def _block(index: int, **block: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": index, "content_block": block}


ANTHROPIC: tuple[object, ...] = (
    {
        "type": "message_start",
        "message": {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "some-model",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 1},
        },
    },
    _block(0, type="thinking", thinking="", signature=""),
    _delta(0, "thinking_delta", thinking="Hm"),
    _delta(0, "thinking_delta", thinking="."),
    _delta(0, "signature_delta", signature="c2ln"),
    {"type": "content_block_stop", "index": 0},
    _block(1, type="text", text=""),
    {"type": "ping"},
    _delta(1, "text_delta", text="Hello"),
    {"type": "content_block_stop", "index": 1},
    _block(2, type="tool_use", id="toolu_1", name="f", input={}),
    _delta(2, "input_json_delta", partial_json='{"a":'),
    _delta(2, "input_json_delta", partial_json="1}"),
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)


def _candidate(*parts: object, **more: object) -> dict[str, object]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}]}


GEMINI: tuple[object, ...] = (
    _candidate({"text": "Hm.", "thought": True}),
    _candidate({"text": "Hello"}),
    {
        **_candidate(
            {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "U0lH"}, finishReason="STOP"
        ),
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "totalTokenCount": 15,
            "cachedContentTokenCount": 4,
        },
    },
)

_RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "error": None}
_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
_FUNCTION = {"id": "fc_1", "type": "function_call", "arguments": "", "call_id": "call_9", "name": "f"}
RESPONSES: tuple[object, ...] = (
    {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"id": "rs_1", "type": "reasoning", "summary": []},
    },
    {"type": "response.output_item.added", "output_index": 1, "item": _MESSAGE},
    {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 1,
        "content_index": 0,
        "delta": "Hello",
    },
    {"type": "response.output_item.added", "output_index": 2, "item": _FUNCTION},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 2, "delta": '{"a":1}'},
    {"type": "response.output_item.done", "output_index": 2, "item": {**_FUNCTION, "arguments": '{"a":1}'}},
    {
        "type": "response.completed",
        "response": {
            **_RESPONSE,
            "status": "completed",
            "output": [{**_FUNCTION, "arguments": '{"a":1}'}],
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        },
    },
)
"""OpenAI's newer API."""


def replies(wire: Wire) -> Answer:
    """The answer "Hello" and a call of ``f`` with ``{"a": 1}``: 10 tokens in, 4 of them cached, 5 out."""
    if wire is Wire.OPENAI:
        return stream(*OPENAI)
    return stream(*{Wire.ANTHROPIC: ANTHROPIC, Wire.GEMINI: GEMINI, Wire.RESPONSES: RESPONSES}[wire], done=False)
