"""Requests in the wire format of OpenAI's Responses API, for those who keep nothing (``store`` is false).

As in ``wire``, a message is written once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

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
from bubbles.providers.responses.outline import entries_of
from bubbles.providers.wire import (
    Body,
    ToolsWriter,
    Written,
    encoded,
    in_order,
    picture_address,
    sendable_arguments,
    sendable_name,
)

MAX_ID_CHARS = 64
"""Of a call. Longer ones come from other vendors."""
INSTRUCTIONS = "You are a helpful assistant."
"""Where there are none: the vendor demands some."""
SEALED = "reasoning.encrypted_content"


class ResponsesWriter:
    """Writes requests, and keeps what it wrote of messages and tools."""

    def __init__(
        self, provider: str, *, pictures_in_results: bool = True, encode: Callable[[object], bytes] = encoded
    ) -> None:
        """``provider``: reasoning goes back only if it came from there.

        Without ``pictures_in_results`` pictures follow the results, as if the person had sent them.
        """
        self._provider = provider
        self._pictures_in_results = pictures_in_results
        self._encode = encode
        self._messages: WeakKeyDictionary[Message, Written] = WeakKeyDictionary()
        self._unreasoned: WeakSet[Message] = WeakSet()
        self._tools = ToolsWriter(encode, _tool)

    def body(self, request: ModelRequest, options: Mapping[str, Any]) -> Body:
        """Raises ValueError, TypeError or RecursionError if there is something in the request that is no JSON.

        ``options``: further fields of the request.
        """
        fields: dict[str, Any] = {"model": request.model, "instructions": request.system or INSTRUCTIONS}
        fields |= {"stream": True, "store": False, "include": [SEALED]}
        if request.tools:
            fields |= {"tool_choice": "auto", "parallel_tool_calls": True}
        head = self._encode({**fields, **options})
        tools = (b',"tools":', self._tools.of(request.tools)) if request.tools else ()
        messages = list(in_order(request.messages, self._messages, self._written, _user))
        return Body(head=head[:-1] + b',"input":[', messages=messages, tail=(b"]", *tools, b"}"))

    def forget_reasoning(self, messages: Sequence[Message]) -> bool:
        """From now on these are sent without; whether any was sent with."""
        forgotten = [
            message
            for message in messages
            if isinstance(message, AssistantMessage)
            and message not in self._unreasoned
            and self._has_reasoning(message)
        ]
        for message in forgotten:
            self._unreasoned.add(message)
            self._messages.pop(message, None)
        return bool(forgotten)

    def _has_reasoning(self, message: AssistantMessage) -> bool:
        return message.provider == self._provider and any(entry["type"] == "reasoning" for entry in entries_of(message))

    def _written(self, message: Message) -> Written:
        if isinstance(message, UserMessage):
            text = [self._text(message.text)] if message.text or not message.images else []
            return Written(body=_user([*text, *map(_picture, message.images)]))
        if isinstance(message, ToolMessage):
            return self._result(message)
        return Written(body=b",".join(map(self._encode, self._reply(message))))

    def _result(self, message: ToolMessage) -> Written:
        pictures = [*map(_picture, message.images)]
        if pictures and self._pictures_in_results:
            text = [self._text(message.text)] if message.text else []
            return Written(body=self._output(message, b"[" + b",".join([*text, *pictures]) + b"]"))
        remark = self._text(f"Of the result of {message.name} ({sendable_id(message.call_id)}):") if pictures else b""
        return Written(
            body=self._output(message, self._encode(message.text)),
            pictures=b",".join([remark, *pictures]) if pictures else b"",
        )

    def _output(self, message: ToolMessage, output: bytes) -> bytes:
        head = self._encode({"type": "function_call_output", "call_id": sendable_id(message.call_id)})
        return b"".join([head[:-1], b',"output":', output, b"}"])

    def _reply(self, message: AssistantMessage) -> Iterator[Mapping[str, Any]]:
        own = message.provider == self._provider
        calls = iter(message.tool_calls)
        # Alone, reasoning is no reply, and several servers refuse one without anything in it.
        if not message.text and not message.tool_calls:
            yield _said({"text": "(no text)"})
            return
        for entry in entries_of(message):
            if entry["type"] == "message":
                yield _said(entry if own else {"text": entry["text"]})
            elif entry["type"] == "function_call":
                yield _call(next(calls))
            elif own and message not in self._unreasoned:
                yield entry

    def _text(self, text: str) -> bytes:
        return self._encode({"type": "input_text", "text": text})


def sendable_id(call_id: str) -> str:
    """The same for a call and for its result."""
    if len(call_id) <= MAX_ID_CHARS:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:40]}"


def _user(parts: Sequence[bytes]) -> bytes:
    return b"".join([b'{"type":"message","role":"user","content":[', b",".join(parts), b"]}"])


def _picture(image: Image) -> bytes:
    return b"".join([b'{"type":"input_image","image_url":', picture_address(image), b"}"])


def _said(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    content = [{"type": "output_text", "text": entry["text"]}]
    phase = {"phase": entry["phase"]} if "phase" in entry else {}
    return {"type": "message", "role": "assistant", "content": content, **phase}


def _call(call: ToolCall) -> Mapping[str, Any]:
    arguments = sendable_arguments(call.arguments)
    name = sendable_name(call.name)
    return {"type": "function_call", "call_id": sendable_id(call.id), "name": name, "arguments": arguments}


def _tool(tool: ToolSpec) -> Mapping[str, Any]:
    # Left out, ``strict`` is true, and the vendor then takes only schemas in which nothing is optional.
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "strict": False, **told}
