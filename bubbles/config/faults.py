"""Sentences about wrong settings: where, which field, which value (never a secret's, SEC-03), and the mend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from pydantic import ValidationError

from bubbles.config.care import kind_of, shown, shown_name
from bubbles.config.fields import Model, Names, is_private
from bubbles.errors import ConfigError

MEND = "correct it, or remove it to have the default"
_PATTERNS = {
    "^http": "it should be an address that begins with http:// or https://",
    "^[!#$": "it should be the name of a header, of letters, digits and '-'",
}
"""In words for people, by how the expression begins."""


def explained(
    error: ValidationError,
    model: Model,
    source: Callable[[Names], str],
    *,
    hidden: Collection[Names] = (),
    mend: str = MEND,
) -> ConfigError:
    """What ``error`` says of settings of ``model``, as one sentence.

    ``source`` tells where a field's value came from; values at ``hidden`` are not shown, nor what they lie in.
    """
    faults = error.errors(include_url=False)
    first = faults[0]
    names = tuple(str(step) for step in first["loc"] if step != "[key]")
    said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if first["type"] == "model_type":
        said = "it should be a JSON object, {…}"  # pydantic names its class there
    if first["type"] == "string_pattern_mismatch":
        said = _PATTERNS.get(first["ctx"]["pattern"][:5], said)
    more = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
    private = is_private(model, names) or any(_overlap(names, each) for each in hidden)
    value = f"{kind_of(first['input'])} (not shown)" if private else shown(first["input"])
    field = ".".join(map(shown_name, names))
    return ConfigError(f"{source(names)}: {field} is {value}, but {said}{more}: {mend}.")


def prefixes(names: Names) -> Iterator[Names]:
    """``names`` and all that they lie in, innermost first."""
    return (names[:end] for end in range(len(names), 0, -1))


def _overlap(one: Names, other: Names) -> bool:
    return all(a == b for a, b in zip(one, other, strict=False))
