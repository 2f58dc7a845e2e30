"""One SQLite file, one thread that works on it, one sync of the disk for all that waits at that moment.

LedgerError (a BubblesError)    the disk did not take it, or the file cannot be used; nothing of the work was done
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bubbles.errors import BubblesError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

VERSION = 1
_APPLICATION = 0x62756262
"""Of ours, in SQLite's header."""
_BUSY_MS = 5_000
_MAX_BATCH = 200
_CORRUPT, _NOT_A_DATABASE = 11, 26
"""SQLite's result codes for a file that is damaged."""
_PARTS = ("", "-wal", "-shm")


class LedgerError(BubblesError):
    """What was to be written is not written: it may be tried again."""


class _DamagedError(Exception):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    durable: bool
    done: Future[Any] = field(default_factory=Future)


class Database:
    """Jobs are done in the order in which they came. Those that wait together are one transaction, so that the disk is
    waited for once; one that fails is then done without the others.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._jobs: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._connection: sqlite3.Connection | None = None
        self._durable = False

    async def open(self) -> str | None:
        """What a person must know of a file that was set aside. Raises LedgerError."""
        return await self._in_thread(self._open)

    async def close(self) -> None:
        """Jobs that wait are done first."""
        await self._in_thread(self._close)
        await asyncio.to_thread(self._thread.shutdown)

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """What ``work`` returns, in a transaction; it may be called twice, then without what it did before.

        ``durable``: it survives the loss of power (one fsync); else a kill of the program. Raises LedgerError.
        """
        job = _Job(work, durable)
        self._jobs.append(job)
        self._thread.submit(self._work_off)
        done: T = await asyncio.wrap_future(job.done)
        return done

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _work_off(self) -> None:
        batch: list[_Job] = []
        while self._jobs and len(batch) < _MAX_BATCH:
            job = self._jobs.popleft()
            if job.done.set_running_or_notify_cancel():
                batch.append(job)
        if batch and not self._done(batch):
            for job in batch:
                self._done([job])
        if self._jobs:
            self._thread.submit(self._work_off)

    def _done(self, batch: list[_Job]) -> bool:
        """Whether they were done, or the only one was told that it was not."""
        try:
            results = self._committed(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to who asked for it
            if len(batch) > 1:
                return False
            batch[0].done.set_exception(self._named(error))
            return True
        for job, result in zip(batch, results, strict=True):
            job.done.set_result(result)
        return True

    def _committed(self, batch: list[_Job]) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise LedgerError(f"The ledger {self._path} is closed.")
        durable = any(job.durable for job in batch)
        if durable is not self._durable:  # SQLite takes this between transactions only
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [job.work(connection) for job in batch]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk ends it by itself
                connection.execute("ROLLBACK")
            raise
        return results

    def _named(self, error: Exception) -> Exception:
        import sqlite3

        if isinstance(error, sqlite3.Error):
            return LedgerError(f"The ledger {self._path} cannot be written ({error}): look at the disk it is on.")
        return error

    def _open(self) -> str | None:
        import sqlite3

        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._connection = self._connected()
                return None
            except _DamagedError as error:
                aside = self._set_aside()
                self._connection = self._connected()
                return (
                    f"The ledger {self._path} was damaged ({error}) and is now {aside}: messages that had no answer "
                    "yet, and answers that had not been sent, may be lost. A new one was begun."
                )
        except (OSError, sqlite3.Error, _DamagedError) as error:
            raise LedgerError(f"The ledger {self._path} cannot be opened ({error}): mend that.") from error

    def _connected(self) -> sqlite3.Connection:
        """Raises _DamagedError for what is no ledger, or no whole one."""
        import sqlite3

        # Made here, so that nobody else may read it for a moment; SQLite gives its other files the same mode.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
        connection = sqlite3.connect(self._path, timeout=_BUSY_MS / 1000, isolation_level=None)
        try:
            self._prepare(connection)
        except sqlite3.DatabaseError as error:
            connection.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (_CORRUPT, _NOT_A_DATABASE):
                raise _DamagedError(str(error)) from error
            raise
        except BaseException:
            connection.close()
            raise
        _sync_folder(self._path.parent)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Nothing is changed in what is not ours, or not whole."""
        found = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        if found != ["ok"]:
            raise _DamagedError(" ".join(map(str, found)))
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == _APPLICATION and version > VERSION:
            raise LedgerError(
                f"{self._path} was written by a newer Bubbles (format {version}, this one knows {VERSION}): use that. "
                "Nothing was changed."
            )
        if tables and (application, version) != (_APPLICATION, VERSION):
            raise _DamagedError("it is the data base of something else")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves it in the disk's cache
        self._durable = True
        # What is deleted is overwritten: texts do not stay longer than they are needed.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_size_limit = 4000000")
        if not tables:
            connection.execute("BEGIN IMMEDIATE")
            for statement in self._schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")

    def _set_aside(self) -> Path:
        stem = f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z-{self._path.name}"
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(f"{self._path.name}{part}").rename(self._path.with_name(f"{stem}{part}"))
        return self._path.with_name(stem)

    def _close(self) -> None:
        while self._jobs:
            self._work_off()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()


def _sync_folder(folder: Path) -> None:
    """So that a new file is there after the loss of power too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
