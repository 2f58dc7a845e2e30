"""Finds and reads the settings: defaults, then ``<data_dir>/config.json``, then ``BUBBLES_…`` variables.

This file alone reads the environment. A wrong value is a ``ConfigError``; a name that means nothing is a warning,
so that a file written for a newer version still works, or for an older one.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from bubbles.config import files
from bubbles.config.care import shown_name
from bubbles.config.faults import explained, prefixes
from bubbles.config.fields import Names, Tree, is_field, is_private, known, known_value, model_of, shape
from bubbles.config.jsontext import parse
from bubbles.config.keys import KeyringError
from bubbles.config.references import References
from bubbles.config.schema import FileSettings, Settings
from bubbles.config.values import PERSON_HOME, with_home
from bubbles.errors import ConfigError

PREFIX = "BUBBLES_"
STEP = "__"
FILE = "config.json"
WALLS: tuple[Names, ...] = (("tools", "sandbox"), ("tools", "approvals"))
"""Where a reference that cannot be resolved is an error: what holds commands must never be less than was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things are, by the environment alone. Paths are absolute."""

    data_dir: Path
    person_home: Path
    environment: Mapping[str, str]

    @property
    def config(self) -> Path:
        return self.data_dir / FILE


def find_places(environ: Mapping[str, str] | None = None) -> Places:
    """Raises ``ConfigError`` if there is no home directory."""
    env = MappingProxyType(dict(os.environ if environ is None else environ))
    person_home = _person_home(env)
    return Places(data_dir=_data_dir(env, person_home), person_home=person_home, environment=env)


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. Raises ``ConfigError``; a missing file is no error."""
    places = find_places(environ)
    env = places.environment
    path = str(places.config)
    warnings: list[str] = []
    references = References(env, partial(is_private, FileSettings))
    tree = references.resolve(_read(places.config, warnings))
    sources = _override(tree, env, warnings)
    unset = [*_missing(references.missing, sources, path), *_locked(references.locked, sources, path)]
    warnings += [said for names, said in unset if names[0] != "providers"]

    def source(names: Names) -> str:
        return next((sources[part] for part in prefixes(names) if part in sources), path)

    try:
        chosen = FileSettings.model_validate(tree, context={PERSON_HOME: str(places.person_home)})
    except ValidationError as error:
        fault = explained(error, FileSettings, source, hidden=references.used)
    else:
        sandbox = chosen.tools.sandbox
        if sandbox.network != "allowlist" and sandbox.allow:
            warnings.append('tools.sandbox.allow has no effect unless tools.sandbox.network is "allowlist".')
        return Settings(
            **{name: getattr(chosen, name) for name in FileSettings.model_fields},
            data_dir=places.data_dir,
            person_home=places.person_home,
            host_env=env,
            warnings=tuple(warnings),
            provider_warnings=tuple(said for names, said in unset if names[0] == "providers"),
        )
    raise fault  # out here: it must not carry the values along


def variable_of(names: Names) -> str:
    """The environment variable that overrides this setting."""
    return PREFIX + STEP.join(names).upper()


def _person_home(env: Mapping[str, str]) -> Path:
    named = env.get("HOME") or env.get("USERPROFILE")
    try:
        return Path(named) if named and os.path.isabs(named) else Path.home()
    except RuntimeError as error:
        raise ConfigError("There is no home directory: set HOME to an absolute path.") from error


def _data_dir(env: Mapping[str, str], person_home: Path) -> Path:
    named = env.get("BUBBLES_HOME")
    return Path(os.path.abspath(with_home(named, str(person_home)))) if named else person_home / ".bubbles"


def _read(path: Path, warnings: list[str]) -> Tree:
    """The file's settings under their own names; what is odd about it is a warning."""
    found = files.read(path)
    if found is None:
        return {}
    duplicates: list[str] = []
    tree = known(FileSettings, parse(found.text, str(path), duplicates), str(path), warnings)
    warnings += [f"{path}: {shown_name(name)} is written twice; the last one counts." for name in duplicates]
    if found.warning:
        warnings.append(f"{path} {found.warning}, and keys may be in it: run 'chmod 600 {shlex.quote(str(path))}'.")
    return tree


def _missing(missing: Mapping[Names, str], sources: Mapping[Names, str], path: str) -> Iterator[tuple[Names, str]]:
    for names, variable in missing.items():
        if any(part in sources for part in prefixes(names)):
            continue
        said = f"{path}: {'.'.join(map(shown_name, names))} needs the environment variable {shown_name(variable)}"
        if any(names[: len(wall)] == wall for wall in WALLS):
            raise ConfigError(f"{said}, which is not set: set it, or write the value itself.")
        yield names, f"{said}, which is not set, and counts as unset until it is."


def _locked(
    locked: Mapping[Names, KeyringError], sources: Mapping[Names, str], path: str
) -> Iterator[tuple[Names, str]]:
    for names, why in locked.items():
        if not any(part in sources for part in prefixes(names)):
            where = ".".join(map(shown_name, names))
            yield names, f"{path}: {where} counts as unset: {why}."


def _override(tree: Tree, env: Mapping[str, str], warnings: list[str]) -> dict[Names, str]:
    """Puts the variables into ``tree``; returns which variable each of those fields came from."""
    sources: dict[Names, str] = {}
    for variable in sorted(env):
        value = env[variable]
        if not variable.startswith(PREFIX) or STEP not in variable or not value:
            continue  # an empty variable is an unset one: compose files pass them on like that
        names = tuple(variable.removeprefix(PREFIX).lower().split(STEP))
        if not is_field(FileSettings, names):
            warnings.append(f"{shown_name(variable)} names no setting of this version and has no effect.")
            continue
        place = tree
        for name in names[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        place[names[-1]] = _parsed(variable, value, names, warnings)
        sources[names] = variable
    return sources


def _parsed(variable: str, value: str, names: Names, warnings: list[str]) -> object:
    """Text as it is, but a list may be JSON or separated by commas, and a mapping is JSON."""
    kind = shape(FileSettings, names)
    if kind is None:
        return value
    parsed = _items(variable, value, kind)
    return known_value(model_of(FileSettings, names), names[-1], parsed, variable, warnings, names)


def _items(variable: str, value: str, kind: type) -> object:
    if kind is tuple and not value.lstrip().startswith("["):
        return [piece.strip() for piece in value.split(",") if piece.strip()]
    what, like = ("list", 'a,b or ["a", "b"]') if kind is tuple else ("object", '{"name": …}')
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        why = error.msg
    except (ValueError, RecursionError):
        why = "it cannot be read"
    raise ConfigError(f"{variable} is not a valid JSON {what} ({why}): write {like}.")


def set_for_library(name: str, value: str) -> None:
    """Sets a variable of this process for a library that can be told in no other way, before it is imported.

    ``Settings.host_env``, and with it every sandbox, keeps what was there at the start.
    """
    os.environ[name] = value
