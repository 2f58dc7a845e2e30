"""``cron/jobs.json``: read with bounds, changed under a lock, replaced whole or not at all (CRON-04, B074, B075).

The gateway, commands and tools change it at the same time. Each takes the lock, reads, changes and writes; what it read
before it had the lock is worth nothing. Whoever only reads needs no lock. All of it blocks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, TypeVar

from bubbles.config import files
from bubbles.controller.approvals.card import shown_line
from bubbles.cron import entries
from bubbles.cron.contract import Job, JobError, JobsFileError
from bubbles.sessions.lines import sync_directory

T = TypeVar("T")
Stamp = tuple[int, ...]
"""What is different of a file that was written; of no file it is empty."""

VERSION = 1
FOLDER = "cron"
FILE = "jobs.json"
LOCK = "jobs.lock"
MAX_WRITTEN = 1_000_000
"""Bytes after a change by somebody. What the gateway notes of runs may go on beyond that, up to ``MAX_BYTES``."""
MAX_BYTES = 2 << 20
MAX_PROBLEMS = 50
"""Entries that make no sense of which each is told."""
WAIT_S = 10.0
"""For the lock. Nobody holds it for longer than a write takes, but who was stopped in the middle."""
_RETRY_S = 0.004
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""File systems of a network that know no locks: two writers are rare there."""


@dataclass(slots=True)
class _Entry:
    raw: Any
    job: Job | None
    problem: str = ""


@dataclass(slots=True)
class Sheet:
    """What the file holds, to be read and changed."""

    path: Path
    top: dict[str, Any] = field(default_factory=dict)
    entries: list[_Entry] = field(default_factory=list)
    changed: bool = field(default=False, init=False)
    _places: dict[str, _Entry] = field(default_factory=dict, init=False)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(entry.job for entry in self.entries if entry.job is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        found = [entry.problem for entry in self.entries if entry.problem]
        if (more := len(found) - MAX_PROBLEMS) > 0:  # each goes into the log, and to whoever asks how it is
            return (*found[:MAX_PROBLEMS], f"{self.path}: {more:,} more entries are passed over.")
        return tuple(found)

    def find(self, ident: str) -> Job | None:
        entry = self._by_id().get(ident)
        return None if entry is None else entry.job

    @property
    def idents(self) -> frozenset[str]:
        """Of entries that make no sense too."""
        return frozenset(str(entry.raw["id"]) for entry in self.entries if _has_id(entry.raw))

    def put(self, job: Job) -> None:
        """In place of the one with its id, or at the end."""
        entry = self._by_id().get(job.id)
        if entry is None:
            entry = _Entry(entries.written(job), job)
            self.entries.append(entry)
            self._places[job.id] = entry
        elif entry.job == job:
            return
        else:
            entry.raw, entry.job = entries.written(job, entry.raw), job
        self.changed = True

    def remove(self, ident: str) -> None:
        kept = [entry for entry in self.entries if entry.job is None or entry.job.id != ident]
        self.changed = self.changed or len(kept) != len(self.entries)
        self.entries = kept
        self._places.pop(ident, None)

    def _by_id(self) -> dict[str, _Entry]:
        """Made once: somebody may change all of a thousand jobs."""
        if not self._places:
            self._places = {entry.job.id: entry for entry in self.entries if entry.job is not None}
        return self._places

    def text(self) -> str:
        whole = {"version": VERSION, **self.top, "jobs": [entry.raw for entry in self.entries]}
        text = json.dumps(whole, ensure_ascii=False, indent=2)
        try:
            text.encode()
        except UnicodeEncodeError:  # of what somebody else wrote into it, as an escape
            text = json.dumps(whole, indent=2)
        return f"{text}\n"


class JobsFile:
    """Of a data directory. Its folder is made when it is first written."""

    def __init__(self, data_dir: Path, wait_s: float = WAIT_S) -> None:
        self.path = data_dir / FOLDER / FILE
        self._lock = data_dir / FOLDER / LOCK
        self._wait_s = wait_s

    def stamp(self) -> Stamp:
        """Raises ``JobsFileError``."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise self._unreadable(f"({error.strerror})", "make it readable for its owner") from error
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def read(self) -> Sheet:
        """Raises ``JobsFileError`` for what is no such file, or not to be understood as a whole. A file that is not
        there holds nothing; an empty one is damaged.
        """
        try:
            kind = os.lstat(self.path).st_mode
            if not stat.S_ISREG(kind):
                what = "link, and none is followed" if stat.S_ISLNK(kind) else "directory, device or pipe"
                raise self._unreadable(f": it is a {what}", "put the file itself there")
            data = files.content(self.path, MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return Sheet(self.path)
        except ValueError as error:
            raise self._unreadable(f": {error}", "make it smaller") from None
        except OSError as error:
            raise self._unreadable(f"({error.strerror})", "make it readable for its owner") from error
        return self._understood(data)

    def change(self, work: Callable[[Sheet], T], *, most: int = MAX_BYTES) -> tuple[T, Stamp]:
        """Run ``work`` on what is in the file now, while nobody else changes it, and write what it made of it, which is
        then on the disk. With it comes the stamp of the file as it was left.

        Raises what ``work`` raises, and ``JobsFileError``: nothing is changed then. ``most``: bytes that it may have.
        """
        with self._locked():
            sheet = self.read()
            result = work(sheet)
            if sheet.changed:
                self._write(sheet.text(), most)
            return result, self.stamp()

    def _write(self, text: str, most: int) -> None:
        if len(text.encode()) > most:
            raise JobError(
                f"The jobs would need more than {most:,} bytes in {self.path}: remove some, or shorten their messages."
            )
        try:
            files.replace(self.path, text)
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock belongs to the descriptor, so that threads of one process keep each other out too."""
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = self._taken(time.monotonic() + self._wait_s)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            os.close(fd)

    def _taken(self, end: float) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        while True:
            fd = os.open(self._lock, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(fd)
                    raise JobsFileError(
                        f"{self.path} cannot be changed: another process has held {self._lock.name} for "
                        f"{self._wait_s:g} s; end it, or try again."
                    ) from None
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return fd
                os.close(fd)
                raise
            os.close(fd)
            time.sleep(_RETRY_S * (0.5 + random.random()))  # waiting in the kernel would know no end

    def _understood(self, data: bytes) -> Sheet:
        try:
            found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once_each, parse_constant=_refuse)
        except UnicodeDecodeError as error:
            raise self._unreadable(f": it is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
        except json.JSONDecodeError as error:
            where = f", line {error.lineno}, column {error.colno}: {error.msg}"
            raise self._unreadable(where, "mend it there") from None
        except (ValueError, RecursionError) as error:
            what = str(error) if isinstance(error, _FaultError) else "it is no JSON that can be read"
            raise self._unreadable(f": {what}", "mend it there") from None
        if not isinstance(found, dict) or not isinstance(found.get("jobs", []), list):
            raise self._unreadable(': it is not of the form {"version": 1, "jobs": [...]}', "give it that form")
        version = found.get("version", VERSION)
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self._unreadable(f": its version is {shown_line(repr(version)[:40])}", f"write {VERSION} there")
        if version > VERSION:
            raise self._unreadable(
                f": a newer Bubbles wrote it (version {version}, {VERSION} is known)",
                "use that Bubbles, or update this",
            )
        sheet = Sheet(self.path, {name: value for name, value in found.items() if name != "jobs"})
        taken: set[str] = set()
        for number, raw in enumerate(found.get("jobs", []), start=1):
            sheet.entries.append(self._entry(number, raw, taken))
        return sheet

    def _entry(self, number: int, raw: object, taken: set[str]) -> _Entry:
        try:
            job = entries.read(raw)
            if job.id in taken:
                raise JobError("another entry before it has the same id.")
        except JobError as error:
            name = f" ({shown_line(str(raw['id'])[:40])})" if _has_id(raw) else ""
            return _Entry(raw, None, f"{self.path}: entry {number}{name} is passed over: {error}")
        taken.add(job.id)
        return _Entry(raw, job)

    def _unreadable(self, why: str, mend: str) -> JobsFileError:
        return JobsFileError(
            f"{self.path} cannot be read{why if why[0] in ':,' else f' {why}'}; {mend}, or move the file away. "
            "Until then no job runs, and nothing is written to it."
        )

    def _unwritable(self, error: OSError) -> JobsFileError:
        return JobsFileError(str(files.unwritable(self.path, error)))


class _FaultError(ValueError):
    """What is wrong with JSON that Python would read."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _FaultError(f"'{shown_line(twice[:40])}' is there twice in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise _FaultError(f"{name} is no number of JSON")


def _has_id(raw: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(raw, dict) and isinstance(raw.get("id"), str)
