"""Files of settings on the disk: read with bounds, and replaced whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bubbles.errors import BubblesError, ConfigError

MAX_BYTES = 1 << 20
"""Of a file of settings."""
_ASIDE = ".{}.new"
"""Where the next content of a file is written first. Whoever holds the directory's lock may remove what lies there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a file of settings holds."""

    text: str
    mode: int
    """Permission bits."""

    @property
    def warning(self) -> str | None:
        """If others than its owner could read its keys."""
        return None if not self.mode & 0o077 else f"can be read or changed by others (mode {self.mode:04o})"


def read(path: Path) -> Written | None:
    """The file's text, with a byte order mark if it has one; None if there is no file. Raises ``ConfigError``.

    Nothing but a regular file is opened for long: a FIFO would never end.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a device or pipe"
            raise ConfigError(f"{path} cannot be read: it is {kind}; put a regular file there, or remove it.")
        content = b""
        while len(content) <= MAX_BYTES and (piece := os.read(fd, MAX_BYTES + 1)):
            content += piece
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes, which no settings are: make it smaller.")
    try:
        return Written(text=content.decode("utf-8"), mode=stat.S_IMODE(found.st_mode))
    except UnicodeDecodeError as error:
        fault = ConfigError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.")
    raise fault  # out here, so that what was read hangs on no exception


def content(path: Path, max_bytes: int) -> bytes:
    """All of a file that only this program writes. No link is followed, and nothing waited for.

    Raises OSError, and ValueError for what is larger, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        os.close(fd)  # open() would not, for a directory
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise ValueError("it is no regular file")
    with open(fd, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it is larger than {max_bytes:,} bytes")
    return data


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be read ({error.strerror}): give its owner read permission.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Alone at writing ``path``, for as long as the context lasts; the file that is really meant, links followed.

    Its directory is made if need be, for its owner only. Raises BubblesError when it cannot be written.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        with contextlib.suppress(OSError):  # network file systems cannot lock a directory: two writers are rare there
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield real
        with contextlib.suppress(OSError):  # some file systems cannot, and it is written all the same
            os.fsync(fd)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        os.close(fd)


def replace(real: Path, text: str) -> None:
    """The file's new content, readable by its owner only: the whole of it, or the old one stays. Within ``writing``.

    Raises OSError. After a crash what was half written lies beside it until the next call.
    """
    aside = half_written(real)
    aside.unlink(missing_ok=True)
    try:
        with open(_created(aside), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                _keep_owner(file.fileno(), real.stat())
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(real)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def half_written(real: Path) -> Path:
    """Where a crash may have left the next content of ``real``, secrets and all."""
    return real.with_name(_ASIDE.format(real.name))


def _created(path: Path) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)  # the umask may have taken more than others' rights
    return fd


def _keep_owner(fd: int, before: os.stat_result) -> None:
    """Root may change another's file, and must leave it theirs."""
    if os.geteuid() == 0 and (before.st_uid, before.st_gid) != (0, 0):
        os.fchown(fd, before.st_uid, before.st_gid)


def copy_aside(path: Path, real: Path, now: datetime) -> Path:
    """A copy of ``real``, byte for byte and on the disk, beside ``path``; its path. Within ``writing``.

    It is called ``<name>.backup-YYYYMMDD-HHMMSS`` by ``now``, and no other copy is overwritten. Raises OSError.
    """
    name = f"{path.name}.backup-{now:%Y%m%d-%H%M%S}"
    source = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(source)
        if not stat.S_ISREG(before.st_mode):
            raise BubblesError(f"{path} is not a regular file, and no copy can be made of it: move it away yourself.")
        for number in range(1, 1_000):
            copy = path.with_name(name if number == 1 else f"{name}-{number}")
            try:
                fd = _created(copy)
            except FileExistsError:
                continue
            with open(fd, "wb") as new, open(source, "rb", closefd=False) as old:
                _keep_owner(fd, before)
                shutil.copyfileobj(old, new)
                new.flush()
                os.fsync(fd)
            _sync_directory(copy.parent)
            return copy
    finally:
        os.close(source)
    raise OSError(0, f"there are too many copies called {name}")


def make_private(path: Path) -> bool:
    """Take others' rights away from the file; whether there were any. Raises BubblesError."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)
    except OSError as error:
        raise unwritable(path, error) from error
    return bool(mode & 0o077)


def unwritable(path: Path, error: OSError) -> BubblesError:
    return BubblesError(
        f"{path} cannot be written ({error.strerror or error}): make its directory writable, or name another one in "
        "BUBBLES_HOME; nothing was changed."
    )


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
