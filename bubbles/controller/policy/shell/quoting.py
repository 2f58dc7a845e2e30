"""Quotes and escapes of bash, undone. Source: bash's manual, "Quoting"."""

from __future__ import annotations

import re
from itertools import pairwise

_ANSI_C = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def ansi_c(body: str) -> str:
    """The text of ``$'body'``. Cut off at a NUL, as bash does."""
    return _ANSI_C.sub(_character, body).split("\0", 1)[0]


def printf_escapes(text: str) -> str:
    """What ``printf`` makes of the backslashes in its format, near enough for suspicion."""
    return _ANSI_C.sub(_character, text).replace("\0", "")


def _character(match: re.Match[str]) -> str:
    code = match[1]
    head = code[0]
    if head in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if head in "01234567":
        return chr(int(code, 8) & 0xFF)
    if head == "c" and len(code) > 1:
        return chr(ord(code[1]) & 0x1F)
    return _LETTERS.get(head, code if head in "\\'\"?" else "\\" + code)


MAX_BRACED = 500
"""Characters of a word whose braces are expanded."""
MAX_BRACES = 12


def braces(text: str, limit: int = 64) -> tuple[str, ...] | None:
    """The words that an unquoted literal ``text`` with braces expands to, or None: not certain, or too many.

    Comma lists, nested ones too. A pair of braces without a comma stays as it is; sequences are not expanded.
    """
    if (".." in text and "{" in text) or len(text) > MAX_BRACED or text.count("{") > MAX_BRACES:
        return None
    start = _first_list(text)
    if start is None:
        return (text,)
    opened, commas, closed = start
    prefix, rest = text[:opened], text[closed + 1 :]
    cuts = [opened, *commas, closed]
    tails = braces(rest, limit)
    if tails is None:
        return None
    words: list[str] = []
    for left, right in pairwise(cuts):
        middles = braces(text[left + 1 : right], limit)
        if middles is None or len(words) + len(middles) * len(tails) > limit:
            return None
        words.extend(prefix + middle + tail for middle in middles for tail in tails)
    return tuple(words)


def _first_list(text: str) -> tuple[int, list[int], int] | None:
    """Where the first pair of braces with a comma of its own opens, its commas, and where it closes."""
    for opened, character in enumerate(text):
        if character != "{":
            continue
        depth, commas = 0, []
        for here in range(opened, len(text)):
            if text[here] == "{":
                depth += 1
            elif text[here] == "," and depth == 1:
                commas.append(here)
            elif text[here] == "}":
                depth -= 1
                if depth == 0:
                    if commas:
                        return opened, commas, here
                    break
    return None
