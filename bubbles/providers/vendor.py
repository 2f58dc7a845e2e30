"""What a vendor adds of its own to a reply and wants back with it: reasoning, signatures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bubbles.providers.contract import NOTHING
from bubbles.providers.failures import broken

OF_MESSAGES = (
    *("reasoning_content", "reasoning", "reasoning_text", "thinking", "reasoning_details", "thinking_blocks"),
    *("reasoning_opaque", "reasoning_signature", "signature", "extra_content"),
)
"""DeepSeek, Moonshot, vLLM and Qwen; OpenRouter, Groq and Ollama; Copilot; Gemini."""
OF_CALLS = ("extra_content", "thought_signature")
MAX_DEPTH = 16
MAX_VALUES = 500_000
"""Reasoning comes in pieces of a few letters, each an object with some fields."""
_GROWS = ("text", "summary", "data", "thinking", "signature")


class VendorFields:
    """Collects them over the pieces of a reply: text is continued, so are parts of a list, the rest is replaced."""

    def __init__(self, names: tuple[str, ...] = OF_MESSAGES) -> None:
        self._names = names
        self._texts: dict[str, list[str]] = {}
        self._others: dict[str, Any] = {}
        self._values = 0

    def add(self, piece: Mapping[str, Any]) -> None:
        for name in self._names:
            value = piece.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list):
                if not isinstance(self._others.get(name), list):
                    self._others[name] = []
                self._continue(self._others[name], value)
            else:
                self._others[name] = self._kept(value)

    def all(self) -> Mapping[str, Any]:
        texts = {name: mended("".join(pieces)) for name, pieces in self._texts.items()}
        joined = {
            name: [_joined(part) for part in value] if isinstance(value, list) else value
            for name, value in self._others.items()
        }
        return {**joined, **texts} or NOTHING

    def _continue(self, known: list[Any], parts: list[Any]) -> None:
        for raw in parts:
            part = self._kept(raw)
            last = known[-1] if known else None
            if not (isinstance(part, dict) and isinstance(last, dict) and _same(last, part)):
                known.append({**part, **_pieces(part)} if isinstance(part, dict) else part)
                continue
            for name, value in part.items():
                if name in _GROWS and isinstance(value, str) and isinstance(last.get(name), _Pieces):
                    last[name].append(value)
                elif value is not None:
                    last[name] = _Pieces([value]) if name in _GROWS and isinstance(value, str) else value

    def _kept(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """A copy that can be written as JSON again."""
        self._values += 1
        if not depth or self._values > MAX_VALUES:
            raise broken("what the vendor adds to the reply is too deep, or too much")
        if isinstance(value, str):
            return mended(value)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, dict):
            return {mended(str(name)): self._kept(item, depth - 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self._kept(item, depth - 1) for item in value]
        return value


class _Pieces(list[str]):
    """Of a text that is still coming: joined once, at the end."""


def _pieces(part: Mapping[str, Any]) -> dict[str, _Pieces]:
    return {name: _Pieces([part[name]]) for name in _GROWS if isinstance(part.get(name), str)}


def _same(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return part.get("index") is not None and all(last.get(name) == part.get(name) for name in ("index", "type"))


def _joined(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {name: "".join(value) if isinstance(value, _Pieces) else value for name, value in part.items()}


def mended(text: str) -> str:
    """Without lone surrogates, which JSON can name and nothing can write; halves that belong together are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
