"""In which order a reply of OpenAI's Responses API came, and what of it a message has no place for.

A reply is a list of items: reasoning, text, calls. Reasoning is sealed by the vendor and goes back in its place, or the
model has to think everything anew after each call; text may be marked as a remark on the way or as the answer
(``phase``), which goes back too. So an outline is kept in ``AssistantMessage.vendor``: reasoning whole, of text the
length and the phase, of calls only that there was one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bubbles.providers.contract import NOTHING, AssistantMessage
from bubbles.providers.vendor import mended
from bubbles.providers.wire import OUTLINE

BETWEEN = "\n\n"
"""Between the texts of a reply that has several."""
PHASES = ("commentary", "final_answer")
CALL: Mapping[str, Any] = {"type": "function_call"}
MAX_PARTS = 1_000
"""Of one summary of reasoning."""


def reasoning_of(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What goes back of an item; None without the sealed part, as the vendor keeps no copy (``store`` is false).

    Its id does not go back: the vendor would look for it.
    """
    sealed, parts = item.get("encrypted_content"), item.get("summary")
    if not isinstance(sealed, str) or not sealed:
        return None
    texts = [part.get("text") for part in (parts if isinstance(parts, list) else [])[:MAX_PARTS] if _is_object(part)]
    summary = [{"type": "summary_text", "text": mended(text)} for text in texts if isinstance(text, str)]
    return {"type": "reasoning", "summary": summary, "encrypted_content": mended(sealed)}


def text_of(text: str, phase: object) -> Mapping[str, Any]:
    return {"type": "message", "chars": len(text), **({"phase": phase} if phase in PHASES else {})}


def vendor_of(outline: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Nothing if the message says it all."""
    telling = any(entry["type"] == "reasoning" or "phase" in entry for entry in outline)
    return {OUTLINE: list(outline)} if telling else NOTHING


def entries_of(message: AssistantMessage) -> Iterator[Mapping[str, Any]]:
    """The outline that fits the message: of ``reasoning``, ``message`` with its ``text``, and ``function_call``.

    A message that somebody has changed since, or that came without an outline, has its text before its calls, and all
    reasoning before them.
    """
    found = message.vendor.get(OUTLINE)
    outline = [entry for entry in found if _is_object(entry)] if isinstance(found, list) else []
    texts = _cut(message.text, [entry for entry in outline if entry.get("type") == "message"])
    calls = sum(entry.get("type") == "function_call" for entry in outline)
    if texts is None or calls != len(message.tool_calls):
        yield from (entry for entry in map(_reasoning, outline) if entry)
        if message.text:
            yield {"type": "message", "text": message.text}
        yield from [CALL] * len(message.tool_calls)
        return
    for entry in outline:
        kind = entry.get("type")
        if kind == "message" and (text := texts.pop(0)):
            phase = entry.get("phase")
            yield {"type": "message", "text": text, **({"phase": phase} if phase in PHASES else {})}
        elif kind == "function_call":
            yield CALL
        elif reasoning := _reasoning(entry):
            yield reasoning


def _cut(text: str, entries: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The text of each entry; None if they do not make up all of it."""
    found: list[str] = []
    at = 0
    for entry in entries:
        chars = entry.get("chars")
        if not isinstance(chars, int) or chars < 0:
            return None
        if chars and at:
            if not text.startswith(BETWEEN, at):
                return None
            at += len(BETWEEN)
        found.append(text[at : at + chars])
        at += chars
    return found if at == len(text) else None


def _reasoning(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Read again, as it may come from a file."""
    return reasoning_of(entry) if entry.get("type") == "reasoning" else None


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)
