"""What a doctor that was killed could not take away again: removed by the next one, once it is surely nobody's.

All of it is told by its name, which nothing else has, and by its age: a doctor takes minutes.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox_backends.contract import BackendSettings
from sandbox_backends.trees import remove_tree

OLD_S = 3600.0
FILE_PREFIX = ".bubbles-canary-"
HOMES, HOME_PREFIX = Path("/home"), "bubbles-canary-"
TMP = Path("/tmp")
SESSION_PREFIX = "bubbles-doctor-"
SESSION_DIRS = ("sessions", "session_homes")
_SESSION = re.compile(rf"{SESSION_PREFIX}[0-9a-f]{{8}}(-other)?")
NOBODY = 65534


def sweep(settings: BackendSettings) -> None:
    """Remove what doctors of this person left an hour ago or earlier. Blocks. What cannot be removed is left."""
    before = time.time() - OLD_S
    for path in _left(settings):
        try:
            info = path.lstat()
            # In /tmp anybody may make such a name: only what is ours goes.
            if info.st_mtime > before or info.st_uid not in (os.geteuid(), *_others(path)):
                continue
            if stat.S_ISDIR(info.st_mode):
                remove_tree(path)
            elif stat.S_ISREG(info.st_mode):
                path.unlink()
        except OSError:
            continue


def _others(path: Path) -> tuple[int, ...]:
    """Whose it may be, too: root gives away the home that it plants, and a session's directories to its user."""
    if os.geteuid() != 0 or path.parent == TMP:
        return ()
    return (NOBODY,) if path.parent == HOMES else (path.lstat().st_uid,)


def _left(settings: BackendSettings) -> Iterator[Path]:
    for directory, prefix in ((settings.person_home, FILE_PREFIX), (TMP, FILE_PREFIX), (HOMES, HOME_PREFIX)):
        yield from (path for path in _listed(directory) if path.name.startswith(prefix))
    for name in SESSION_DIRS:
        yield from (path for path in _listed(settings.data_dir / name) if _SESSION.fullmatch(path.name))


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []
