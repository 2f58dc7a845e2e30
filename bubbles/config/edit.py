"""Changes settings in a file of a person's: one setting is one change of its text, and all else stays as it was.

What is written nowhere stays at its default; nothing is ever filled in. References ``${VAR}`` stay references, since no
value that was read is ever written back (CFG-01).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from bubbles.config import files
from bubbles.config.care import shown_name
from bubbles.config.faults import MEND, explained
from bubbles.config.fields import Names, is_field, known, shape, spellings
from bubbles.config.jsontext import REMOVE, changed, parse
from bubbles.config.references import References
from bubbles.config.schema import FileSettings
from bubbles.config.values import PERSON_HOME
from bubbles.errors import ConfigError

__all__ = ["EMPTY", "REMOVE", "Change", "Checked", "change", "change_several", "check", "start_anew"]

EMPTY = "{}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    names: Names
    """The schema's own, such as ``("agents", "defaults", "model")``."""
    value: object
    """As JSON has it, or REMOVE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a file holds by itself: neither its references nor the ``BUBBLES_…`` variables are looked at."""

    settings: BaseModel
    warnings: tuple[str, ...]
    """Names without meaning, and the like. They are kept in the file."""


def change(path: Path, names: Names, value: object, *, model: type[BaseModel] = FileSettings) -> bool:
    """Set one setting in the file, or take it out (``REMOVE``); whether the file had to be changed.

    The file is made if it is missing, mode 0600. Raises ConfigError if the setting is unknown, its value is not valid
    or the file is damaged, and BubblesError if it cannot be written; the file is then as it was.
    """
    return change_several(path, (Change(names=names, value=value),), model=model)


def change_several(
    path: Path, changes: Sequence[Change], *, model: type[BaseModel] = FileSettings, fresh: str = EMPTY
) -> bool:
    """As ``change``, all at once or none. ``fresh`` is the text that a missing file begins with."""
    with files.writing(path) as real:
        found = files.read(real)
        before = None if found is None else found.text
        after = _edited(path, fresh if before is None else before, changes, model)
        if after == before:
            return False
        files.replace(real, after)
    return True


def start_anew(path: Path, changes: Sequence[Change], *, fresh: str = EMPTY, now: datetime) -> Path | None:
    """Put a fresh file in the place of whatever is there; the copy of the old one, if there was one.

    Raises as ``change`` does. The copy is on the disk before anything else is done.
    """
    after = _edited(path, fresh, changes, FileSettings)
    with files.writing(path) as real:
        copy = files.copy_aside(path, real, now) if real.exists() else None
        files.replace(real, after)
    return copy


def check(path: Path, *, model: type[BaseModel] = FileSettings) -> Checked:
    """What the file holds. Raises ConfigError if no setting could be changed in it."""
    found = files.read(path)
    warnings: list[str] = []
    settings = _validated(path, EMPTY if found is None else found.text, (), model, warnings)
    return Checked(settings=settings, warnings=tuple(warnings))


def _edited(path: Path, text: str, changes: Sequence[Change], model: type[BaseModel]) -> str:
    parse(text, str(path))
    for each in changes:
        if each.value is not REMOVE and not _may_be_set(model, each.names):
            name = ".".join(map(shown_name, each.names))
            raise ConfigError(f"{name} is not a setting of this version: nothing was changed.")
        text = changed(text, spellings(model, each.names), each.value)
    _validated(path, text, changes, model, [])
    if len(text.encode("utf-8")) > files.MAX_BYTES:
        raise ConfigError(f"{path} would be larger than {files.MAX_BYTES:,} bytes: nothing was changed.")
    return text


def _may_be_set(model: type[BaseModel], names: Names) -> bool:
    """A setting, or an entry of one that is a mapping, whose names are data."""
    return bool(names) and (is_field(model, names) or (len(names) > 1 and shape(model, names[:-1]) is Mapping))


def _validated(
    path: Path, text: str, changes: Sequence[Change], model: type[BaseModel], warnings: list[str]
) -> BaseModel:
    tree = known(model, parse(text, str(path)), str(path), warnings)
    tree = References(None).resolve(tree)
    given = {each.names for each in changes}

    def source(names: Names) -> str:
        return "The new value" if any(names[: len(each)] == each for each in given) else str(path)

    try:
        return model.model_validate(tree, context={PERSON_HOME: "/"})
    except ValidationError as error:
        fault = explained(error, model, source, mend="correct it; nothing was changed" if changes else MEND)
    raise fault
