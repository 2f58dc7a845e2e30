"""OpenAI's Responses API as the Codex backend speaks it: what it sends, and what it refuses.

Refusals are those that others have met: fields it does not know, ``store``, no instructions, the role ``system``,
results without calls, and ids of what it has not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.playback import Answer, event

Event = Mapping[str, Any]
CODEX_FIELDS = frozenset(
    {
        *("model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "store"),
        *("stream", "include", "prompt_cache_key", "text", "service_tier"),
    }
)
COPILOT_FIELDS = CODEX_FIELDS | {"temperature", "max_output_tokens"}
SEALED = "reasoning.encrypted_content"
MESSAGE_PARTS = {"user": {"input_text", "input_image"}, "developer": {"input_text"}, "assistant": {"output_text"}}


def faults_of(body: Mapping[str, Any], fields: frozenset[str] = CODEX_FIELDS) -> list[str]:
    """What the vendor would refuse of a request."""
    found = [f"Unsupported parameter: {name}" for name in body if name not in fields]
    if body.get("store") is not False:
        found.append("Store must be set to false")
    if body.get("stream") is not True:
        found.append("Stream must be set to true")
    if SEALED not in body.get("include", ()):
        found.append("reasoning is not asked for, and lost")
    if not isinstance(body.get("instructions"), str) or not body["instructions"]:
        found.append("Instructions are required")
    if not isinstance(body.get("input"), list) or not body["input"]:
        return [*found, "Input must be a list"]
    found += [f"Invalid tool: {tool}" for tool in body.get("tools", ()) if not _is_tool(tool)]
    found += [fault for number, item in enumerate(body["input"]) for fault in _of_item(f"input[{number}]", item)]
    return found + list(_of_calls(body["input"]))


def _is_tool(tool: Mapping[str, Any]) -> bool:
    return (tool.get("type"), tool.get("strict"), "function" in tool) == ("function", False, False)


def _of_item(where: str, item: Mapping[str, Any]) -> Iterator[str]:
    if "id" in item or "status" in item:
        yield f"{where}: Items are not persisted when `store` is set to false"
    kind = item.get("type")
    if kind == "message":
        parts = {part["type"] for part in item["content"]}
        if not parts or not parts <= MESSAGE_PARTS.get(item["role"], set()):
            yield f"{where}: {item['role']} messages of {parts} are not allowed"
    elif kind == "reasoning":
        if not item.get("encrypted_content") or not isinstance(item.get("summary"), list):
            yield f"{where}: reasoning without its content"
    elif kind == "function_call":
        if len(item["call_id"]) > 64 or not isinstance(json.loads(item["arguments"]), dict):
            yield f"{where}: Invalid function call"
    elif kind != "function_call_output":
        yield f"{where}: Invalid type {kind!r}"
    elif not isinstance(item["output"], str) and not {part["type"] for part in item["output"]} <= MESSAGE_PARTS["user"]:
        yield f"{where}: Invalid output"


def _of_calls(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    called: list[str] = []
    answered: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            called.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            answered.append(item["call_id"])
            if answered[-1] not in called:
                yield f"No tool call found for function call output with call_id {answered[-1]}."
    for call in called:
        if call not in answered:
            yield f"No tool output found for function call {call}."
    for ids in (called, answered):
        if len(set(ids)) < len(ids):
            yield "Duplicate call ids"


class Output:
    """Writes the events of one reply."""

    def __init__(self) -> None:
        self.count = 0

    def item(self, item: Mapping[str, Any], *deltas: Event) -> list[Event]:
        place, self.count = self.count, self.count + 1
        here = {"output_index": place}
        begun = {"type": "response.output_item.added", **here, "item": {**item, "content": []}}
        done = {"type": "response.output_item.done", **here, "item": item}
        # Copilot gives each event another id, so that ours never fit.
        return [begun, *({**delta, **here, "item_id": f"id_{place}_{n}"} for n, delta in enumerate(deltas)), done]

    def text(self, *pieces: str, phase: str | None = None) -> list[Event]:
        content = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
        named = {"phase": phase} if phase else {}
        item = {"id": f"msg_{self.count}", "type": "message", "role": "assistant", "status": "completed", **named}
        deltas = [{"type": "response.output_text.delta", "content_index": 0, "delta": piece} for piece in pieces]
        return self.item({**item, "content": content}, *deltas)

    def reasoning(self, sealed: str | None, *summary: str) -> list[Event]:
        parts = [{"type": "summary_text", "text": text} for text in summary]
        item = {"id": f"rs_{self.count}", "type": "reasoning", "summary": parts, "content": None}
        return self.item({**item, "encrypted_content": sealed})

    def call(self, call_id: str, name: str, *pieces: str) -> list[Event]:
        item = {"id": f"fc_{self.count}", "type": "function_call", "status": "completed"}
        deltas = [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces]
        return self.item({**item, "call_id": call_id, "name": name, "arguments": "".join(pieces)}, *deltas)


def ended(status: str = "completed", **response: Any) -> Event:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 15,
    }
    fields: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "output": [],
        "usage": usage,
    }
    return {"type": f"response.{status}", "response": {**fields, **response}}


def translated(answer: Answer) -> Answer:
    """A streamed answer of chat completions, as this API sends it. Others stay what they are."""
    if answer.status != 200 or not answer.chunks or answer.raw:
        return answer
    chunks: list[bytes] = []
    pieces: list[Any] = []
    usage: Mapping[str, Any] = {}
    finish = None
    for chunk in answer.chunks:
        try:
            pieces.append(json.loads(chunk.removeprefix(b"data: ")))
        except ValueError:
            if chunk != b"data: [DONE]\n\n":
                pieces.append(chunk)
    begun: dict[object, dict[str, Any]] = {}
    for piece in pieces:
        if isinstance(piece, bytes):
            chunks.append(piece)
            continue
        if "error" in piece:
            chunks.append(event({"type": "response.failed", "response": {"status": "failed", "error": piece["error"]}}))
        usage = piece.get("usage") or usage
        for choice in piece.get("choices", ()):
            finish = choice["finish_reason"] or finish
            chunks += [event(each) for each in _of_delta(choice["delta"], begun)]
    if finish:
        chunks += [event(each) for each in _of_end(finish, usage, begun)]
    return replace(answer, chunks=tuple(chunks))


def _of_delta(delta: Mapping[str, Any], begun: dict[object, dict[str, Any]]) -> Iterator[Event]:
    if text := delta.get("content"):
        if "text" not in begun:
            begun["text"] = {"type": "message", "role": "assistant", "place": len(begun)}
            yield _added(begun["text"])
        yield {"type": "response.output_text.delta", "output_index": begun["text"]["place"], "delta": text}
    for part in delta.get("tool_calls", ()):
        index = part["index"]
        if index not in begun:
            item = {"type": "function_call", "call_id": part["id"], "name": part["function"]["name"], "arguments": ""}
            begun[index] = {**item, "place": len(begun)}
            yield _added(begun[index])
        arguments = part["function"]["arguments"]
        begun[index]["arguments"] += arguments
        place = begun[index]["place"]
        yield {"type": "response.function_call_arguments.delta", "output_index": place, "delta": arguments}


def _added(item: Mapping[str, Any]) -> Event:
    return {"type": "response.output_item.added", "output_index": item["place"], "item": dict(item)}


def _of_end(finish: str, usage: Mapping[str, Any], begun: Mapping[object, Mapping[str, Any]]) -> Iterator[Event]:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)
    for item in begun.values():
        if not cut and item["type"] == "function_call":
            yield {"type": "response.output_item.done", "output_index": item["place"], "item": dict(item)}
    counts = {
        "input_tokens": usage.get("prompt_tokens", 0),
        "output_tokens": usage.get("completion_tokens", 0),
        "input_tokens_details": {"cached_tokens": usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)},
    }
    details = {"incomplete_details": {"reason": cut}} if cut else {}
    yield ended("incomplete" if cut else "completed", usage=counts, **details)
