"""A session's own settings, ``<data_dir>/session_state/<key>/config.json``: what differs from the defaults (SESS-03).

``${VAR}`` means nothing here: see ``references``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import ValidationError

from bubbles.config import files
from bubbles.config.care import shown, shown_name
from bubbles.config.edit import REMOVE, change
from bubbles.config.faults import explained
from bubbles.config.fields import known, spellings
from bubbles.config.jsontext import parse
from bubbles.config.schema import SessionSettings
from bubbles.errors import ConfigError

DEFAULT = "default"
"""As a value it removes the setting, so that the general one counts."""
ONE_LINE = frozenset({"model", "provider", "sandbox"})

NO_CHOICES: Mapping[str, Collection[str]] = {}


def load_session_settings(path: Path) -> tuple[SessionSettings, tuple[str, ...]]:
    """What the file holds, and sentences about what in it has no effect. A missing file is none of both.

    Raises ConfigError. Whether a provider or a sandbox of that name exists is for those to say who open it.
    """
    found = files.read(path)
    if found is None:
        return SessionSettings(), ()
    warnings: list[str] = []
    duplicates: list[str] = []
    tree = known(SessionSettings, parse(found.text, str(path), duplicates), str(path), warnings)
    warnings += [f"{path}: {shown_name(name)} is written twice; the last one counts." for name in duplicates]
    try:
        return SessionSettings.model_validate(tree), tuple(warnings)
    except ValidationError as error:
        fault = explained(error, SessionSettings, lambda _: str(path))
    raise fault


def change_session_setting(
    path: Path, key: str, text: str, known: Mapping[str, Collection[str]] = NO_CHOICES
) -> SessionSettings:
    """What ``/config KEY TEXT`` does; the session's settings after it. An empty text or ``default`` removes.

    ``known`` gives the names there are for settings that name something, such as ``{"sandbox": backend_names()}``.
    Raises ConfigError for an unknown key or name and for a damaged file, and BubblesError if the file cannot be
    written; the file is then as it was. May block: it writes to the disk.
    """
    name = named(key)
    text = text.strip()
    if not text or text == DEFAULT:
        if path.exists():
            change(path, (name,), REMOVE, model=SessionSettings)
        return load_session_settings(path)[0]
    if name in ONE_LINE and not text.isprintable():
        raise ConfigError(f"{name} cannot be {shown(text)}: write it on one line, without control characters.")
    choices = known.get(name)
    if choices is not None and text not in choices:
        raise ConfigError(f"{name} {shown(text)} is not known: take one of {', '.join(choices)}.")
    change(path, (name,), text, model=SessionSettings)
    return load_session_settings(path)[0]


def named(key: str) -> str:
    """The setting that ``key`` means, in either spelling. Raises ConfigError."""
    for name in SessionSettings.model_fields:
        if key in spellings(SessionSettings, (name,))[0]:
            return name
    names = ", ".join(SessionSettings.model_fields)
    raise ConfigError(f"{shown_name(key)} is no setting of a session: take one of {names}.")
