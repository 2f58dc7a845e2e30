"""What a call gave, from what the server says that it gave (B083)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from bubbles.mcp.client.catalogue import clean_text
from bubbles.mcp.contract import ServerAnswer
from bubbles.providers.contract import Image

MAX_TEXT = 8 << 20
"""Characters."""
MAX_IMAGES = 8
MAX_IMAGE_BYTES = 5 << 20
MAX_PARTS = 10_000
MAX_SHOWN = 200
CUT = "\n[The server said more than {:,} characters; the rest is lost.]"

_BEGINNINGS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}


def answer_of(result: Mapping[str, Any]) -> ServerAnswer:
    """Never raises for what is in it. Blocks for as long as it takes to go through some megabytes."""
    content = result.get("content")
    reading = _Reading()
    for part in (content if isinstance(content, list) else [])[:MAX_PARTS]:
        reading.take(part if isinstance(part, dict) else {})
    structured = result.get("structuredContent")
    if structured is not None and not reading.has_text:
        reading.say(_as_json(structured))
    if not reading.lines and not reading.images:
        reading.say("(The server answered with nothing.)")
    text = "\n".join(reading.lines)
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + CUT.format(MAX_TEXT)
    return ServerAnswer(text=text, is_error=result.get("isError") is True, images=tuple(reading.images))


class _Reading:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.images: list[Image] = []
        self.has_text = False

    def say(self, text: str) -> None:
        self.lines.append(text.encode("utf-8", "replace").decode())  # half a character is no text

    def take(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text" and isinstance(part.get("text"), str):
            self.has_text = self.has_text or bool(part["text"])
            self.say(part["text"])
        elif kind == "image":
            self._picture(part)
        elif kind == "resource" and isinstance(part.get("resource"), dict):
            self._resource(part["resource"])
        elif kind == "resource_link":
            self.say(f"[A link to {_shown(part, 'uri')}, {_shown(part, 'name')}]")
        else:
            self.say(f"[Something that cannot be shown here: {_shown(part, 'type')}, {_shown(part, 'mimeType')}]")

    def _resource(self, resource: Mapping[str, Any]) -> None:
        if isinstance(resource.get("text"), str):
            self.has_text = True
            self.say(f"[{_shown(resource, 'uri')}]\n{resource['text']}")
        else:
            self.say(f"[A file that cannot be shown here: {_shown(resource, 'uri')}, {_shown(resource, 'mimeType')}]")

    def _picture(self, part: Mapping[str, Any]) -> None:
        why = self._keep(part.get("data"))
        if why:
            self.say(f"[A picture that cannot be shown here: {_shown(part, 'mimeType')}, {why}]")

    def _keep(self, data: object) -> str:
        """Why the picture is not kept, or an empty text."""
        if not isinstance(data, str):
            return "without data"
        if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            return "too large"
        if len(self.images) >= MAX_IMAGES:
            return "one of too many"
        try:
            decoded = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return "damaged"
        kind = _kind_of(decoded)
        if kind is None:
            return "of a kind that models do not take"
        self.images.append(Image(media_type=kind, data=decoded))
        return ""


def _kind_of(data: bytes) -> str | None:
    """By what it is, whatever the server calls it: a vendor that is told wrongly refuses the whole request."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, beginnings in _BEGINNINGS.items() if data.startswith(beginnings)), None)


def _shown(part: Mapping[str, Any], name: str) -> str:
    return clean_text(part.get(name), MAX_SHOWN).replace("\n", " ") or f"no {name}"


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "[A structure that cannot be written as JSON]"
