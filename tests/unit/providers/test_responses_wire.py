"""What requests of the Responses API look like, and that reasoning goes back where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bubbles.providers.contract import (
    AssistantMessage,
    Image,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from bubbles.providers.responses.wire import INSTRUCTIONS, MAX_ID_CHARS, ResponsesWriter
from bubbles.providers.wire import OUTLINE, RequestWriter, encoded
from tests.responses_wire import faults_of

PICTURE = Image(media_type="image/png", data=b"\x89PNG")
TOOL = ToolSpec(name="list_dir", description="Lists.", parameters={"type": "object"})
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "c2VhbGVk"}
LATER = {**THOUGHT, "encrypted_content": "bGF0ZXI="}


def request(*messages: Message, system: str = "Be brief.", tools: tuple[ToolSpec, ...] = (TOOL,)) -> ModelRequest:
    return ModelRequest(model="m", system=system, messages=messages, tools=tools)


def sent(writer: ResponsesWriter, *messages: Message, **more: Any) -> dict[str, Any]:
    body = writer.body(request(*messages, **more), {})
    blocks = b"".join(body.blocks())
    assert len(blocks) == body.size
    parsed: dict[str, Any] = json.loads(blocks)
    return parsed


def items(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    return list(sent(ResponsesWriter("openai_codex", **more), *messages)["input"])


def thinking(*outline: Any, text: str = "", calls: int = 0, provider: str = "openai_codex") -> AssistantMessage:
    made = tuple(ToolCall(id=f"c{number}", name="list_dir", arguments="{}") for number in range(calls))
    return AssistantMessage(text=text, tool_calls=made, vendor={OUTLINE: list(outline)}, provider=provider)


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [item.get("encrypted_content") or item.get("call_id") or item["content"][0]["text"] for item in found]


def test_a_request_is_what_the_vendor_takes() -> None:
    results = [ToolMessage(call_id=f"c{number}", name="list_dir", text="") for number in range(2)]
    body = sent(ResponsesWriter("openai_codex"), UserMessage(text="Hello"), thinking(calls=2), *results)
    assert faults_of(body) == []
    assert (body["model"], body["instructions"], body["tool_choice"]) == ("m", "Be brief.", "auto")
    assert body["tools"] == [
        {
            "type": "function",
            "strict": False,
            "name": "list_dir",
            "description": "Lists.",
            "parameters": {"type": "object"},
        }
    ]
    plain = sent(ResponsesWriter("openai_codex"), UserMessage(text="Hello"), system="", tools=())
    assert faults_of(plain) == []
    assert plain["instructions"] == INSTRUCTIONS
    assert not plain.keys() & {"tools", "tool_choice", "parallel_tool_calls"}


def test_the_test_server_refuses_what_the_vendor_does() -> None:
    body = sent(ResponsesWriter("openai_codex"), UserMessage(text="Hello"))
    result = {"type": "function_call_output", "call_id": "c", "output": ""}
    for wrong, said in (
        ({"temperature": 1.0}, "Unsupported parameter"),
        ({"max_output_tokens": 9}, "Unsupported parameter"),
        ({"store": True}, "Store must be"),
        ({"stream": False}, "Stream must be"),
        ({"instructions": ""}, "Instructions are required"),
        ({"include": []}, "reasoning is not asked for"),
        ({"input": [{"type": "message", "role": "system", "content": [{"type": "input_text"}]}]}, "system messages"),
        ({"input": [result]}, "No tool call found"),
        ({"input": [THOUGHT | {"id": "rs_1"}]}, "not persisted"),
    ):
        assert [fault for fault in faults_of(body | wrong) if said in fault], wrong


def test_a_message_is_written_once_whatever_becomes_of_the_history() -> None:
    times = 0

    def counting(value: object) -> bytes:
        nonlocal times
        times += 1
        return encoded(value)

    writer = ResponsesWriter("openai_codex", encode=counting)
    messages: list[Message] = []
    for number in range(1_250):
        call = ToolCall(id=f"c{number}", name="list_dir", arguments="{}")
        outline: list[Any] = [THOUGHT, {"type": "function_call"}]
        messages += [
            UserMessage(text=f"question {number}"),
            AssistantMessage(text="", tool_calls=(call,), vendor={OUTLINE: outline}, provider="openai_codex"),
            ToolMessage(call_id=f"c{number}", name="list_dir", text="line\n" * 20),
            AssistantMessage(text="It is so.", provider="openai_codex"),
        ]
    assert faults_of(sent(writer, *messages)) == []
    for _ in range(3):
        messages.append(UserMessage(text="more"))
        before = times
        body = writer.body(request(*messages), {})
        assert times - before == 2  # the new message, and the fields of the request
    assert json.loads(b"".join(body.blocks()))["input"][-1]["content"] == [{"type": "input_text", "text": "more"}]


def test_reasoning_text_and_calls_go_back_in_the_order_in_which_they_came() -> None:
    call = {"type": "function_call"}
    remark, answer = {"type": "message", "chars": 4, "phase": "commentary"}, {"type": "message", "chars": 3}
    reply = thinking(THOUGHT, remark, call, LATER, call, answer, text="Hmm.\n\nYes", calls=2)
    found = items(reply)
    assert kinds(found) == ["c2VhbGVk", "Hmm.", "c0", "bGF0ZXI=", "c1", "Yes"]
    assert found[0] == THOUGHT
    assert [item.get("phase") for item in found] == [None, "commentary", None, None, None, None]


def test_a_reply_of_a_history_read_again_goes_back_the_same() -> None:
    reply = thinking(THOUGHT, {"type": "message", "chars": 3, "phase": "final_answer"}, text="Yes")
    again = replace(reply, vendor=json.loads(json.dumps(reply.vendor)))
    assert items(again) == items(reply)


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "Shorter."},
        {"text": ""},
        {"tool_calls": ()},
        {"tool_calls": (ToolCall(id="c0", name="f", arguments=""),) * 2},
    ],
    ids=str,
)
def test_a_reply_that_was_changed_since_keeps_its_reasoning_before_the_rest(changed: dict[str, Any]) -> None:
    call, text = {"type": "function_call"}, {"type": "message", "chars": 9}
    reply = replace(thinking(text, THOUGHT, call, text="Good day.", calls=1), **changed)
    found = [item.get("encrypted_content") or item.get("call_id") or "text" for item in items(reply)]
    assert found == ["c2VhbGVk", *(["text"] if reply.text else []), *(["c0"] * len(reply.tool_calls))]


@pytest.mark.parametrize(
    "outline",
    [
        "nonsense",
        [None, 7, {}, {"type": "message"}, {"type": "reasoning"}],
        [{"type": "message", "chars": -1}, {"type": "message", "chars": 4}],
        [{"type": "message", "chars": True}, {"type": "reasoning", "encrypted_content": 7}],
        [{"type": "message", "chars": 10**9}],
        {"type": "message", "chars": 3},
    ],
    ids=str,
)
def test_an_outline_that_makes_no_sense_is_passed_over(outline: Any) -> None:
    reply = AssistantMessage(text="Yes", vendor={OUTLINE: outline}, provider="openai_codex")
    assert kinds(items(reply)) == ["Yes"]


def test_reasoning_alone_is_no_reply() -> None:
    assert kinds(items(thinking(THOUGHT))) == ["(no text)"]


def test_reasoning_goes_to_no_other_provider_and_to_no_other_wire() -> None:
    text = {"type": "message", "chars": 3, "phase": "final_answer"}
    reply = thinking(THOUGHT, text, text="Yes", provider="github_copilot")
    [item] = items(reply)
    assert item == {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}
    body = RequestWriter("github_copilot").body(request(reply), {})
    assert json.loads(b"".join(body.blocks()))["messages"][1] == {"role": "assistant", "content": "Yes"}


def test_reasoning_that_was_refused_is_left_out_from_then_on() -> None:
    writer = ResponsesWriter("openai_codex")
    old = thinking(THOUGHT, {"type": "message", "chars": 3}, text="Yes")
    assert len(sent(writer, old)["input"]) == 2
    assert writer.forget_reasoning([UserMessage(text="?"), old])
    assert not writer.forget_reasoning([old])
    new = thinking(LATER, {"type": "message", "chars": 2}, text="No")
    assert kinds(sent(writer, old, new)["input"]) == ["Yes", "bGF0ZXI=", "No"]
    assert not writer.forget_reasoning([thinking(THOUGHT, provider="github_copilot"), UserMessage(text="?")])


def test_ids_of_other_vendors_are_cut_to_what_is_taken_the_same_for_call_and_result() -> None:
    for length in (MAX_ID_CHARS, MAX_ID_CHARS + 1, 256):
        long = "x" * length
        reply = AssistantMessage(text="", tool_calls=(ToolCall(id=long, name="no such!", arguments="{"),))
        found = items(reply, ToolMessage(call_id=long, name="no such!", text="No."))
        assert found[0]["call_id"] == found[1]["call_id"]
        assert (found[0]["call_id"] == long) == (length <= MAX_ID_CHARS)
        assert (found[0]["name"], json.loads(found[0]["arguments"])) == ("no_such_", {"not_valid_json": "{"})


def test_pictures_are_in_the_message_or_the_result_that_has_them() -> None:
    shown = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw=="}
    reply = thinking(calls=1)
    result = ToolMessage(call_id="c0", name="list_dir", text="a cat", images=(PICTURE,))
    mine = UserMessage(text="", images=(PICTURE,))
    _, given, asked = items(reply, result, mine)
    assert given["output"] == [{"type": "input_text", "text": "a cat"}, shown]
    assert asked["content"] == [shown]


def test_where_results_hold_no_pictures_they_follow_the_results() -> None:
    reply = thinking(calls=2)
    results = [
        ToolMessage(call_id="c0", name="list_dir", text="a cat", images=(PICTURE,)),
        ToolMessage(call_id="c1", name="list_dir", text="nothing"),
    ]
    for more in ((), (UserMessage(text="And?"),)):
        found = items(reply, *results, *more, pictures_in_results=False)
        assert [item["type"] for item in found[:4]] == ["function_call"] * 2 + ["function_call_output"] * 2
        assert [item["output"] for item in found[2:4]] == ["a cat", "nothing"]
        assert [part["type"] for part in found[4]["content"]] == ["input_text", "input_image"]
        assert "c0" in found[4]["content"][0]["text"]
        assert len(found) == 5 + len(more)


def test_half_a_character_does_not_stop_a_request() -> None:
    [item] = items(UserMessage(text="\ud800"))
    assert item["content"][0]["text"] == "?"
