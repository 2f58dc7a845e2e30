"""Removing a directory with all that is in it, while whoever filled it may still be at work there.

A session's process that is still alive can put a link in the place of a directory between any two steps. So nothing
here goes by a path: every directory is held open, entries are looked up in the one that is held, and links are removed,
never followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

MAX_OPEN = 64
"""Directories held open at once; what lies deeper is moved to the top first."""
MAX_MOVES = 100_000
"""A live process can make directories as fast as they are moved up: then some are left."""
PASSES = 3
"""How often a directory that is not empty yet is gone through again."""

_O_PATH = getattr(os, "O_PATH", 0)
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Level:
    fd: int
    name: str
    """In the level above."""
    names: list[str]
    """What is still to be removed in it."""


def remove_tree(path: Path) -> bool:
    """Remove the directory; whether nothing is left at ``path``. One that is a link or another file is left alone.

    Modes that forbid it are changed where they are one's own. What cannot be removed is left, as is what lies on
    another file system. Blocks.
    """
    try:
        parent = os.open(path.parent, _O_PATH | os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return not os.path.lexists(path)
    try:
        for _ in range(PASSES):
            try:
                top = _open_directory(parent, path.name, inside=False)
            except FileNotFoundError:
                return True
            except OSError:
                return False
            _Removal(parent, top, path.name).run()
        return not _exists(parent, path.name)
    finally:
        os.close(parent)


class _Removal:
    """One walk over one tree; it takes ``top`` over and closes it."""

    def __init__(self, parent: int, top: int, name: str) -> None:
        self._parent = parent
        self._device = os.fstat(top).st_dev
        self._walk = [_Level(top, name, _names(top))]
        self._moves = 0

    def run(self) -> None:
        try:
            while self._walk:
                level = self._walk[-1]
                if level.names:
                    self._take(level, level.names.pop())
                    continue
                self._walk.pop()
                os.close(level.fd)
                if self._walk:
                    above = self._walk[-1].fd
                    _try(partial(os.rmdir, level.name, dir_fd=above), above)
                else:
                    _try(partial(os.rmdir, level.name, dir_fd=self._parent))
        finally:
            for level in self._walk:
                os.close(level.fd)

    def _take(self, level: _Level, name: str) -> None:
        """Remove one entry, or go into it."""
        try:
            inner = _open_directory(level.fd, name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # a file or a link
                _try(partial(os.unlink, name, dir_fd=level.fd), level.fd)
            return
        if os.fstat(inner).st_dev != self._device:
            os.close(inner)
        elif len(self._walk) < MAX_OPEN:
            self._walk.append(_Level(inner, name, _names(inner)))
        else:
            self._move_up(level, name, inner)

    def _move_up(self, level: _Level, name: str, inner: int) -> None:
        top = self._walk[0]
        try:
            if self._moves >= MAX_MOVES:
                return
            self._moves += 1
            _try(partial(os.fchmod, inner, 0o700))  # else an ordinary user may not move it
        finally:
            os.close(inner)
        moved = f".{secrets.token_hex(8)}"
        if _try(partial(os.rename, name, moved, src_dir_fd=level.fd, dst_dir_fd=top.fd), level.fd, top.fd):
            top.names.append(moved)


def _open_directory(above: int, name: str, *, inside: bool = True) -> int:
    """A descriptor of this very entry, if it is a directory. ``inside``: ``above`` is to be removed too.

    Raises OSError.
    """
    try:
        return os.open(name, _OPEN, dir_fd=above)
    except PermissionError:
        pass
    _try(partial(_make_usable, above, name), *((above,) if inside else ()))
    return os.open(name, _OPEN, dir_fd=above)


def _make_usable(above: int, name: str) -> None:
    """Mode 0700 for the entry, if it is a directory. Raises OSError."""
    if not _O_PATH:
        if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    held = os.open(name, _O_PATH | _OPEN, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # fchmod(2) refuses such a descriptor; this is the same inode
    finally:
        os.close(held)


def _names(directory: int) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _try(step: Callable[[], object], *directories: int) -> bool:
    """Whether the step was done; if modes forbid it, after a change of those of ``directories``, held open."""
    try:
        step()
    except PermissionError:
        pass
    except OSError:
        return False
    else:
        return True
    try:
        for directory in directories:
            os.fchmod(directory, 0o700)
        step()
    except OSError:
        return False
    return True


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True
