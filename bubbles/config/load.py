"""Finds and reads the settings: defaults, then ``<data_dir>/config.json``, then ``BUBBLES_…`` variables.

This file alone reads the environment. A wrong value is a ``ConfigError``; a name that means nothing is a warning,
so that a file written for a newer version still works.
"""

from __future__ import annotations

import difflib
import json
import os
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from bubbles.config.schema import PERSON_HOME, FileSettings, Settings, with_home
from bubbles.errors import ConfigError

PREFIX = "BUBBLES_"
STEP = "__"

Tree = dict[str, Any]
Names = tuple[str, ...]


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. Raises ``ConfigError``; a missing file is no error."""
    env = MappingProxyType(dict(os.environ if environ is None else environ))
    person_home = _person_home(env)
    data_dir = _data_dir(env, person_home)
    path = data_dir / "config.json"
    warnings: list[str] = []
    tree = _known(FileSettings, _read(path), (), str(path), warnings)
    sources = _override(tree, env, warnings)
    try:
        chosen = FileSettings.model_validate(tree, context={PERSON_HOME: str(person_home)})
    except ValidationError as error:
        raise _explained(error, str(path), sources) from error
    sandbox = chosen.tools.sandbox
    if sandbox.network != "allowlist" and sandbox.allow:
        warnings.append('tools.sandbox.allow has no effect unless tools.sandbox.network is "allowlist".')
    return Settings(
        **{name: getattr(chosen, name) for name in FileSettings.model_fields},
        data_dir=data_dir,
        person_home=person_home,
        host_env=env,
        warnings=tuple(warnings),
    )


def _person_home(env: Mapping[str, str]) -> Path:
    named = env.get("HOME") or env.get("USERPROFILE")
    try:
        return Path(named) if named and os.path.isabs(named) else Path.home()
    except RuntimeError as error:
        raise ConfigError("There is no home directory: set HOME to an absolute path.") from error


def _data_dir(env: Mapping[str, str], person_home: Path) -> Path:
    named = env.get("BUBBLES_HOME")
    return Path(os.path.abspath(with_home(named, str(person_home)))) if named else person_home / ".bubbles"


def _read(path: Path) -> Tree:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): give its owner read permission.") from error
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path} is not valid JSON at {where} ({error.msg}): correct it there.") from error
    except ValueError as error:
        raise ConfigError(f"{path} holds a number that is too long ({error}): correct it.") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be settings: correct it.") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold one JSON object, not {_shown(tree)}: begin it with {{.")
    return tree


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a field that is itself a section of settings."""
    kind = model.model_fields[name].annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _known(model: type[BaseModel], tree: Tree, above: Names, source: str, warnings: list[str]) -> Tree:
    """``tree`` under the schema's own names; what the schema does not know becomes a warning."""
    spellings = {str(field.alias): name for name, field in model.model_fields.items()}
    spellings |= {name: name for name in model.model_fields}
    known: Tree = {}
    for written, value in tree.items():
        name = spellings.get(written)
        if name is None:
            warnings.append(f"{source}: {_unknown('.'.join((*above, written)), written, spellings)}")
            continue
        if name in known:
            warnings.append(f"{source}: {'.'.join((*above, name))} is written twice; the last one counts.")
        section = _section(model, name)
        inner = section is not None and isinstance(value, dict)
        known[name] = _known(section, value, (*above, name), source, warnings) if section and inner else value
    return known


def _unknown(field: str, written: str, spellings: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(written, spellings, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"{field} is not a setting of this version and has no effect{meant}"


def _override(tree: Tree, env: Mapping[str, str], warnings: list[str]) -> dict[Names, str]:
    """Puts the variables into ``tree``; returns which variable each of those fields came from."""
    sources: dict[Names, str] = {}
    for variable in sorted(env):
        value = env[variable]
        if not variable.startswith(PREFIX) or STEP not in variable or not value:
            continue  # an empty variable is an unset one: compose files pass them on like that
        names = tuple(variable.removeprefix(PREFIX).lower().split(STEP))
        if not _is_field(FileSettings, names):
            warnings.append(f"{variable} names no setting of this version and has no effect.")
            continue
        place = tree
        for name in names[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        place[names[-1]] = _parsed(variable, value, names)
        sources[names] = variable
    return sources


def _is_field(model: type[BaseModel], names: Names) -> bool:
    first, *rest = names
    if first not in model.model_fields:
        return False
    section = _section(model, first)
    return not rest if section is None else bool(rest) and _is_field(section, tuple(rest))


def _parsed(variable: str, value: str, names: Names) -> object:
    """Text as it is, but a list may be JSON or separated by commas."""
    model: type[BaseModel] = FileSettings
    for name in names[:-1]:
        model = _section(model, name) or model
    if typing.get_origin(model.model_fields[names[-1]].annotation) is not tuple:
        return value
    if not value.lstrip().startswith("["):
        return [piece.strip() for piece in value.split(",") if piece.strip()]
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ConfigError(f'{variable} is not a valid JSON list ({error.msg}): write a,b or ["a", "b"].') from error


def _explained(error: ValidationError, path: str, sources: Mapping[Names, str]) -> ConfigError:
    faults = error.errors(include_url=False)
    first = faults[0]
    names = tuple(str(step) for step in first["loc"])
    source = next((sources[part] for part in _prefixes(names) if part in sources), path)
    said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if first["type"] == "model_type":
        said = "it should be a JSON object, {…}"  # pydantic names its class there
    more = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
    return ConfigError(
        f"{source}: {'.'.join(names)} is {_shown(first['input'])}, but {said}{more}: "
        "correct it, or remove it to have the default."
    )


def _prefixes(names: Names) -> Iterator[Names]:
    return (names[:end] for end in range(len(names), 0, -1))


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
