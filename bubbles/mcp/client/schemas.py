"""Whether the schema that a server gives for a tool's arguments can be put before a model.

A vendor that is sent one schema it does not take refuses the whole request, with every other tool in it. So what is odd
costs its own tool. Nothing is looked up: a reference leads to a place in the schema itself, or nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_CHARACTERS = 20_000
MAX_DEPTH = 32

TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What every vendor takes for the name of an argument."""
OF_ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
OF_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
OF_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
BASES = ("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment")
"""Say nothing to a model, and some change what a reference means."""
NOT_AT_THE_TOP = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const")
"""Refused there by some vendors; the server checks its arguments itself."""

Schema = dict[str, Any]


class SchemaError(ValueError):
    """It cannot be used; the message says why in a few words."""


def usable(found: object) -> tuple[Schema, str]:
    """The schema of an object that ``found`` amounts to, and its JSON text. Raises ``SchemaError``."""
    if not isinstance(found, dict):
        raise SchemaError("its schema is no object")
    try:
        if len(json.dumps(found, ensure_ascii=False)) > 2 * MAX_CHARACTERS:
            raise SchemaError("its schema is too long")
        _refuse_references_out_of(found)
        top = _with_its_reference(found)
        schema = _cleaned(top, top, 0)
        kinds = schema.pop("type", "object")
        if kinds != "object" and "object" not in (kinds if isinstance(kinds, list) else ()):
            raise SchemaError("its schema is not that of an object")
        schema = {"type": "object", "properties": {}, **_without(schema, NOT_AT_THE_TOP)}
        if any(not PROPERTY.fullmatch(name) for name in schema["properties"]):
            raise SchemaError("an argument has a name that models are not given")
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:  # half a character, a number that is none, no end of depth
        raise SchemaError("its schema cannot be written as JSON") from error
    if len(text) > MAX_CHARACTERS:
        raise SchemaError("its schema is too long")
    return schema, text


def _refuse_references_out_of(found: Schema) -> None:
    """Wherever it stands: what no keyword of ours explains may be read by somebody else."""
    waiting: list[object] = [found]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            references = (part.get("$ref"), part.get("$dynamicRef"), part.get("$recursiveRef"))
            if any(isinstance(one, str) and not one.startswith("#") for one in references):
                raise SchemaError("its schema refers to what is not in it")
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _with_its_reference(found: Schema) -> Schema:
    """Some generators put the object itself among the definitions."""
    reference = found.get("$ref")
    if reference is None:
        return found
    inner = _resolved(found, reference)
    return {**inner, **_without(found, ("$ref",))} if isinstance(inner, dict) else found


def _cleaned(part: Schema, top: Schema, depth: int) -> Schema:
    """``part`` without what says nothing, every schema in it checked. Raises ``SchemaError``."""
    if depth > MAX_DEPTH:
        raise SchemaError("its schema is nested too deeply")
    _check(part, top)
    kept = _without(part, BASES)
    for name, holder, inner in _inside(part):
        cleaned = inner if isinstance(inner, bool) else _cleaned(_object(inner), top, depth + 1)
        if holder is None:
            kept[name] = cleaned
        else:
            if kept[name] is part[name]:
                kept[name] = part[name].copy()
            kept[name][holder] = cleaned
    return kept


def _inside(part: Schema) -> Iterator[tuple[str, Any, Any]]:
    """Each schema directly in ``part``: its keyword, its place below that if it has one, and what stands there."""
    for name in OF_ONE:
        if name in part:
            if isinstance(part[name], list) and name == "items":  # of older drafts
                yield from ((name, number, inner) for number, inner in enumerate(part[name]))
            else:
                yield name, None, part[name]
    for name in OF_MANY:
        if name in part:
            if not isinstance(part[name], list):
                raise SchemaError(f"{name} in its schema is no list")
            yield from ((name, number, inner) for number, inner in enumerate(part[name]))
    for name in OF_NAMED:
        if name in part:
            yield from ((name, key, inner) for key, inner in _object(part[name]).items())


def _check(part: Schema, top: Schema) -> None:
    for name in ("$ref", "$dynamicRef", "$recursiveRef"):
        if name in part and _resolved(top, part[name]) is None:
            raise SchemaError("its schema refers to what is not in it")
    kinds = part.get("type", "object")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in TYPES:
            raise SchemaError("its schema has a type that is none")
    required = part.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise SchemaError("required in its schema is no list of names")
    if not isinstance(part.get("enum", []), list):
        raise SchemaError("enum in its schema is no list")
    if not isinstance(part.get("description", ""), str):
        raise SchemaError("a description in its schema is no text")


def _resolved(top: Schema, reference: object) -> object:
    """What a reference within ``top`` leads to, or None. Source: RFC 6901."""
    if reference == "#":
        return top
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    here: object = top
    for step in reference[2:].split("/")[: MAX_DEPTH * 2]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(name)
        elif isinstance(here, list) and name.isdecimal() and int(name[:6]) < len(here):
            here = here[int(name[:6])]
        else:
            return None
    return here if isinstance(here, dict | bool) else None


def _object(value: object) -> Schema:
    if not isinstance(value, dict):
        raise SchemaError("a part of its schema is no object")
    return value


def _without(part: Mapping[str, Any], names: tuple[str, ...]) -> Schema:
    return {name: value for name, value in part.items() if name not in names}
