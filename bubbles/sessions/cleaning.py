"""Scratch files that nobody has touched for three days are removed from every session's data/ (SESS-04).

Nothing else ever is: of what lies in data/, files by the time of their last change, links themselves (never what they
lead to), and directories that became empty by that. Sandboxes may be at work there and put links in the place of
directories between any two steps, so every directory is held open and entries are removed from the one that is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bubbles.sessions import beneath
from bubbles.sessions.contract import SessionError
from bubbles.sessions.key import is_key

KEPT = timedelta(days=3)
MAX_ENTRIES = 100_000
"""Looked at in one session in one run; the next run comes to the others."""
MAX_DEPTH = 64
"""Directories held open at a time. What lies deeper stays."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    files: int = 0
    bytes: int = 0
    directories: int = 0
    warnings: tuple[str, ...] = ()


async def clean_sessions(data_dir: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Cleaned:
    """One run over all sessions, whether or not they are at work. Never raises for what is in them."""
    return await asyncio.to_thread(_clean_sessions, data_dir, (now() - KEPT).timestamp())


def _clean_sessions(data_dir: Path, before_s: float) -> Cleaned:
    files = size = directories = 0
    warnings: list[str] = []
    for desk in _desks(data_dir / "sessions"):
        run = _Run(before_s)
        try:
            with beneath.directory(desk, "data") as fd:
                run.clean(fd, os.fstat(fd).st_dev)
        except FileNotFoundError:
            continue
        except (SessionError, OSError) as error:
            warnings.append(f"The data/ of session {desk.name} was not cleaned: {error}")
            _log.warning("%s", warnings[-1])
        files, size, directories = files + run.files, size + run.bytes, directories + run.directories
    return Cleaned(files=files, bytes=size, directories=directories, warnings=tuple(warnings))


def _desks(sessions: Path) -> list[Path]:
    try:
        return sorted(path for path in sessions.iterdir() if is_key(path.name))
    except FileNotFoundError:
        return []


class _Run:
    """One session."""

    def __init__(self, before_s: float) -> None:
        self._before_s = before_s
        self._left = MAX_ENTRIES
        self.files = self.bytes = self.directories = 0

    def clean(self, fd: int, device: int, depth: int = 1) -> bool:
        """Whether something was removed. A directory of another file system is left alone."""
        removed = False
        found = list(beneath.entries(fd, self._left))
        self._left -= len(found)
        for entry in found:
            if stat.S_ISDIR(entry.kind):
                removed |= depth < MAX_DEPTH and self._left > 0 and self._descend(fd, entry.name, device, depth)
            elif entry.modified_s < self._before_s:
                removed |= self._remove(fd, entry)
        return removed

    def _descend(self, above: int, name: str, device: int, depth: int) -> bool:
        try:
            fd = beneath.open_directory(above, name)
        except OSError:
            return False  # gone, a link meanwhile, or closed to us
        try:
            if os.fstat(fd).st_dev != device or not self.clean(fd, device, depth + 1):
                return False
            # Only an empty directory can be removed so, and if its name is another's by now, that one is empty too.
            os.rmdir(name, dir_fd=above)
        except OSError:
            return False
        finally:
            os.close(fd)
        self.directories += 1
        return True

    def _remove(self, fd: int, entry: beneath.Found) -> bool:
        with contextlib.suppress(OSError):  # gone, a directory meanwhile, or not ours to remove
            os.unlink(entry.name, dir_fd=fd)
            self.files += 1
            self.bytes += entry.size_bytes if stat.S_ISREG(entry.kind) else 0
            return True
        return False
