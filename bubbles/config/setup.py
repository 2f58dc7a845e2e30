"""Sets up the data directory: its folders and ``config.json``. Sessions are never touched (CLI-01)."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bubbles.config.edit import Change, change_several, start_anew
from bubbles.config.files import make_private
from bubbles.config.load import Places
from bubbles.errors import BubblesError

FRESH = '{\n  "agents": {\n    "defaults": {}\n  },\n  "providers": {}\n}\n'
"""A new file: where things go, and no default written down."""
FOLDERS = ("sessions", "session_state", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What was done."""

    action: str
    """To ``config.json``: ``created``, ``changed``, ``reset`` or ``unchanged``."""
    changes: tuple[Change, ...] = ()
    """What was asked for and is in the file now."""
    made: tuple[Path, ...] = ()
    """Folders that were not there."""
    closed: bool = False
    """Others could read ``config.json``, and no longer can."""
    backup: Path | None = None
    """The copy of the old file, after ``reset``."""
    warnings: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return self.action == "unchanged" and not self.made and not self.closed


def set_up(places: Places, changes: Sequence[Change], *, reset: bool, now: datetime) -> SetUp:
    """Make what is missing and set what ``changes`` names, or begin a fresh file after a copy of the old one.

    Raises ConfigError and BubblesError as ``edit.change`` does, and BubblesError if a folder cannot be made.
    """
    config = places.config
    there = config.exists()
    made = _make_folders(places.data_dir)
    warnings = _open_to_others(places.data_dir)
    closed = False
    backup = None
    if reset and there:
        action, backup = "reset", start_anew(config, changes, fresh=FRESH, now=now)
    elif change_several(config, changes, fresh=FRESH):
        action = "changed" if there else "created"
    else:
        action = "unchanged"
        try:
            closed = make_private(config)
        except BubblesError:
            pass  # such as a file that is root's: loading it warns of its mode
    return SetUp(
        action=action, changes=tuple(changes), made=made, closed=closed, backup=backup, warnings=tuple(warnings)
    )


def _make_folders(data_dir: Path) -> tuple[Path, ...]:
    made = []
    for path in (data_dir, *(data_dir / name for name in FOLDERS)):
        try:
            there = path.is_dir()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BubblesError(
                f"{path} cannot be made ({error.strerror}): make that place writable, or name another directory in "
                "BUBBLES_HOME."
            ) from error
        if not there:
            made.append(path)
    return tuple(made)


def _open_to_others(path: Path) -> list[str]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return []
    return [f"{path} can be entered by others (mode {mode:04o}): run 'chmod 700 {shlex.quote(str(path))}'."]
