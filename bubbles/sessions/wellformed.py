"""Text that can be written as UTF-8: a model, a terminal or a broken file name may bring halves of surrogate pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from bubbles.providers.contract import NOTHING, AssistantMessage, ToolCall, ToolMessage, UserMessage
from bubbles.providers.vendor import mended

T = TypeVar("T", UserMessage, ToolMessage)

MAX_TEXT = 8 << 20
"""Characters of a message of a person or a tool that enter the history; over it, the middle is left out. The tools cut
theirs long before: this only keeps a line readable that nobody cut.
"""


clean = mended
"""Texts that stand alone are made whole as those of vendors are."""


def message(given: T) -> T:
    """The same message if nothing is wrong with it."""
    text = clean(shortened(given.text))
    if isinstance(given, ToolMessage):
        named = (clean(given.call_id), clean(given.name))
        if named != (given.call_id, given.name):
            return replace(given, call_id=named[0], name=named[1], text=text)
    return given if text == given.text else replace(given, text=text)


def reply(given: AssistantMessage) -> AssistantMessage:
    """The same message if nothing is wrong with it."""
    text, vendor = clean(given.text), _vendor(given.vendor)
    calls = tuple(map(_call, given.tool_calls))
    same = text == given.text and vendor is given.vendor and calls == given.tool_calls
    return given if same else replace(given, text=text, vendor=vendor, tool_calls=calls)


def shortened(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _call(call: ToolCall) -> ToolCall:
    vendor = _vendor(call.vendor)
    texts = (clean(call.id), clean(call.name), clean(call.arguments))
    if texts == (call.id, call.name, call.arguments) and vendor is call.vendor:
        return call
    return ToolCall(id=texts[0], name=texts[1], arguments=texts[2], vendor=vendor)


def _vendor(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is no JSON is left out as a whole: it could not go back to the vendor either."""
    if not fields:
        return fields
    try:
        written = json.dumps(fields, ensure_ascii=False, allow_nan=False, default=dict)
    except (TypeError, ValueError, RecursionError):
        return NOTHING
    try:
        written.encode()
    except UnicodeEncodeError:
        cleaned = json.loads(clean(written))
        return cleaned if isinstance(cleaned, dict) else NOTHING
    return fields
