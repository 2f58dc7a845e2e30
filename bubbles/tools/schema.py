"""What the model is told of a tool's arguments, and what it is told when it got them wrong (PROV-10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from bubbles.tools.contract import Args, ToolError

MAX_ARGUMENTS = 6_000_000
"""Characters of one call's arguments."""
MAX_FAULTS = 5
MAX_SHOWN = 120
"""Characters of a wrong value that are shown."""

KEYWORDS = ("type", "description", "properties", "required", "items", "enum")

A = TypeVar("A", bound=Args)
Schema = dict[str, Any]


def parameters(args: type[Args]) -> Schema:
    """JSON schema of the arguments, as small as it can be: definitions in their place, no titles, nulls or bounds.

    Vendors differ in what of JSON schema they take; none refuses this. What is out of bounds is told when it comes.
    """
    schema = args.model_json_schema()
    return _plain(schema, schema.get("$defs", {}))


def _plain(part: Schema, definitions: Mapping[str, Schema]) -> Schema:
    if "$ref" in part:
        return _plain({**definitions[part["$ref"].rpartition("/")[2]], **_without(part, "$ref")}, definitions)
    if "anyOf" in part:
        (kind,) = [kind for kind in part["anyOf"] if kind != {"type": "null"}]
        return _plain({**_without(part, "anyOf"), **kind}, definitions)
    kept = {name: value for name, value in part.items() if name in KEYWORDS}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    if "properties" in kept:
        kept["properties"] = {name: _plain(one, definitions) for name, one in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _plain(kept["items"], definitions)
    return kept


def _without(part: Schema, name: str) -> Schema:
    return {key: value for key, value in part.items() if key != name}


def read_arguments(args: type[A], arguments: str) -> A:
    """The arguments as the model wrote them. Raises ToolError, which says what is wrong and what is expected."""
    if len(arguments) > MAX_ARGUMENTS:
        raise ToolError(
            f"The arguments have {len(arguments):,} characters, and no call takes more than {MAX_ARGUMENTS:,}: "
            "do it in several steps."
        )
    try:
        return args.model_validate_json(arguments.strip() or "{}")
    except ValidationError as error:
        raise ToolError(f"The arguments are not right: {_faults(error)}. Expected: {signature(args)}.") from None
    except ValueError:  # half a character, which is no JSON text
        raise ToolError(f"The arguments are no valid JSON text. Expected: {signature(args)}.") from None


def _faults(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    told = []
    for fault in found[:MAX_FAULTS]:
        where = ".".join(str(step) for step in fault["loc"])
        said = fault["msg"]
        if fault["type"] == "json_invalid":
            told.append(f"they are no valid JSON object ({_short(said.removeprefix('Invalid JSON: '))})")
        elif fault["type"] == "missing":
            told.append(f"{where} is missing")
        elif fault["type"] == "extra_forbidden":
            told.append(f"{_short(where)} is no argument of it")
        else:
            told.append(f"{_short(where) or 'all of it'}: {_short(said)}, not {_shown(fault['input'])}")
    if len(found) > MAX_FAULTS:
        told.append(f"and {len(found) - MAX_FAULTS} more")
    return "; ".join(told)


def _shown(value: object) -> str:
    return _short(repr(value[: 2 * MAX_SHOWN] if isinstance(value, str) else value))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def signature(args: type[Args]) -> str:
    """Such as ``{"path": string, "lines"?: integer}``."""
    schema = parameters(args)
    required = schema.get("required", ())
    shown = [
        f'"{name}"{"" if name in required else "?"}: {_kind(part)}'
        for name, part in schema.get("properties", {}).items()
    ]
    return f"{{{', '.join(shown)}}}"


def _kind(part: Schema) -> str:
    if "enum" in part:
        return " | ".join(f'"{choice}"' for choice in part["enum"])
    if part.get("type") == "array":
        return f"[{_kind(part.get('items', {}))}, …]"
    if part.get("type") == "object" and "properties" in part:
        return "{" + ", ".join(f'"{name}": {_kind(one)}' for name, one in part["properties"].items()) + "}"
    return str(part.get("type", "any"))
