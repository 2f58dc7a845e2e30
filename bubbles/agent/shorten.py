"""The last resort for messages that do not fit even when all older ones are summarised: they lose their middle.

Only what the model gets is shortened; the history stays as it is (B093).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from bubbles.providers.contract import AssistantMessage, Message, ToolCall
from bubbles.sessions.tokens import IMAGE, estimate, of_message
from bubbles.tools.truncate import cut_to_tokens

LEAST_MESSAGE = 60
"""Tokens that any message may keep."""
WHERE = " because the message is too long for the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    messages: Sequence[Message]
    tokens: int
    """Estimated."""
    shortened: int = 0
    """How many messages."""


class Shortener:
    """For one turn. A message that is shortened to the same size again is the same object again."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Message, tuple[int, Message]] = WeakKeyDictionary()

    def fit(self, messages: Sequence[Message], tokens: int, room: int) -> Fitted:
        """The messages within ``room`` tokens, as far as that can be. ``tokens`` is what they have now."""
        if tokens <= room:
            return Fitted(messages=messages, tokens=tokens)
        sizes = [of_message(message) for message in messages]
        cap = level(sizes, room)
        fitted = [
            message if size <= cap else self._short(message, cap) for message, size in zip(messages, sizes, strict=True)
        ]
        return Fitted(
            messages=fitted,
            tokens=sum(map(of_message, fitted)),
            shortened=sum(size > cap for size in sizes),
        )

    def _short(self, message: Message, cap: int) -> Message:
        known = self._known.get(message)
        if known is None or known[0] != cap:
            known = self._known[message] = (cap, _shortened(message, cap))
        return known[1]


def level(sizes: Sequence[int], room: int) -> int:
    """The largest size such that all fit if none is larger."""
    left, count = room, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return max(LEAST_MESSAGE, left // count)
        left -= size
        count -= 1
    return max(sizes, default=LEAST_MESSAGE)


def _shortened(message: Message, cap: int) -> Message:
    if isinstance(message, AssistantMessage):
        calls = tuple(_short_call(call, cap // (len(message.tool_calls) + 1)) for call in message.tool_calls)
        spent = of_message(replace(message, text="", tool_calls=calls))
        text = cut_to_tokens(message.text, max(cap - spent, LEAST_MESSAGE), WHERE)
        return replace(message, text=text, tool_calls=calls)
    if not message.images:
        return replace(message, text=cut_to_tokens(message.text, cap - LEAST_MESSAGE // 3, WHERE))
    kept = message.images[: max(cap - LEAST_MESSAGE, 0) // IMAGE]
    text = message.text
    if lost := len(message.images) - len(kept):
        text += f"\n[{lost} of {len(message.images)} pictures are left out here{WHERE}.]"
    return replace(message, text=cut_to_tokens(text, max(cap - IMAGE * len(kept), LEAST_MESSAGE), WHERE), images=kept)


def _short_call(call: ToolCall, cap: int) -> ToolCall:
    if estimate(call.arguments) <= max(cap, LEAST_MESSAGE):
        return call
    note = f"{len(call.arguments):,} characters, too long to be shown"
    return replace(call, arguments=json.dumps({"left_out": note}))
