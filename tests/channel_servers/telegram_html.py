"""Telegram's HTML, read as its server reads it: strictly, with its words for what is wrong.

After td/telegram/MessageEntity.cpp of TDLib. Offsets and lengths are in UTF-16 units.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.entities import html5

TAGS = set("a b strong i em s strike del u ins tg-spoiler tg-emoji span pre code blockquote".split())
KINDS = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("s", "strike", "del"), "strikethrough"),
    **dict.fromkeys(("u", "ins"), "underline"),
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
}
_ENTITY = re.compile(r"&(?:#([0-9]+)|#x([0-9a-fA-F]+)|(lt|gt|amp|quot));?")
_TAG = re.compile(r"<(/?)([A-Za-z0-9-]*)((?:\s+[A-Za-z-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'))*)\s*>")
_ATTRIBUTE = re.compile(r"([A-Za-z-]+)\s*=\s*[\"']([^\"']*)[\"']")
assert "nbsp;" in html5  # of all names that HTML has, Telegram knows four


class MarkupError(Exception):
    """The words of the Bot API."""


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@dataclass(slots=True)
class Markup:
    """What a message is once its tags are taken out."""

    text: str = ""
    entities: list[dict[str, object]] = field(default_factory=list)

    def of(self, kind: str) -> list[str]:
        """The texts of all entities of a kind."""
        data = self.text.encode("utf-16-le")
        return [
            data[2 * int(str(each["offset"])) : 2 * (int(str(each["offset"])) + int(str(each["length"])))].decode(
                "utf-16-le"
            )
            for each in self.entities
            if each["type"] == kind
        ]


def parsed(html: str) -> Markup:
    """Raises MarkupError."""
    found = Markup()
    stack: list[tuple[str, str, int]] = []
    at = 0
    while at < len(html):
        if html[at] == "&":
            entity = _ENTITY.match(html, at)
            found.text += _decoded(entity) if entity else "&"
            at = entity.end() if entity else at + 1
        elif html[at] == "<":
            at = _tag(html, at, stack, found)
        else:
            found.text += html[at]
            at += 1
    if stack:
        raise MarkupError(f'Can\'t find end tag corresponding to start tag "{stack[-1][0]}"')
    _check_nesting(found)
    return found


def _decoded(entity: re.Match[str]) -> str:
    if entity[3]:
        return {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}[entity[3]]
    return chr(int(entity[1]) if entity[1] else int(entity[2], 16))


def _tag(html: str, at: int, stack: list[tuple[str, str, int]], found: Markup) -> int:
    where = len(html[:at].encode())
    tag = _TAG.match(html, at)
    if tag is None:
        raise MarkupError(f"Unclosed or unsupported start tag at byte offset {where}")
    name, attributes = tag[2].lower(), dict(_ATTRIBUTE.findall(tag[3]))
    if not tag[1]:
        if name not in TAGS:
            raise MarkupError(f'Unsupported start tag "{name}" at byte offset {where}')
        if name == "span" and attributes.get("class") != "tg-spoiler":
            raise MarkupError(f'Tag "span" must have class "tg-spoiler" at byte offset {where}')
        value = str(attributes.get("href", attributes.get("class", "")))
        stack.append((name, _unescaped(value), units(found.text)))
        return tag.end()
    if not stack:
        raise MarkupError(f"Unexpected end tag at byte offset {where}")
    opened, value, offset = stack.pop()
    if name not in ("", opened):
        raise MarkupError(f'Unmatched end tag at byte offset {where}, expected "</{opened}>", found "</{name}>"')
    _ended(found, opened, value, offset)
    return tag.end()


def _unescaped(value: str) -> str:
    return _ENTITY.sub(_decoded, value)


def _ended(found: Markup, tag: str, value: str, offset: int) -> None:
    length = units(found.text) - offset
    if not length:
        return
    entity: dict[str, object] = {"type": KINDS.get(tag, tag), "offset": offset, "length": length}
    if tag == "a":
        person = re.fullmatch(r"tg://user\?id=([0-9]+)", value, re.IGNORECASE)
        if person:
            entity |= {"type": "text_mention", "user": {"id": int(person[1])}}
        elif re.match(r"(?:https?|tg|mailto):", value, re.IGNORECASE):
            entity |= {"type": "text_link", "url": value}
        else:
            return  # Telegram shows the text alone
    elif tag == "code" and value.startswith("language-"):
        entity["language"] = value.removeprefix("language-")
    found.entities.append(entity)


def _check_nesting(found: Markup) -> None:
    """Stricter than Telegram, which mends it silently: what cannot be in each other should not be sent like that."""
    for outer in found.entities:
        for inner in found.entities:
            if inner is outer or not _within(inner, outer):
                continue
            kinds = (outer["type"], inner["type"])
            if kinds == ("pre", "code") and "language" in inner:
                continue
            if outer["type"] in ("code", "pre") or kinds == ("blockquote", "blockquote") or kinds[0] == kinds[1]:
                raise MarkupError(f"{kinds[1]} cannot be in {kinds[0]}")


def _within(inner: dict[str, object], outer: dict[str, object]) -> bool:
    begin, end = int(str(inner["offset"])), int(str(inner["offset"])) + int(str(inner["length"]))
    left, right = int(str(outer["offset"])), int(str(outer["offset"])) + int(str(outer["length"]))
    return left <= begin and end <= right and (begin, end) != (left, right)
