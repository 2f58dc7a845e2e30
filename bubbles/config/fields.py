"""What the schema knows of a name: how it may be written, what lies below it, whether it holds a secret."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from bubbles.config.care import shown_name

Tree = dict[str, Any]
Names = tuple[str, ...]
"""The schema's own names from the top down; below a mapping they are what the person wrote."""
Model = type[BaseModel]


def section(model: Model, name: str) -> Model | None:
    """The model of a field that is itself a section of settings."""
    kind = model.model_fields[name].annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def entries(model: Model, name: str) -> Model | None:
    """The model of the entries of a field that maps names of the person's own to sections, such as MCP servers."""
    kind = model.model_fields[name].annotation
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(args) == 2:
        held = args[1]
        return held if isinstance(held, type) and issubclass(held, BaseModel) else None
    return None


def is_field(model: Model, names: Names) -> bool:
    """Whether these names lead to one setting, not to a section and not to something inside a setting."""
    first, *rest = names
    if first not in model.model_fields:
        return False
    below = section(model, first)
    if below is None and len(rest) > 1 and (below := entries(model, first)) is not None:
        del rest[0]
    return not rest if below is None else bool(rest) and is_field(below, tuple(rest))


def model_of(model: Model, names: Names) -> Model:
    """The section that the setting of these names is a field of; they must be those of one (``is_field``)."""
    inside: Model | None = None
    for name in names[:-1]:
        if inside is not None:
            model, inside = inside, None
            continue
        inside = entries(model, name)
        model = section(model, name) or model
    return model


def shape(model: Model, names: Names) -> type | None:
    """``tuple`` or ``Mapping`` for a setting that holds several values, else None, also if there is no such setting."""
    if not names or not is_field(model, names):
        return None
    origin = typing.get_origin(model_of(model, names).model_fields[names[-1]].annotation)
    return tuple if origin is tuple else Mapping if isinstance(origin, type) and issubclass(origin, Mapping) else None


def spellings(model: Model, names: Names) -> tuple[Names, ...]:
    """For each of ``names`` all that a file may call it, the usual one first. Unknown ones are only themselves."""
    found: list[Names] = []
    here: Model | None = model
    inside: Model | None = None
    for name in names:
        if inside is not None:  # this name is the person's own
            found.append((name,))
            here, inside = inside, None
            continue
        field = here.model_fields.get(name) if here else None
        found.append((name,) if field is None else tuple(dict.fromkeys((str(field.alias), name))))
        inside = entries(here, name) if here and field else None
        here = section(here, name) if here and field else None
    return tuple(found)


def known(model: Model, tree: Tree, source: str, warnings: list[str], above: Names = ()) -> Tree:
    """``tree`` under the schema's own names; what the schema does not know becomes a warning."""
    written_as = {str(field.alias): name for name, field in model.model_fields.items()}
    written_as |= {name: name for name in model.model_fields}
    found: Tree = {}
    for written, value in tree.items():
        name = written_as.get(written)
        if name is None:
            warnings.append(f"{source}: {_unknown((*above, written), written_as)}")
            continue
        if name in found:
            warnings.append(f"{source}: {'.'.join((*above, name))} is written twice; the last one counts.")
        found[name] = known_value(model, name, value, source, warnings, (*above, name))
    return found


def known_value(model: Model, name: str, value: object, source: str, warnings: list[str], above: Names) -> object:
    """The value of the field ``name`` with all in it under the schema's own names."""
    if not isinstance(value, dict):
        return value
    if (below := section(model, name)) is not None:
        return known(below, value, source, warnings, above)
    if (each := entries(model, name)) is not None:
        return {
            own: known(each, held, source, warnings, (*above, own)) if isinstance(held, dict) else held
            for own, held in value.items()
        }
    return value


def _unknown(names: Names, written_as: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(names[-1][:80], written_as, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"{'.'.join(map(shown_name, names))} is not a setting of this version and has no effect{meant}"


def is_private(model: Model, names: Names) -> bool:
    """Whether what stands under these names is a secret, lies in one, or may hold one: it is never shown (SEC-03)."""
    kind: object = model
    for name in names:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(name)
            if field is None:
                break  # such as the place of an item: what is above it decides
            kind = field.annotation
        elif len(args := typing.get_args(kind)) == 2 and _maps_to_sections(args[1]):
            kind = args[1]
    return _holds_secret(kind)


def _maps_to_sections(held: object) -> bool:
    return isinstance(held, type) and issubclass(held, BaseModel)


def _holds_secret(kind: object) -> bool:
    if isinstance(kind, type) and issubclass(kind, SecretStr):
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return any(_holds_secret(inner) for inner in typing.get_args(kind))
