"""Makes one reply of the pieces in which an OpenAI-compatible server sends it. Nothing in them is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bubbles.providers.contract import (
    NO_USAGE,
    AssistantMessage,
    Message,
    ModelReply,
    ProviderError,
    Stop,
    ToolCall,
    Usage,
)
from bubbles.providers.failures import broken, of_error
from bubbles.providers.pieces import TextPieces
from bubbles.providers.toolcalls import CallsInProgress
from bubbles.providers.vendor import VendorFields

DONE = "[DONE]"
_STOPS = {
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "max_output_tokens": Stop.LENGTH,
    "model_length": Stop.LENGTH,
    "content_filter": Stop.CONTENT_FILTER,
    "sensitive": Stop.CONTENT_FILTER,
    "safety": Stop.CONTENT_FILTER,
}
_FAILED = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
"""OpenRouter, SGLang, Zhipu, DeepSeek: the server gave up."""
_MAX_COUNT = 2**53
MAX_WRITTEN = 30 * 2**20
"""Bytes of a reply as JSON. It has to fit into one line of a history, and control characters grow there."""
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)  # NaN stands in no JSON that others read


class Assembly:
    """Takes the chunks of one reply. Every method raises ``ProviderError`` for what makes no sense.

    ``finished``: the server has said why the reply ended; only token counts may still come. ``done``: nothing follows.
    """

    def __init__(
        self, provider: str, messages: Sequence[Message] = (), secrets: Sequence[str] = (), *, in_parts: bool = False
    ) -> None:
        """``messages``: what was sent. Ids of calls are unique in a history, and not all servers see to that.

        ``secrets`` are taken out of errors. ``in_parts``: one reply is split over several choices, as Copilot does with
        those of Claude: text in the first, calls in the next, and "tool_calls" as the end of both.
        """
        self.finished = False
        self.done = False
        self._provider = provider
        self._messages = messages
        self._secrets = secrets
        self._in_parts = in_parts
        self._text = TextPieces()
        self._calls = CallsInProgress()
        self._vendor = VendorFields()
        self._reason = ""
        self._usage = NO_USAGE

    def event(self, data: str) -> str:
        """One event of a stream; returns the text that it adds."""
        if data.strip() == DONE:
            self.done = True
            return ""
        return "".join([self._chunk(chunk, whole=False) for chunk in decoded(data)])

    def piece(self, chunk: object) -> str:
        """A chunk that is parsed already; returns the text that it adds."""
        return self._chunk(chunk, whole=False)

    def whole(self, data: str) -> str:
        """The answer of a server that does not stream; returns its text."""
        text = "".join([self._chunk(chunk, whole=True) for chunk in decoded(data)])
        self.done = True
        return text

    def reply(self) -> ModelReply:
        """What has come, if it is all of the reply."""
        if not self.finished and not self.done:
            raise broken("the connection ended before the reply did")
        text = self._text.all()
        calls = tuple(self._calls.all(lambda: taken_ids(self._messages)))
        if not (text or calls or self.finished):
            raise broken("the reply is empty")
        message = AssistantMessage(text=text, tool_calls=calls, vendor=self._vendor.all(), provider=self._provider)
        return ModelReply(message=fitting(message), stop=self._stop(calls), usage=self._usage)

    def _stop(self, calls: Sequence[ToolCall]) -> Stop:
        """Servers say ``stop`` with calls, and ``tool_calls`` without."""
        return _STOPS.get(self._reason, Stop.TOOL_CALLS if calls else Stop.END)

    def _chunk(self, chunk: object, *, whole: bool) -> str:
        if not isinstance(chunk, dict):
            raise broken("a piece of the reply is no object")
        if error := chunk.get("error"):
            raise of_error(error, secrets=self._secrets)
        choices = chunk.get("choices")
        if chunk.get("object") == "error" or (choices is None and isinstance(chunk.get("message"), str)):
            raise of_error(chunk, secrets=self._secrets)
        self._count(chunk.get("usage"))
        if not isinstance(choices, list | None):
            raise broken("choices of a piece of the reply are no list")
        return "".join([self._choice(choice, whole=whole) for choice in choices or ()])

    def _choice(self, choice: object, *, whole: bool) -> str:
        if not isinstance(choice, dict):
            raise broken("a choice of the reply is no object")
        if choice.get("index") not in (0, None) and not self._in_parts:
            return ""  # one was asked for
        delta = choice.get("message") if whole or choice.get("delta") is None else choice["delta"]
        if not isinstance(delta, dict | None):
            raise broken("what a choice of the reply adds is no object")
        text = self._delta(delta, whole=whole) if delta else ""
        self._count(choice.get("usage"))  # Moonshot
        reason = choice.get("finish_reason")
        if not isinstance(reason, str | None):
            raise broken("the reason why the reply ended is no text")
        if reason:
            self._reason = reason[:64].lower()
            if self._reason in _FAILED:
                raise broken(f"the server ended the reply: {self._reason}")
            self.finished = not (self._in_parts and reason == "tool_calls" and not self._calls)
        return text

    def _delta(self, delta: Mapping[str, Any], *, whole: bool) -> str:
        piece = self._text.add(_content(delta.get("content")) or _content(delta.get("refusal")))
        if calls := delta.get("tool_calls"):
            self._calls.add(calls, whole=whole)
        self._vendor.add(delta)
        return piece

    def _count(self, usage: object) -> None:
        """Numbers of tokens are estimates elsewhere, so that odd ones do no harm: they count as not given."""
        if not isinstance(usage, dict) or not usage:  # an empty one would take back what was counted
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        self._usage = Usage(
            input_tokens=number(usage.get("prompt_tokens")),
            output_tokens=number(usage.get("completion_tokens")),
            cached_tokens=number(cached or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        )


def fitting(message: AssistantMessage) -> AssistantMessage:
    """The same, if it is not too long to be kept."""
    calls = message.tool_calls
    parts = (message.text, message.vendor, *(part for call in calls for part in (call.arguments, call.vendor)))
    if sum(len(json.dumps(part, default=dict)) for part in parts) > MAX_WRITTEN:
        raise broken(f"the reply is longer than {MAX_WRITTEN} bytes")
    return message


def taken_ids(messages: Sequence[Message]) -> set[str]:
    """Of the calls in a history."""
    asked = [message for message in messages if isinstance(message, AssistantMessage)]
    return {call.id for message in asked for call in message.tool_calls}


def decoded(data: str) -> Iterator[object]:
    """The value, or one for each line where a server leaves out the blank lines between events."""
    if not data.strip():
        return
    try:
        yield _parsed(data)
    except ProviderError:
        lines = [line for line in data.split("\n") if line.strip() not in ("", DONE)]
        if len(lines) < 2:
            raise
        yield from map(_parsed, lines)


def _parsed(data: str) -> object:
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise broken(f"the reply is no JSON: {type(error).__name__}") from None


def _content(value: object) -> str:
    """Text, or the text of a list of parts (Mistral)."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "".join([part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)])
    if not isinstance(value, str):
        raise broken("the text of the reply is no text")
    return value


def number(value: object) -> int:
    """A count of tokens; 0 for what is none."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_COUNT else 0
