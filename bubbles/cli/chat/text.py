"""Makes text of others safe to show: nothing of a model, a tool or a file name drives the terminal."""

from __future__ import annotations

import unicodedata

JOINERS = "\u200c\u200d"
"""Scripts and pictures are made with them, and no terminal obeys them."""
KEPT = frozenset("\n\t" + JOINERS)


def shown(text: str) -> str:
    """``text`` with control and direction-changing characters written as escapes; lines and tabs stay."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(c if _harmless(c) else _escaped(c) for c in text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """The first line of ``text`` that says something, safe to show, in at most ``width`` characters."""
    start = text[: 10 * width].strip()  # what follows is not looked at, however long
    line = shown(start.split("\n", 1)[0].replace("\t", " ")).strip()
    return line if len(line) <= width else line[: width - 1] + "…"


def encodable(text: str) -> str:
    """``text`` without the halves of characters that undecodable bytes become on the way in."""
    return text.encode("utf-8", "replace").decode("utf-8")


def fitting(text: str, encoding: str) -> str:
    """``text`` with what ``encoding`` lacks written as escapes."""
    return text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding)


def _harmless(character: str) -> bool:
    return character.isprintable() or character in KEPT or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
