"""Regular expressions of the gate mean the same on every Python that it runs on."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

import bubbles.controller

SINGLE = ("IN", "LITERAL", "NOT_LITERAL", "ANY")


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(bubbles.controller.__path__, "bubbles.controller."):
        yield found.name


def patterns(value: object) -> Iterator[re.Pattern[str]]:
    owner = getattr(value, "__self__", value)  # many are kept as bound methods
    if isinstance(owner, re.Pattern):
        yield owner
    elif isinstance(owner, tuple | list):
        for one in owner:
            yield from patterns(one)


def repeated(tree: Any) -> Iterator[Any]:
    """The bodies of possessive repeats and atomic groups, wherever they stand."""
    for code, argument in tree:
        name = str(code)
        if name == "POSSESSIVE_REPEAT":
            yield argument[2]
        elif name == "ATOMIC_GROUP":
            yield argument
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, sre.SubPattern):
                    yield from repeated(inner)


def test_nothing_but_single_characters_is_repeated_possessively() -> None:
    """CPython before 3.11.5 mismatches a possessive repeat of what can backtrack (gh-106052). Debian 12 has 3.11.2."""
    seen = set()
    wrong = []
    for name in modules():
        for attribute in vars(importlib.import_module(name)).values():
            for pattern in patterns(attribute):
                seen.add(pattern.pattern)
                bodies = repeated(sre.parse(pattern.pattern, pattern.flags))
                wrong += [(name, pattern.pattern) for body in bodies if len(body) != 1 or str(body[0][0]) not in SINGLE]
    assert len(seen) > 40
    assert not wrong
