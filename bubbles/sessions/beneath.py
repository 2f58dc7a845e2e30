"""Files of a desk, opened beneath the desk and nowhere else (SESS-09).

A sandbox may have put anything there, and may go on changing it while we look: links, FIFOs, devices, huge files. So
every step of a path is opened from the directory before it and never follows a link (B127, B129); only regular files
are read, and never one that has a second name, which may lie outside (B128). Nothing here waits for another program.
All of it blocks on the disk: call it in a thread.

What is made belongs to the owner of the directory that it is made in: where the controller is root, the sandbox is not.

SessionError
└── RefusedError    what is there is not what it must be; names the file and says why
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bubbles.sessions.contract import SessionError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20
_NO_PLACE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO, errno.ENODEV, errno.EISDIR})
"""Systems differ in which of the first three a link gives; ENXIO is a socket, ENODEV a device."""
_TRIES = 3
"""How often a name is tried again that a sandbox changes at the same time."""


class RefusedError(SessionError):
    """A link, a FIFO, a device, a file with a second name, or one that is too large stands where a file should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One name in a directory. Nothing was followed to find this out."""

    name: str
    kind: int
    """As ``stat.S_IFMT`` gives it."""
    size_bytes: int
    modified_s: float


@contextmanager
def directory(root: Path, name: str = ".") -> Iterator[int]:
    """A descriptor of the directory ``name`` beneath ``root``, which must not be a link itself; what is above it may.

    Raises FileNotFoundError, RefusedError or OSError.
    """
    with _refusing(root / name):
        fd = os.open(root, _DIRECTORY)
    try:
        for part in _parts(name):
            with _refusing(root / name):
                deeper = open_directory(fd, part)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


def open_directory(above: int, name: str) -> int:
    """A descriptor of the directory of this one name in an open one. Raises OSError for a link too."""
    return os.open(name, _DIRECTORY, dir_fd=above)


def read_bytes(root: Path, name: str, max_bytes: int) -> bytes | None:
    """The whole file, or None if there is none. RefusedError for what is no ordinary file, or is larger."""
    try:
        with directory(root, _folder(name)) as fd, _opened(fd, root / name) as file:
            size = _ordinary(file, root / name).st_size
            if size > max_bytes:
                raise RefusedError(f"{root / name} is not read: it has {size} bytes, and {max_bytes} are the most.")
            data = _read(file, max_bytes + 1)
    except FileNotFoundError:
        return None
    if len(data) > max_bytes:
        raise RefusedError(f"{root / name} is not read: it grows past {max_bytes} bytes.")
    return data


def read_text(root: Path, name: str, max_bytes: int) -> str | None:
    """As ``read_bytes``. What is no UTF-8 becomes U+FFFD."""
    data = read_bytes(root, name, max_bytes)
    return None if data is None else data.decode("utf-8-sig", "replace")


def write_bytes(
    root: Path, name: str, data: bytes, *, mode: int = 0o644, replace: bool = True, durable: bool = False
) -> bool:
    """A whole new file of this content, or the old one; never through a link. Its directory must be there.

    ``replace=False`` leaves what is there, whatever it is, and returns False. ``durable``: no power cut undoes it.
    """
    with directory(root, _folder(name)) as fd:
        try:
            return _written(fd, root / name, data, mode, replace=replace, durable=durable)
        finally:
            if durable:
                os.fsync(fd)


def _written(fd: int, path: Path, data: bytes, mode: int, *, replace: bool, durable: bool) -> bool:
    last = path.name
    if not replace and (placed := _nameless(fd, last, data, mode, durable=durable)) is not None:
        return placed
    aside = f".{last[:100]}.{secrets.token_hex(8)}"
    file = os.open(aside, _FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=fd)
    try:
        _fill(fd, file, data, durable=durable)
        return _placed(fd, aside, last, path, replace=replace)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=fd)


def remove_half_written(root: Path, name: str) -> None:
    """What a crash in ``write_bytes`` left beside the file, if there is any."""
    folder, last = _folder(name), re.escape(_parts(name)[-1][:100])
    for found in list_directory(root, folder) or ():
        if re.fullmatch(rf"\.{last}\.[0-9a-f]{{16}}", found.name) and stat.S_ISREG(found.kind):
            remove(root, f"{folder}/{found.name}")


def make_directory(root: Path, name: str, mode: int = 0o755) -> bool:
    """False if something of this name is there already."""
    with directory(root, _folder(name)) as fd:
        last = _parts(name)[-1]
        try:
            os.mkdir(last, mode, dir_fd=fd)
        except FileExistsError:
            return False
        with _refusing(root / name):
            made = open_directory(fd, last)
        try:
            _given_away(fd, made)
        finally:
            os.close(made)
        return True


def remove(root: Path, name: str) -> None:
    """A file, or a link itself. Nothing happens if it is not there. RefusedError for a directory."""
    try:
        with directory(root, _folder(name)) as fd:
            os.unlink(_parts(name)[-1], dir_fd=fd)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError) as error:
        raise RefusedError(f"{root / name} is not removed ({error.strerror}).") from error


def entries(fd: int, most: int) -> Iterator[Found]:
    """What is in an open directory, in no order, at most so many of them."""
    with os.scandir(fd) as names:
        for entry, _ in zip(names, range(most), strict=False):
            try:
                found = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            yield Found(
                name=entry.name,
                kind=stat.S_IFMT(found.st_mode),
                size_bytes=found.st_size,
                modified_s=found.st_mtime,
            )


def list_directory(root: Path, name: str = ".", *, most: int = 10_000) -> list[Found] | None:
    """By name; None if there is no such directory."""
    try:
        with directory(root, name) as fd:
            return sorted(entries(fd, most), key=lambda found: found.name)
    except FileNotFoundError:
        return None


def put_link(root: Path, name: str, target: Path) -> str | None:
    """Make ``name`` a link to ``target``, whatever is there now; the new name of what was there, if anything was.

    What is there is renamed, never read, followed or removed. A sandbox that puts something there at the same time
    wins in the end: RefusedError.
    """
    with directory(root, _folder(name)) as fd:
        last = _parts(name)[-1]
        aside: str | None = None
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                os.symlink(target, last, dir_fd=fd)
                return aside
            if _link_at(fd, last) == os.fspath(target):  # looked at last: another program may just have made it
                return aside
            with contextlib.suppress(FileNotFoundError):
                free = f"{last}.replaced-{secrets.token_hex(4)}"
                os.rename(last, free, src_dir_fd=fd, dst_dir_fd=fd)
                aside = free
    raise RefusedError(f"{root / name} cannot be made a link: something puts another file there again and again.")


def _link_at(fd: int, name: str) -> str | None:
    """Where the link leads; None if there is nothing, or no link."""
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINVAL):
            return None
        raise


@contextmanager
def _opened(fd: int, path: Path) -> Iterator[int]:
    """For reading. Looked at before, as merely opening a device can do something, and after, as it may be swapped."""
    if not stat.S_ISREG(os.stat(path.name, dir_fd=fd, follow_symlinks=False).st_mode):
        raise RefusedError(f"{path} is not used: it is a link, or no regular file.")
    with _refusing(path):
        file = os.open(path.name, _FILE | os.O_RDONLY, dir_fd=fd)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What a link, or something that is no directory, says to being opened."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_PLACE:
            raise RefusedError(f"{path} is not used: a link or a special file is in its place.") from error
        raise


def _given_away(directory_fd: int, made: int) -> None:
    above = os.fstat(directory_fd)
    if os.geteuid() == 0 and os.fstat(made).st_uid != above.st_uid:
        with contextlib.suppress(PermissionError):  # a root without that capability
            os.fchown(made, above.st_uid, above.st_gid)


def _ordinary(file: int, path: Path) -> os.stat_result:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise RefusedError(f"{path} is not used: it is not a regular file.")
    if found.st_nlink > 1:
        raise RefusedError(f"{path} is not used: the file has a second name, which may lie outside.")
    return found


def _read(file: int, most: int) -> bytes:
    pieces: list[bytes] = []
    left = most
    while left and (piece := os.read(file, min(left, _CHUNK))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _fill(directory_fd: int, file: int, data: bytes, *, close: bool = True, durable: bool = False) -> None:
    with open(file, "wb", closefd=close) as stream:
        _given_away(directory_fd, file)
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(file)


def _nameless(fd: int, last: str, data: bytes, mode: int, *, durable: bool) -> bool | None:
    """As ``_placed`` without ``replace``, but a program that is killed meanwhile leaves nothing behind: the file gets
    its only name once it is whole. None where the system or the file system cannot do that.
    """
    try:
        file = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=fd)
    except (AttributeError, OSError):
        return None
    try:
        _fill(fd, file, data, close=False, durable=durable)
        os.link(f"/proc/self/fd/{file}", last, dst_dir_fd=fd)
    except FileExistsError:
        return False
    except OSError:
        return None
    finally:
        os.close(file)
    return True


def _placed(fd: int, aside: str, last: str, path: Path, *, replace: bool) -> bool:
    if replace:
        with _refusing(path):
            os.replace(aside, last, src_dir_fd=fd, dst_dir_fd=fd)
        return True
    try:
        os.link(aside, last, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:  # some file systems know no second names
        try:
            os.stat(last, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(aside, last, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            return False
    return True


def _parts(name: str) -> list[str]:
    """ValueError for what could leave the directory: that is ours to rule out, not the sandbox's."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} is not beneath")
    return parts


def _folder(name: str) -> str:
    *folder, last = _parts(name) or [""]
    if not last:
        raise ValueError(f"{name!r} names no file")
    return "/".join(folder) or "."
