"""Sees in the events of a vendor's stream whether the reply has come to its end, or failed, and why.

A library that reads the same stream makes up an end where there is none, and passes over what it cannot read.
"""

from __future__ import annotations

import json
from typing import Any

from bubbles.providers.failures import broken, of_error
from bubbles.providers.registry import Wire
from bubbles.providers.sse import EventReader

_DONE = "[DONE]"
_WHOLE = frozenset({"message_stop", "response.completed", "response.incomplete"})
"""Types of Anthropic's last event, and of those of OpenAI's Responses."""


class StreamWitness:
    """Gets the bytes of a stream as they come. Raises ``ProviderError`` for an error in it and for what is no JSON."""

    def __init__(self, wire: Wire, secrets: tuple[str, ...] = ()) -> None:
        self.ended = False
        """The server has said why the reply ended."""
        self.over = False
        """Nothing follows, not even counts."""
        self._wire = wire
        self._secrets = secrets
        self._events = EventReader()

    def see(self, block: bytes) -> None:
        for data in self._events.feed(block):
            self._event(data)

    def finish(self) -> None:
        """At the end of the bytes."""
        for data in self._events.finish():
            self._event(data)

    def _event(self, data: str) -> None:
        if data.strip() == _DONE:
            self.ended = self.over = True
        elif data.strip() and not self.over:
            self._value(_parsed(data))

    def _value(self, value: dict[str, Any]) -> None:
        if value.get("type") == "response.failed" and isinstance(value.get("response"), dict):
            value = value["response"]
        if error := value.get("error"):
            raise of_error(error, secrets=self._secrets)
        if value.get("type") == "error" or value.get("object") == "error":
            raise of_error(value, secrets=self._secrets)
        self.over = self.over or value.get("type") in _WHOLE
        self.ended = self.ended or self.over or self._says_why(value)

    def _says_why(self, value: dict[str, Any]) -> bool:
        if self._wire is Wire.ANTHROPIC:
            delta = value.get("delta")
            return isinstance(delta, dict) and bool(delta.get("stop_reason"))
        if self._wire is Wire.GEMINI:
            blocked = value.get("promptFeedback")
            if isinstance(blocked, dict) and blocked.get("blockReason"):
                return True
            return _any_says(value.get("candidates"), "finishReason")
        return _any_says(value.get("choices"), "finish_reason")  # some send an empty one with every piece


def _any_says(choices: object, name: str) -> bool:
    return isinstance(choices, list) and any(isinstance(choice, dict) and choice.get(name) for choice in choices)


def _parsed(data: str) -> dict[str, Any]:
    try:
        value = json.loads(data, strict=False)
    except (ValueError, RecursionError):
        raise broken("a piece of the reply is no JSON") from None
    if not isinstance(value, dict):
        raise broken("a piece of the reply is no object")
    return value
