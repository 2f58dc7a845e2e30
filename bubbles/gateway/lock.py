"""One gateway for a data directory, whichever process it is (OPS-02).

The lock is the kernel's (flock(2)): it goes when the process ends, however that is, and no process that the gateway
starts has it. What stands in the file is for people; nobody is believed to run because of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bubbles.errors import BubblesError
from bubbles.gateway.listening import EVERYWHERE, authority, bare

FILE = Path("gateway", "lock")
UNKNOWN = -1
"""A process number that could not be read: a gateway runs all the same."""
_MAX_TEXT = 1_000
_TRIES = 20
_PAUSE_S = 0.01
"""A fifth of a second in all: who looks has the lock for a moment, and a gateway writes its name once it has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The gateway that runs, as it says itself."""

    pid: int = UNKNOWN
    """In its own process namespace, which may be a container's."""
    host: str = ""
    port: int = 0
    """Where it tells how it is; 0: nowhere."""
    started: str = ""
    """RFC 3339."""

    @property
    def near(self) -> tuple[str, int]:
        """Where a program of this machine finds it, if it listens."""
        return EVERYWHERE.get(bare(self.host), bare(self.host)), self.port


@contextmanager
def gateway_lock(data_dir: Path, host: str = "", port: int = 0) -> Iterator[None]:
    """This process is the gateway of ``data_dir`` while the context lasts, and tells how it is on ``host:port``.

    Raises BubblesError at once if another one is, and names it. Blocks on the disk.
    """
    path = data_dir / FILE
    try:
        fd = _taken(path)
    except OSError as error:
        raise BubblesError(
            f"The gateway's lock {path} cannot be taken ({error.strerror or error}): mend that."
        ) from error
    if fd is None:
        raise BubblesError(f"A gateway runs for {data_dir} already ({_named(held(data_dir))}): stop that one first.")
    try:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        _write(fd, json.dumps({"pid": os.getpid(), "host": host, "port": port, "started": started}) + "\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        os.close(fd)


def held(data_dir: Path) -> Holder | None:
    """The gateway that runs for ``data_dir``; None if none does. Changes nothing, and blocks on the disk only."""
    try:
        fd = os.open(data_dir / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # not there, or no file: nobody can have locked it
        return None
    try:
        for _ in range(_TRIES):
            if _locks(fd, fcntl.LOCK_SH):
                return None
            if (holder := _read(fd)) is not None:
                return holder
            time.sleep(_PAUSE_S)
        return Holder()
    finally:
        os.close(fd)


def running(data_dir: Path) -> int | None:
    """The process number of the gateway that runs for ``data_dir``, or ``UNKNOWN``; None if none does."""
    holder = held(data_dir)
    return None if holder is None else holder.pid


def where(data_dir: Path) -> tuple[str, int] | None:
    """Host and port at which a program of this machine can ask the gateway that runs how it is; None if it cannot."""
    holder = held(data_dir)
    return holder.near if holder is not None and holder.port else None


def _taken(path: Path) -> int | None:
    """The locked file; None if a gateway has it."""
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the mode counts for the last one only
    path.parent.mkdir(mode=0o700, exist_ok=True)
    for _ in range(_TRIES):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        mine = False
        try:
            if _locks(fd, fcntl.LOCK_EX):
                mine = _is_at(path, fd)
            elif not _locks(fd, fcntl.LOCK_SH):
                return None
        finally:
            if not mine:
                os.close(fd)
        if mine:
            return fd
        time.sleep(_PAUSE_S)  # somebody looks whether a gateway runs, or has put another file there, just now
    return None


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _locks(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(fd: int, text: str) -> None:
    """A full disk hinders no gateway from running: its name is missing then."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)


def _read(fd: int) -> Holder | None:
    """None while there is nothing, or something else, in the file."""
    try:
        found = json.loads(os.pread(fd, _MAX_TEXT, 0))
        return Holder(
            pid=int(found["pid"]), host=str(found["host"]), port=int(found["port"]), started=str(found["started"])
        )
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _named(holder: Holder | None) -> str:
    if holder is None or holder.pid == UNKNOWN:
        return "another process"
    at = f", on {authority(holder.host, holder.port)}" if holder.port else ""
    return f"process {holder.pid}{at}, since {holder.started}"
