"""Our messages as litellm takes them, and its pieces of a reply as ``assembly`` takes them.

The library speaks OpenAI's format with additions of its own, and turns it into what each vendor wants.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from bubbles.providers.registry import Entry, Wire
from bubbles.providers.vendor import mended
from bubbles.providers.wire import sendable_arguments, sendable_name

STAND_IN = "bubbles-key-stand-in"
"""What the library is told as the key: what it does not know, it cannot log (SEC-03)."""
SIGNATURE_MARK = "__thought__"
"""After it, the library puts Gemini's signature into the id of a call; we keep it beside."""
_WANTED_BACK: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("thinking_blocks",),
    "openai": (),
    "groq": (),  # refuses fields that it does not know
    "gemini": (),  # signatures only, see below
    "openrouter": ("reasoning_details",),
}
_WANTED_BACK_BY_OTHERS = ("reasoning_content",)
_SIGNATURES = "thought_signatures"
_CACHED = {"type": "ephemeral"}
"""Asks Anthropic to keep what stands before, which it does only if asked to."""


def messages_of(request: ModelRequest, entry: Entry) -> list[dict[str, Any]]:
    """All of the conversation. Pictures in results of tools follow these, as their role takes text only."""
    sent: list[dict[str, Any]] = []
    if request.system:
        sent.append({"role": "system", "content": request.system})
    pictures: list[dict[str, Any]] = []
    for message in request.messages:
        if pictures and not isinstance(message, ToolMessage):
            sent.append({"role": "user", "content": pictures})
            pictures = []
        sent.append(_message(message, entry))
        if isinstance(message, ToolMessage) and message.images:
            pictures.append(_part(f"Of the result of {message.name} ({message.call_id}):"))
            pictures.extend(map(_picture, message.images))
    if pictures:
        sent.append({"role": "user", "content": pictures})
    if entry.wire is Wire.ANTHROPIC and sent:
        for message_sent in {id(one): one for one in (sent[0], sent[-1])}.values():
            _mark_cached(message_sent)
    return sent


def tools_of(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def piece_of(chunk: Any) -> dict[str, Any]:
    """One of the library's chunks, as the server of a compatible API would have sent it."""
    piece: dict[str, Any] = chunk.model_dump(exclude_none=True, warnings=False)
    for choice in piece.get("choices") or ():
        delta = choice.get("delta") or {}
        own = delta.get("provider_specific_fields")
        if isinstance(own, dict) and isinstance(own.get(_SIGNATURES), list):
            delta["extra_content"] = {_SIGNATURES: own[_SIGNATURES]}
        for call in delta.get("tool_calls") or ():
            _tidy(call)
    return piece


def _tidy(call: dict[str, Any]) -> None:
    if isinstance(call.get("id"), str):
        call["id"] = call["id"].partition(SIGNATURE_MARK)[0]
    own = call.get("provider_specific_fields")
    if isinstance(own, dict) and isinstance(own.get("thought_signature"), str):
        call["thought_signature"] = own["thought_signature"]


def _message(message: Message, entry: Entry) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        if not message.images:
            return {"role": "user", "content": mended(message.text)}
        text = [_part(message.text)] if message.text else []
        return {"role": "user", "content": [*text, *map(_picture, message.images)]}
    if isinstance(message, ToolMessage):
        return {
            "role": "tool",
            "tool_call_id": message.call_id,
            "name": sendable_name(message.name),
            "content": mended(message.text),
        }
    return _assistant(message, entry)


def _assistant(message: AssistantMessage, entry: Entry) -> dict[str, Any]:
    own = message.provider == entry.name
    fields: dict[str, Any] = dict(_back(message.vendor, entry)) if own else {}
    # Several servers refuse a reply without anything in it, and with it all that a session sends from then on.
    content = mended(message.text) or (None if message.tool_calls else "(no text)")
    fields |= {"role": "assistant", "content": content}
    if message.tool_calls:
        fields["tool_calls"] = [_call(call, own=own) for call in message.tool_calls]
    return fields


def _call(call: ToolCall, *, own: bool) -> dict[str, Any]:
    function = {"name": sendable_name(call.name), "arguments": sendable_arguments(call.arguments)}
    sent: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    signature = call.vendor.get("thought_signature") if own else None
    if isinstance(signature, str):
        sent["provider_specific_fields"] = {"thought_signature": signature}
    return sent


def _back(vendor: Mapping[str, Any], entry: Entry) -> Iterator[tuple[str, Any]]:
    for name in _WANTED_BACK.get(entry.name, _WANTED_BACK_BY_OTHERS):
        value = vendor.get(name)
        if name == "thinking_blocks" and isinstance(value, list):
            value = [{key: part[key] for key in part if key != "index"} for part in value if isinstance(part, dict)]
        if value:
            yield name, value
    extra = vendor.get("extra_content")
    if entry.wire is Wire.GEMINI and isinstance(extra, Mapping) and isinstance(extra.get(_SIGNATURES), list):
        yield "provider_specific_fields", {_SIGNATURES: extra[_SIGNATURES]}


def _mark_cached(message: dict[str, Any]) -> None:
    content = message["content"]
    if isinstance(content, str) and content and message["role"] in ("system", "user"):
        message["content"] = [{**_part(content), "cache_control": _CACHED}]
    elif isinstance(content, list) and content:
        content[-1] = {**content[-1], "cache_control": _CACHED}
    elif message["role"] == "tool" and content:
        message["cache_control"] = _CACHED


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": mended(text)}


def _picture(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}
