"""The kinds of value that most tools share."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.table import Kind, Site
from bubbles.controller.policy.shell.reading import Hole

_NUMBER = re.compile(r"[+-]?\d{1,12}(?:\.\d{1,6})?(?:%|[a-zA-Z]{0,3})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_@][\w.:@/+,~^=*-]*", re.ASCII)


def matching(pattern: str, what: str) -> Kind:
    """Whatever the whole of which fits a regular expression; ``what`` it should be, for the person."""
    fits = re.compile(pattern, re.ASCII).fullmatch

    def check(text: str, _site: Site) -> str | None:
        return None if fits(text) else f"{text} is not {what}"

    return Kind(check=check)


def one_of(choices: str, *more: str) -> Kind:
    """One of the words in ``choices``, or one of ``more``, which may hold spaces."""
    allowed = frozenset((*choices.split(), *more))

    def check(text: str, _site: Site) -> str | None:
        return None if text in allowed else f"{text} is not among the values that run without asking"

    return Kind(check=check)


def some_of(choices: str) -> Kind:
    """Words in ``choices``, separated by commas."""
    allowed = frozenset(choices.split())

    def check(text: str, _site: Site) -> str | None:
        return (
            None if allowed.issuperset(text.split(",")) else f"{text} is not among the values that run without asking"
        )

    return Kind(check=check)


def _number(text: str, _site: Site) -> str | None:
    return None if _NUMBER.fullmatch(text) else f"{text} is not a number"


def _count(text: str, _site: Site) -> str | None:
    return None if text in ("auto", "logical", "max") or _NUMBER.fullmatch(text) else f"{text} is not a number"


def _name(text: str, _site: Site) -> str | None:
    if text[:1] == "/" or ".." in text.split("/") or not _NAME.fullmatch(text):
        return f"{text} is not a plain name"
    return None


def _any(_text: str, _site: Site) -> None:
    return None


def without_lines(text: str) -> str:
    """``spec/x.rb:12:30`` and ``spec/x.rb[1:2]`` without the lines, or examples, at the end."""
    if text[-1:] == "]":
        path, bracket, examples = text[:-1].rpartition("[")
        return path if bracket and examples and not examples.strip("0123456789:,") else text
    parts = text.split(":")
    while len(parts) > 1 and parts[-1].isdecimal() and parts[-1].isascii():
        parts.pop()
    return ":".join(parts)


def _source(text: str, site: Site) -> str | None:
    if "." not in text.rsplit("/", 1)[-1].lstrip("."):
        return f"{text} is not the name of a source file"
    return files.own(text, site)


def _test(text: str, site: Site) -> str | None:
    """``path::Class::test[parameters]``, ``path:12``."""
    return files.code(text.split("::", 1)[0] if "::" in text else without_lines(text), site)


NUMBER = Kind(check=_number, dashed=True, loose=Hole.INTEGER)
"""A number, a unit after it allowed: ``4``, ``-5``, ``1.5s``, ``50%``."""
COUNT = Kind(check=_count, loose=Hole.INTEGER)
"""A number, or ``auto``."""
NAME = Kind(check=_name)
"""A name without meaning as a path above or outside."""
WORD = Kind(check=_any, free=True)
"""Any text: it is no path to the tool."""
TEXT = Kind(check=_any, dashed=True, free=True)
"""Any text, a leading dash included."""
PAIR = Kind(check=_any, dashed=True, words=2)
"""Two words of any text."""
SAID = Kind(check=_any, loose=Hole.INTEGER)
"""Any text that is only shown; ``$?`` in it may be what it is."""
WHEN = one_of("auto always never yes no y n true false on off")
LOOK = Kind(check=files.look, globs=True)
READ = Kind(check=files.read, globs=True)
OWN = Kind(check=files.own, globs=True)
CODE = Kind(check=files.code, globs=True)
"""A path to what is run."""
FOLDER = Kind(check=files.folder)
SOURCE = Kind(check=_source, globs=True)
TESTS = Kind(check=_test, globs=True)
REPORT = Kind(check=files.report)
ARTIFACT = Kind(check=files.artifact)
SETTINGS = Kind(check=files.settings)
MOVE = Kind(check=files.own, moves=True)
"""A directory to change to."""
COVERAGE_FOLDER = Kind(check=files.coverage_folder)
CACHE_FOLDER = Kind(check=files.cache_folder)
PLAIN_NAME = matching(r"[A-Za-z0-9][\w.-]*", "a plain name")
