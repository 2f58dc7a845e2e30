"""What a recorded call says: a draft of a rule, or why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bubbles.controller.policy.contract import Effect
from bubbles.controller.policy.rules.interpreter import Call
from bubbles.controller.policy.rules.model import Pattern

_PREFIX_RULE = ("pattern", "decision", "match", "not_match", "justification")
_HOST_EXECUTABLE = ("name", "paths")
_PLAIN_KINDS = {"NoneType": "None", "int": "a number", "bool": "True or False", "tuple": "a tuple", "dict": "a table"}

Example = tuple[str, ...]


class CallError(Exception):
    """Says what is wrong, in a clause."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A rule whose examples have not been tried yet."""

    pattern: Pattern
    effect: Effect
    line: int
    justification: str = field(default="", init=False)
    match: list[Example] = field(default_factory=list, init=False)
    not_match: list[Example] = field(default_factory=list, init=False)
    fault: str = field(default="", init=False)
    """What is wrong with a part that does not matter to what it matches."""


def draft_rule(call: Call) -> Draft:
    """Raises ``CallError``. What else is wrong with a rule that can be told is in ``Draft.fault``."""
    given = _bound(call, _PREFIX_RULE)
    if "pattern" not in given:
        raise CallError("it has no pattern")
    draft = Draft(
        pattern=_pattern(*given["pattern"]),
        effect=_effect(*given.get("decision", ("allow", "string"))),
        line=call.line,
    )
    try:
        if "justification" in given:
            draft.justification = _justification(*given["justification"])
        for name, examples in (("match", draft.match), ("not_match", draft.not_match)):
            if name in given:
                examples.extend(_examples(name, *given[name]))
    except CallError as error:
        draft.fault = str(error)
    return draft


def host_executable(call: Call) -> tuple[str, frozenset[str]]:
    """The program and the paths where it may be found. Raises ``CallError``."""
    given = _bound(call, _HOST_EXECUTABLE)
    if set(given) != set(_HOST_EXECUTABLE):
        raise CallError("host_executable needs a name and paths")
    name, paths = given["name"][0], given["paths"][0]
    if not isinstance(name, str) or not name or "/" in name:
        raise CallError("the name in host_executable must be that of a program, without a directory")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise CallError("the paths in host_executable must be a list of texts")
    for path in paths:
        if not path.startswith("/") or path.rpartition("/")[2] != name:
            raise CallError(f"the path {path!r} in host_executable must be absolute and end in /{name}")
    return name, frozenset(paths)


def _bound(call: Call, names: tuple[str, ...]) -> Mapping[str, tuple[object, object]]:
    """Each argument by its name, with its kind."""
    if len(call.positional) > len(names):
        raise CallError(f"it has more than {len(names)} arguments")
    pairs = [*zip(names, call.positional, strict=False), *call.named]
    given: dict[str, tuple[object, object]] = {}
    for (name, value), kind in zip(pairs, call.kinds, strict=True):
        if name not in names:
            raise CallError(f"it has no argument named {name}: there are {', '.join(names)}")
        if name in given:
            raise CallError(f"{name} is given twice")
        given[name] = (value, kind)
    return given


def _elements(name: str, value: object, kinds: object) -> list[tuple[object, str]]:
    if not isinstance(value, list) or not isinstance(kinds, list):
        raise CallError(f"{name} must be a list, written in brackets, not {_said(kinds)}")
    return list(zip(value, kinds, strict=True))


def _pattern(value: object, kinds: object) -> Pattern:
    tokens = []
    for element, kind in _elements("pattern", value, kinds):
        if isinstance(element, str):
            tokens.append((element,))
        elif kind == "list" and isinstance(element, list):
            if not element:
                raise CallError("a list of alternatives in its pattern is empty")
            if not all(isinstance(each, str) for each in element):
                raise CallError("alternatives in its pattern must be texts")
            tokens.append(tuple(element))
        else:
            raise CallError(f"its pattern holds {_said(kind)}, where a text or a list of texts belongs")
    if not tokens:
        raise CallError("its pattern is empty")
    if any("\0" in text for alternatives in tokens for text in alternatives):
        raise CallError("its pattern holds a NUL character, which no command can have")
    return tuple(tokens)


def _effect(value: object, kind: object) -> Effect:
    if not isinstance(value, str):
        raise CallError(f"its decision is {_said(kind)}, but must be allow, prompt or forbidden")
    try:
        return Effect(value)
    except ValueError:
        raise CallError(f"its decision is {value!r}, but must be allow, prompt or forbidden") from None


def _justification(value: object, kind: object) -> str:
    if not isinstance(value, str):
        raise CallError(f"its justification is {_said(kind)}, but must be a text")
    if not value.strip():
        raise CallError("its justification is empty")
    return value


def _examples(name: str, value: object, kinds: object) -> list[Example]:
    examples = []
    for element, kind in _elements(name, value, kinds):
        if isinstance(element, str):
            example = shell_words(element)
        elif kind == "list" and isinstance(element, list) and all(isinstance(each, str) for each in element):
            example = tuple(element)
        else:
            raise CallError(f"{name} holds {_said(kind)}, where a text or a list of texts belongs")
        if not example:
            raise CallError(f"an example in {name} is empty")
        examples.append(example)
    return examples


def _said(kind: object) -> str:
    return _PLAIN_KINDS.get(kind, f"a {kind}") if isinstance(kind, str) else "a list"


def shell_words(text: str) -> Example:
    """The words of an example, by a POSIX shell's quoting. No judge of commands. Raises ``CallError``."""
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char in " \t\r\n":
            if word is not None:
                words.append("".join(word))
            word = None
        elif char == "#" and word is None:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            word = [] if word is None else word
            piece, at = _piece(text, char, at)
            word.append(piece)
    if word is not None:
        words.append("".join(word))
    return tuple(words)


def _piece(text: str, char: str, at: int) -> tuple[str, int]:
    """What a character, a backslash or a quotation mark before ``at`` begins, and where it ends."""
    if char == "\\":
        if at == len(text):
            raise CallError(f"the example {text!r} ends in a backslash")
        return ("" if text[at] == "\n" else text[at]), at + 1
    if char not in "'\"":
        return char, at
    made: list[str] = []
    while at < len(text) and text[at] != char:
        if char == '"' and text[at] == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
            made.append(text[at + 1].strip("\n"))
            at += 2
        else:
            made.append(text[at])
            at += 1
    if at == len(text):
        raise CallError(f"a quotation mark in the example {text!r} is not closed")
    return "".join(made), at + 1
