"""What a crash at the wrong moment leaves in ``run/`` that no record names, and runners of versions that are gone.

Nothing says whose such a thing is. So it goes only when it is old, and older than every controller that lives: whoever
would still need it has touched it since it started.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox_backends.owner import owner_alive, read_record, staged_name
from sandbox_backends.trees import remove_tree

OLD_S = 3600.0
LOCKS = "owners"


def sweep_litter(data_dir: Path) -> None:
    """Remove what nobody can need any more: see above. Blocks."""
    run = data_dir / "run"
    before = min((time.time() - OLD_S, *_starts(data_dir)))
    kept = (LOCKS, staged_name())
    for path in _listed(run):
        if path.name not in kept and _last_touched(path) < before and read_record(path) is None:
            remove_tree(path)
    for path in _listed(run / LOCKS):
        # Half-made: a lock or an id that has not got its name yet.
        if (path.suffix == ".new" or path.name.startswith("id.")) and _last_touched(path) < before:
            path.unlink(missing_ok=True)


def _starts(data_dir: Path) -> Iterator[float]:
    """When each controller that lives began."""
    for path in (data_dir / "run" / LOCKS).glob("*.lock"):
        if owner_alive(data_dir, path.stem):
            yield _last_touched(path)


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _last_touched(path: Path) -> float:
    """Seconds since the epoch; now for what is no plain file or directory, or just went."""
    try:
        info = path.lstat()
    except OSError:
        return time.time()
    return info.st_mtime if stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode) else time.time()
