"""Requests in the wire format of OpenAI's chat completions.

A message is written once: its bytes are kept as long as the message lives, and a body is put together from them. So the
cost of a call grows with its history only by the bytes that are sent.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

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

BLOCK_BYTES = 256 * 1024
"""Of a body that are sent at a time."""
KEPT = 16
"""System prompts, and sets of tools, whose bytes are kept: sessions that run side by side have their own."""
MAX_NAME_CHARS = 64
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
OUTLINE = "responses_output"
"""In ``AssistantMessage.vendor``: what ``responses_outline`` keeps there, which is no field of this wire."""
_OURS = frozenset({"role", "content", "tool_calls", "id", "type", "function", OUTLINE})


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def encoded(value: object) -> bytes:
    """JSON in UTF-8. A lone surrogate, which UTF-8 cannot hold, becomes a question mark."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A message as it is sent."""

    body: bytes
    pictures: bytes = b""
    """Of a tool's result: parts of the user's message that follows the results, as their role takes text only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request's body, not joined yet."""

    head: bytes
    messages: Sequence[bytes]
    tail: tuple[bytes, ...]
    """In pieces: what stands for many tools is copied once a request, like the rest."""

    @property
    def size(self) -> int:
        """Bytes."""
        commas = max(len(self.messages) - 1, 0)
        return len(self.head) + sum(map(len, self.messages)) + commas + sum(map(len, self.tail))

    def blocks(self) -> Iterator[bytes]:
        """All of it, in blocks that may be sent one by one. Each byte is copied once, a large message not at all."""
        block, size = [self.head], len(self.head)
        for number, message in enumerate(self.messages):
            if number:
                block.append(b",")
            block.append(message)
            size += len(message) + 1
            if size >= BLOCK_BYTES:
                yield b"".join(block)
                block, size = [], 0
        block += self.tail
        yield b"".join(block)


class ToolsWriter:
    """Writes sets of tools, and keeps what it wrote."""

    def __init__(self, encode: Callable[[object], bytes], shape: Callable[[ToolSpec], Mapping[str, Any]]) -> None:
        self._encode = encode
        self._shape = shape
        self._kept: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """A JSON list."""
        key = tuple(map(id, tools))  # the tools are kept beside it, so that an id stays theirs
        if (kept := self._kept.get(key)) is None:
            kept = (tools, self._encode([self._shape(tool) for tool in tools]))
            _keep(self._kept, key, kept)
        return kept[1]


class RequestWriter:
    """Writes requests, and keeps what it wrote of messages, tools and system prompts."""

    def __init__(self, provider: str, *, encode: Callable[[object], bytes] = encoded) -> None:
        """``provider``: what a vendor added to a reply goes back only if it came from there."""
        self._provider = provider
        self._encode = encode
        self._messages: WeakKeyDictionary[Message, Written] = WeakKeyDictionary()
        self._systems: dict[str, bytes] = {}
        self._tools = ToolsWriter(encode, _tool)

    def body(self, request: ModelRequest, options: Mapping[str, Any]) -> Body:
        """Raises ValueError, TypeError or RecursionError if there is something in the request that is no JSON.

        ``options``: further fields of the request.
        """
        head = self._encode({"model": request.model, **options})
        tools = (b',"tools":', self._tools.of(request.tools)) if request.tools else ()
        messages = list(self._sequence(request))
        return Body(head=head[:-1] + b',"messages":[', messages=messages, tail=(b"]", *tools, b"}"))

    def _sequence(self, request: ModelRequest) -> Iterator[bytes]:
        if request.system:
            yield self._system(request.system)
        yield from in_order(request.messages, self._messages, self._written, _of_pictures)

    def _system(self, text: str) -> bytes:
        if (kept := self._systems.get(text)) is None:
            kept = self._encode({"role": "system", "content": text})
            _keep(self._systems, text, kept)
        return kept

    def _written(self, message: Message) -> Written:
        if isinstance(message, UserMessage):
            return Written(body=self._user(message))
        if isinstance(message, ToolMessage):
            body = self._encode({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            return Written(body=body, pictures=self._result_pictures(message))
        return Written(body=self._encode(self._assistant(message)))

    def _user(self, message: UserMessage) -> bytes:
        if not message.images:
            return self._encode({"role": "user", "content": message.text})
        text = [self._encode({"type": "text", "text": message.text})] if message.text else []
        return _of_pictures([*text, *map(_picture, message.images)])

    def _result_pictures(self, message: ToolMessage) -> bytes:
        if not message.images:
            return b""
        remark = self._encode({"type": "text", "text": f"Of the result of {message.name} ({message.call_id}):"})
        return b",".join([remark, *map(_picture, message.images)])

    def _assistant(self, message: AssistantMessage) -> dict[str, Any]:
        own = message.provider == self._provider
        fields: dict[str, Any] = _vendor(message.vendor) if own else {}
        # Several servers refuse a reply without anything in it, and with it all that a session sends from then on.
        fields |= {"role": "assistant", "content": message.text or (None if message.tool_calls else "(no text)")}
        if message.tool_calls:
            fields["tool_calls"] = [_call(call, own=own) for call in message.tool_calls]
        return fields


def in_order(
    messages: Sequence[Message],
    known: MutableMapping[Message, Written],
    write: Callable[[Message], Written],
    of_pictures: Callable[[Sequence[bytes]], bytes],
) -> Iterator[bytes]:
    """All of them, those that are not ``known`` written by ``write``. Pictures of results come after the last result of
    a reply, in a message that ``of_pictures`` makes: no server takes anything between results.
    """
    pictures: list[bytes] = []
    for message in messages:
        if (written := known.get(message)) is None:
            written = known[message] = write(message)
        if pictures and not isinstance(message, ToolMessage):
            yield of_pictures(pictures)
            pictures = []
        yield written.body
        if written.pictures:
            pictures.append(written.pictures)
    if pictures:
        yield of_pictures(pictures)


def _keep(kept: dict[Any, Any], key: object, value: object) -> None:
    if len(kept) >= KEPT:
        del kept[next(iter(kept))]
    kept[key] = value


def picture_address(image: Image) -> bytes:
    """A ``data:`` URL, as a JSON text."""
    return encoded(f"data:{image.media_type};base64,")[:-1] + binascii.b2a_base64(image.data, newline=False) + b'"'


def _picture(image: Image) -> bytes:
    return b"".join([b'{"type":"image_url","image_url":{"url":', picture_address(image), b"}}"])


def _of_pictures(parts: Sequence[bytes]) -> bytes:
    return b"".join([b'{"role":"user","content":[', b",".join(parts), b"]}"])


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _call(call: ToolCall, *, own: bool) -> dict[str, Any]:
    function = {"name": sendable_name(call.name), "arguments": sendable_arguments(call.arguments)}
    return {**(_vendor(call.vendor) if own else {}), "id": call.id, "type": "function", "function": function}


def sendable_name(name: str) -> str:
    """A tool's name such as servers take it back, whatever a model may have invented."""
    return _NOT_IN_A_NAME.sub("_", name)[:MAX_NAME_CHARS] or "unknown"


def sendable_arguments(arguments: str) -> str:
    """JSON text of an object: servers take nothing else back."""
    return arguments if _is_object(arguments) else encoded({"not_valid_json": arguments}).decode()


def _vendor(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OURS}


def _no_json(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_STRICT = json.JSONDecoder(parse_constant=_no_json)


def _is_object(text: str) -> bool:
    try:
        return isinstance(_STRICT.decode(text), dict)
    except (ValueError, RecursionError):
        return False
