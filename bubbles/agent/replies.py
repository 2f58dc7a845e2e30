"""What of a reply can be kept: models, and the servers in front of them, write all sorts of things."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from bubbles.providers.contract import AssistantMessage, ModelReply, Stop, ToolCall

MOST_CALLS = 128
"""Of one reply. What a model writes beyond them is no work but a fault, and is left out."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A reply in a form that every provider takes back."""

    message: AssistantMessage
    unfinished: frozenset[int]
    """Which of its calls were cut by the output limit, so that nobody knows what they were to be (B062)."""
    cut: bool
    """By the output limit."""

    @property
    def is_empty(self) -> bool:
        return not self.message.text.strip() and not self.message.tool_calls


def kept(reply: ModelReply) -> Kept:
    cut = reply.stop is Stop.LENGTH
    calls = tuple(map(_named, reply.message.tool_calls[:MOST_CALLS]))
    last = len(reply.message.tool_calls) - 1
    unfinished = frozenset(
        number for number, call in enumerate(calls) if cut and not _is_whole(call.arguments, blank=number < last)
    )
    calls = tuple(replace(call, arguments="{}") if number in unfinished else call for number, call in enumerate(calls))
    # Text that is nothing but blanks is refused by some vendors, and with it all that the session sends from then on.
    text = reply.message.text if reply.message.text.strip() else ""
    message = reply.message
    if (text, calls) != (message.text, message.tool_calls):
        message = replace(message, text=text, tool_calls=calls)
    return Kept(message=message, unfinished=unfinished, cut=cut)


def _named(call: ToolCall) -> ToolCall:
    """A name that no provider would take back is no tool's: the model is told that there is none of the name."""
    if _NAME.fullmatch(call.name):
        return call
    return replace(call, name=_NO_NAME.sub("_", call.name[:64]) or "unnamed")


def _is_whole(arguments: str, *, blank: bool) -> bool:
    """``blank``: whether no arguments at all are whole."""
    if not arguments.strip():
        return blank
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
