"""Evaluates Starlark that has been weighed (``bounds``), and records the calls that it makes.

The interpreter is the family that Codex uses. It is given no files, no clock and no output: only the functions of the
rule language. It does not tell a call-back where it was called from, and hands tuples over as lists; a prelude in
Starlark itself adds both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import starlark

_PRELUDE = """
def _kinds(value):
    return [type(each) for each in value] if type(value) == "list" else type(value)

def _noted(name, args, kwargs):
    stack = call_stack()
    kinds = [_kinds(each) for each in list(args) + list(kwargs.values())]
    _note(name, stack, args, list(kwargs.items()), kinds)

def prefix_rule(*args, **kwargs):
    _noted("prefix_rule", args, kwargs)

def host_executable(*args, **kwargs):
    _noted("host_executable", args, kwargs)

def network_rule(*args, **kwargs):
    _noted("network_rule", args, kwargs)
"""
_PRELUDE_NAME = "prelude"
_FRAME = re.compile(r"^  \* (\d+):(\d+), in ", re.MULTILINE)
_SPAN = re.compile(r"^ *--> (\d+):(\d+):\d+$", re.MULTILINE)
_SAID = re.compile(r"^error: (.*)$", re.MULTILINE)
_MAX_TICKS = 20_000
"""Times that the interpreter may ask whether to go on, every few hundred steps: a second fence behind ``bounds``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function of the rule language."""

    function: str
    line: int
    """1-based, where the call stands."""
    statement_line: int
    """Where the top-level statement begins that led to it, or goes on."""
    positional: tuple[object, ...]
    named: tuple[tuple[str, object], ...]
    kinds: tuple[object, ...]
    """Of each argument, positional ones first: the name of its type, or for a list those of its elements."""


class EvaluationError(Exception):
    """What the interpreter does not accept. ``line`` is 0 if it does not say."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


def check_syntax(text: str) -> None:
    """Raises ``EvaluationError``."""
    _parse(text, 1)


class Evaluation:
    """One module: names that a text defines are known to the texts evaluated after it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._globals = starlark.Globals.extended_by([starlark.LibraryExtension.CallStack])
        self._module = starlark.Module()
        self._module.add_callable("_note", self._note)
        prelude = starlark.parse(_PRELUDE_NAME, _PRELUDE, _dialect())
        starlark.eval(self._module, prelude, self._globals)

    def run(self, text: str, line: int = 1) -> None:
        """``line`` is the one that ``text`` begins on. Raises ``EvaluationError``; the calls until then stay."""
        ticks = iter(range(_MAX_TICKS))
        options = starlark.EvalOptions(check_cancelled=lambda: next(ticks, None) is None, max_callstack_size=60)
        tree = _parse(text, line)
        try:
            starlark.eval_with(options, self._module, tree, self._globals)
        except starlark.StarlarkError as error:
            raise _explained(error) from None

    def _note(
        self,
        function: str,
        stack: str,
        positional: Sequence[object],
        named: Sequence[tuple[str, object]],
        kinds: Sequence[object],
    ) -> None:
        frames = [int(base) + int(line) - 1 for base, line in _FRAME.findall(stack)]
        self.calls.append(
            Call(
                function=function,
                line=frames[-1] if frames else 0,
                statement_line=frames[0] if frames else 0,
                positional=tuple(positional),
                named=tuple((name, value) for name, value in named),
                kinds=tuple(kinds),
            )
        )


def _parse(text: str, line: int) -> starlark.AstModule:
    """The name of a text is the line that it begins on: what the interpreter says of places is counted from there."""
    try:
        return starlark.parse(str(line), text, _dialect())
    except starlark.StarlarkError as error:
        raise _explained(error) from None
    except UnicodeEncodeError:
        raise EvaluationError("it holds characters that are not UTF-8", 0) from None


def _dialect() -> starlark.Dialect:
    """The forms that Codex accepts: the extended ones, and f-strings."""
    dialect = starlark.Dialect.extended()
    dialect.enable_f_strings = True
    return dialect


def _explained(error: starlark.StarlarkError) -> EvaluationError:
    text = str(error)
    place = _FRAME.search(text) or _SPAN.search(text)
    said = _SAID.search(text)
    sentence = said.group(1) if said else text.partition("\n")[0]
    sentence = (
        sentence.removeprefix("StarlarkError: ")
        .removeprefix("Parse error: ")
        .partition(", expected one of")[0]
        .partition(" (no call to")[0]
    )
    if "serde::serialize" in sentence:
        sentence = "an argument is neither text nor a list of texts"
    return EvaluationError(sentence, int(place.group(1)) + int(place.group(2)) - 1 if place else 0)
