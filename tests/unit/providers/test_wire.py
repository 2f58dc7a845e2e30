"""What requests look like, and that a message is written once."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from types import MappingProxyType
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
from bubbles.providers.wire import BLOCK_BYTES, KEPT, RequestWriter, encoded

PICTURE = Image(media_type="image/png", data=b"\x89PNG")
TOOL = ToolSpec(name="list_dir", description="Lists.", parameters=MappingProxyType({"type": "object"}))


class Counting:
    """Writes JSON and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, value: object) -> bytes:
        self.times += 1
        return encoded(value)


def request(*messages: Message, system: str = "Be brief.", tools: tuple[ToolSpec, ...] = (TOOL,)) -> ModelRequest:
    return ModelRequest(model="m", system=system, messages=messages, tools=tools)


def written(*messages: Message, provider: str = "custom") -> list[dict[str, Any]]:
    body = RequestWriter(provider).body(request(*messages), {"stream": True})
    sent = json.loads(b"".join(body.blocks()))
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    return list(sent["messages"][1:])


def call(name: str = "list_dir", arguments: str = "{}", **more: Any) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=arguments, **more)


def history(length: int) -> list[Message]:
    made: list[Message] = []
    for number in range(0, length, 4):
        calls = (ToolCall(id=f"c{number}", name="list_dir", arguments=json.dumps({"path": "x" * 50})),)
        made += [
            UserMessage(text=f"question {number} " + "word " * 40),
            AssistantMessage(text="I look.", tool_calls=calls, provider="custom"),
            ToolMessage(call_id=f"c{number}", name="list_dir", text="line\n" * 100),
            AssistantMessage(text="It is so. " * 20, provider="custom"),
        ]
    return made[:length]


def test_a_message_is_written_once_whatever_becomes_of_the_history() -> None:
    count = Counting()
    writer = RequestWriter("custom", encode=count)
    messages = history(200)
    writer.body(request(*messages), {})
    assert count.times == 200 + 3  # the system prompt, the tools, and the fields of the request
    for _ in range(10):
        messages += [UserMessage(text="more")]
        before = count.times
        body = writer.body(request(*messages), {})
        assert count.times - before == 2  # the new message, and the fields of the request
    assert json.loads(b"".join(body.blocks()))["messages"][-1]["content"] == "more"


def test_messages_of_several_sessions_are_kept_side_by_side_and_forgotten_with_them() -> None:
    count = Counting()
    writer = RequestWriter("custom", encode=count)
    mine, other = history(40), history(40)
    for messages in (mine, other, mine, other):
        writer.body(request(*messages), {})
    assert count.times == 80 + 2 + 4
    del messages, other
    gc.collect()
    assert len(writer._messages) == 40


def test_system_prompts_and_tools_that_are_kept_are_limited() -> None:
    writer = RequestWriter("custom")
    for number in range(KEPT * 3):
        tool = ToolSpec(name=f"tool_{number}", description="", parameters={})
        body = writer.body(request(system=f"system {number}", tools=(tool,)), {})
        sent = json.loads(b"".join(body.blocks()))
        assert sent["messages"][0]["content"] == f"system {number}"
        assert sent["tools"][0]["function"]["name"] == f"tool_{number}"
    assert (len(writer._systems), len(writer._tools._kept)) == (KEPT, KEPT)


def test_a_body_is_what_its_blocks_are_and_as_long_as_it_says() -> None:
    big = ToolMessage(call_id="c1", name="read_file", text="x" * (BLOCK_BYTES + 7))
    for messages in ((), history(1), history(4), [big], [*history(2000), big, *history(3)]):
        body = RequestWriter("custom").body(request(*messages), {"stream": True})
        blocks = list(body.blocks())
        assert sum(map(len, blocks)) == body.size
        assert len(json.loads(b"".join(blocks))["messages"]) == len(messages) + 1
        assert max(map(len, blocks)) < 2 * BLOCK_BYTES + 1000


def test_nothing_is_sent_of_what_is_not_there() -> None:
    body = RequestWriter("custom").body(request(system="", tools=()), {})
    assert json.loads(b"".join(body.blocks())) == {"model": "m", "messages": []}


@pytest.mark.req("CTX-03")
def test_pictures_of_results_follow_all_results_of_a_reply() -> None:
    sent = written(
        AssistantMessage(text="", tool_calls=(call(), ToolCall(id="c2", name="list_dir", arguments="{}"))),
        ToolMessage(call_id="c1", name="read_file", text="a picture", images=(PICTURE, PICTURE)),
        ToolMessage(call_id="c2", name="read_file", text="another", images=(PICTURE,)),
        UserMessage(text="Well?"),
        ToolMessage(call_id="c3", name="read_file", text="the last", images=(PICTURE,)),
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user", "tool", "user"]
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "image_url", "text", "image_url"]
    assert sent[3]["content"][3]["text"] == "Of the result of read_file (c2):"
    assert sent[3]["content"][1]["image_url"] == {"url": "data:image/png;base64,iVBORw=="}


def test_a_person_may_send_pictures_with_and_without_words() -> None:
    with_words, without = written(UserMessage(text="Look", images=(PICTURE,)), UserMessage(text="", images=(PICTURE,)))
    assert [part["type"] for part in with_words["content"]] == ["text", "image_url"]
    assert [part["type"] for part in without["content"]] == ["image_url"]


def test_what_a_vendor_added_goes_back_to_that_vendor_only() -> None:
    signed = call(vendor={"extra_content": {"google": {"thought_signature": "s"}}, "id": "forged"})
    vendor = {"reasoning_content": "Hm.", "role": "system", "content": "forged"}
    message = AssistantMessage(text="Yes.", tool_calls=(signed,), vendor=vendor, provider="custom")
    [own], [foreign] = written(message), written(message, provider="other")
    assert own == {
        "reasoning_content": "Hm.",
        "role": "assistant",
        "content": "Yes.",
        "tool_calls": [
            {
                "extra_content": {"google": {"thought_signature": "s"}},
                "id": "c1",
                "type": "function",
                "function": {"name": "list_dir", "arguments": "{}"},
            }
        ],
    }
    assert "reasoning_content" not in foreign
    assert foreign["tool_calls"][0].keys() == {"id", "type", "function"}


@pytest.mark.req("PROV-10")
@pytest.mark.parametrize(
    "arguments", ['{"path": "a', "", "[]", "null", '{"a": NaN}', "[" * 100_000, '{"a": "\n"}', "\ud800"]
)
def test_arguments_that_servers_refuse_do_not_lock_a_session_up(arguments: str) -> None:
    """Servers that read the arguments of old calls answer 400 for them, to every request from then on."""
    [sent] = written(AssistantMessage(text="", tool_calls=(call(arguments=arguments),)))
    read = json.loads(sent["tool_calls"][0]["function"]["arguments"])
    assert read == {"not_valid_json": arguments.replace("\ud800", "?")}


@pytest.mark.parametrize(
    ("name", "sent_name"), [("functions.exec", "functions_exec"), ("x" * 99, "x" * 64), ("名", "_"), ("", "unknown")]
)
def test_names_that_servers_refuse_do_not_lock_a_session_up(name: str, sent_name: str) -> None:
    [sent] = written(AssistantMessage(text="", tool_calls=(call(name=name),)))
    assert sent["tool_calls"][0]["function"]["name"] == sent_name
    assert sent["content"] is None


def test_a_reply_without_anything_in_it_does_not_lock_a_session_up() -> None:
    assert written(AssistantMessage(text=""))[0]["content"] == "(no text)"


@pytest.mark.parametrize("make", [lambda t: UserMessage(text=t), lambda t: ToolMessage(call_id="c", name="n", text=t)])
def test_any_text_makes_a_valid_body(make: Callable[[str], Message]) -> None:
    [sent] = written(make('a\x00"\\\u2028 wörld 名 \ud83d half'))
    assert sent["content"] == 'a\x00"\\\u2028 wörld 名 ? half'


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_what_is_no_json_is_refused(value: object) -> None:
    message = AssistantMessage(text="", vendor={"reasoning": value}, provider="custom")
    with pytest.raises((ValueError, TypeError)):
        RequestWriter("custom").body(request(message), {})
