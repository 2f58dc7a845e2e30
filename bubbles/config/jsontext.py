"""JSON as text: read strictly, and changed in one place such that every other byte stays.

Nothing here knows what the settings are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bubbles.errors import ConfigError

MAX_DEPTH = 64
BOM = "\ufeff"
REMOVE = object()
"""As a value: the member is taken out."""

_BLANK = re.compile(r"[ \t\r\n]*")
_SNAKE = re.compile(r'"[a-z0-9]+(?:_[a-z0-9]+)+"[ \t\r\n]*:')
_CAMEL = re.compile(r'"[a-z0-9]+[A-Z][A-Za-z0-9]*"[ \t\r\n]*:')
_DECODER = json.JSONDecoder()

Step = tuple[str, ...]
"""The spellings of one name, the usual one first."""


def parse(text: str, source: str, duplicates: list[str] | None = None) -> dict[str, Any]:
    """The one object that ``text`` must be. Raises ConfigError, which tells the place and never the content.

    ``duplicates`` gets the names that are written twice in one object.
    """

    def collected(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if duplicates is not None and len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicates.extend(name for name, count in counts.items() if count > 1)
        return found

    try:
        tree = json.loads(text.removeprefix(BOM), object_pairs_hook=collected)
        if _too_deep(tree):
            raise RecursionError
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        fault = f"is not valid JSON at {where} ({error.msg}): correct it there"
    except ValueError:
        fault = "holds a number that is too long: correct it"
    except RecursionError:
        fault = "is nested too deeply to be settings: correct it"
    else:
        if isinstance(tree, dict):
            return tree
        fault = "must hold one JSON object: begin it with {"
    raise ConfigError(f"{source} {fault}.")  # out here: the decoder's own error carries the whole text


def _too_deep(tree: object) -> bool:
    level: list[Any] = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int
    """Of the name's quote."""
    value: int
    end: int


def changed(text: str, steps: Sequence[Step], value: object) -> str:
    """``text``, which ``parse`` has taken, with one member of its object changed, made or removed (``REMOVE``).

    Where a name is written several times the last one is changed, since it counts; all are removed. Raises ConfigError
    if what is on the way is no object. New text follows the manner of the old: line ends, indentation, camelCase or
    snake_case.
    """
    start = _past_blank(text, len(BOM) if text.startswith(BOM) else 0)
    for depth, step in enumerate(steps):
        members = _members(text, start)
        same = [member for member in members if member.name in step]
        last = depth == len(steps) - 1
        if value is REMOVE and last:
            return _without(text, start, members, same)
        if not same:
            return text if value is REMOVE else _with(text, start, members, steps[depth:], value)
        chosen = same[-1]
        if last or text[chosen.value] != "{":
            old = text[chosen.value : chosen.end]
            if value is REMOVE or (last and _is_already(old, value)):
                return text
            if not last and old != "null":
                raise ConfigError(f"{chosen.name} is no JSON object, {{…}}: correct it; nothing was changed.")
            new = _Manner.of(text).rendered(steps[depth + 1 :], value, _indent_at(text, chosen.start))
            return text[: chosen.value] + new + text[chosen.end :]
        start = chosen.value
    raise ValueError("there is no name to change")


def _members(text: str, start: int) -> list[_Member]:
    """Of the object whose brace is at ``start``, in a text that is known to be valid."""
    found: list[_Member] = []
    at = _past_blank(text, start + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _past_blank(text, _past_blank(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(_Member(name, at, value, end))
        at = _past_blank(text, end)
        if text[at] == ",":
            at = _past_blank(text, at + 1)
    return found


def _past_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _is_already(written: str, value: object) -> bool:
    return json.dumps(json.loads(written)) == json.dumps(value)  # 1, 1.0 and true are equal, and not the same


def _without(text: str, start: int, members: list[_Member], same: list[_Member]) -> str:
    """The members in ``same`` go, each with one comma and the blank on one side."""
    for member in reversed(same):
        place = members.index(member)
        if place + 1 < len(members):
            cut = member.start, members[place + 1].start
        elif place:
            cut = members[place - 1].end, member.end
        else:
            cut = start + 1, _past_blank(text, member.end)
        text = text[: cut[0]] + text[cut[1] :]
        members = _members(text, start)
    return text


def _with(text: str, start: int, members: list[_Member], steps: Sequence[Step], value: object) -> str:
    manner = _Manner.of(text)
    if members:
        last = members[-1]
        blank = text[_blank_before(text, last.start) : last.start]
        if not blank and len(members) == 1:
            blank = manner.gap
        indent = blank.rpartition("\n")[2] if "\n" in blank else _indent_at(text, start)
        return text[: last.end] + "," + blank + manner.member(steps, value, indent) + text[last.end :]
    end = text.index("}", start)
    outer = _indent_at(text, start)
    if manner.newline:
        inner = outer + manner.unit
        body = f"{manner.newline}{inner}{manner.member(steps, value, inner)}{manner.newline}{outer}"
    else:
        body = manner.member(steps, value, "")
    return text[: start + 1] + body + text[end:]


def _blank_before(text: str, at: int) -> int:
    while at and text[at - 1] in " \t\r\n":
        at -= 1
    return at


def _indent_at(text: str, at: int) -> str:
    """What the line of ``at`` begins with."""
    line = text.rfind("\n", 0, at) + 1
    end = line
    while text[end] in " \t":
        end += 1
    return text[line:end]


@dataclass(frozen=True, slots=True)
class _Manner:
    """How a text is written."""

    newline: str
    """Empty for a text on one line."""
    unit: str
    """By which each level is indented."""
    gap: str
    """After a comma or colon."""
    usual: bool
    """Names are in their usual spelling, not in snake_case."""

    @classmethod
    def of(cls, text: str) -> _Manner:
        body = text.removeprefix(BOM).strip(" \t\r\n")
        lines = "\n" in body or body in ("{}", "{ }")
        first = re.search(r"\{[ \t]*\r?\n([ \t]+)", body)
        return cls(
            newline="" if not lines else "\r\n" if "\r\n" in text else "\n",
            unit=first[1] if first and len(first[1]) <= 8 else "  ",
            gap="" if re.search(r'":[^ \t\r\n]', body) and not re.search(r'":[ \t]', body) else " ",
            usual=not _SNAKE.search(text) or bool(_CAMEL.search(text)),
        )

    def member(self, steps: Sequence[Step], value: object, indent: str) -> str:
        name = steps[0][0 if self.usual else -1]
        return f"{_dumped(name, '')}:{self.gap}{self.rendered(steps[1:], value, indent)}"

    def rendered(self, steps: Sequence[Step], value: object, indent: str) -> str:
        """``value``, in as many new objects as there are ``steps``."""
        if not steps:
            return _dumped(value, self.gap)
        if not self.newline:
            return f"{{{self.member(steps, value, '')}}}"
        inner = indent + self.unit
        return f"{{{self.newline}{inner}{self.member(steps, value, inner)}{self.newline}{indent}}}"


def _dumped(value: object, gap: str) -> str:
    separators = ("," + gap, ":" + gap)
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which a file can only hold escaped
        text = json.dumps(value, separators=separators)
    return text
