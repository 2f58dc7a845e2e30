"""Control groups that nobody claims any more. A group's name does not say whose it is, so its controller locks it.

The lock (flock(2)) is held by whoever made the group, in whatever data directory, until that process has ended.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from sandbox_backends.hierarchies import TOP, Hierarchies


def claim_group(directories: tuple[Path, ...]) -> int | None:
    """A descriptor with a lock on the group, which is one on the first of its directories; ``None``: held, or gone."""
    for directory in sorted(set(directories)):
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd
    return None


def sweep_groups(hierarchies: Hierarchies, older_than_s: float = 60.0) -> None:
    """Remove groups without processes that no living controller has claimed; their data directory may be gone, too.

    One with processes the kernel keeps. ``older_than_s``: for the moment between its making and its claim.
    """
    names: dict[str, float] = {}
    for top in {mount / TOP for mount in hierarchies.controllers.values()}:
        try:
            with os.scandir(top) as entries:
                for entry in entries:
                    if entry.is_dir():
                        names[entry.name] = max(names.get(entry.name, 0.0), entry.stat().st_mtime)
        except OSError:
            continue
    for name, made_s in names.items():
        if time.time() - made_s > older_than_s:
            _sweep(tuple(mount / TOP / name for mount in hierarchies.controllers.values()))


def _sweep(directories: tuple[Path, ...]) -> None:
    claim = claim_group(directories)
    if claim is None:
        return
    try:
        for directory in directories:
            try:
                directory.rmdir()
            except OSError:
                continue
    finally:
        os.close(claim)
