"""The records of tasks on the disk. All of it blocks, but for ``opened``."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bubbles.agent.subagents.contract import TaskRecord
from bubbles.config.files import content, replace
from bubbles.sessions.contract import Folders, History, SessionError
from bubbles.sessions.entries import Entry
from bubbles.sessions.history import WrittenHistory, completed
from bubbles.sessions.journal import Journal
from bubbles.sessions.lock import SessionLock
from bubbles.tools.services import TaskState

FOLDER = "tasks"
FILE = "task.json"
TOLD = "told"
KEPT = 20
"""Ended tasks of a session that stay on the disk, with their histories."""
MAX_FILE_BYTES = 4 << 20
INTERRUPTED = (
    "The program ended while it ran. How far it got is not known: look at what is there, and repeat nothing blindly."
)
_NAME = re.compile(r"t([1-9][0-9]{0,8})")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder of a task that this process runs."""

    folders: Folders
    """Of its history; the desk is the session's."""
    lock: SessionLock

    @property
    def file(self) -> Path:
        return self.folders.state / FILE


class TaskShelf:
    """Of all sessions of one data directory. Several processes may use it at a time."""

    def __init__(self, folders: Callable[[str], Folders], program: str = "bubbles") -> None:
        """``folders`` gives those of a session by its key; ``program`` is what other processes are told is at work."""
        self._folders = folders
        self._program = program

    def create(self, session_key: str, make: Callable[[str], TaskRecord]) -> tuple[TaskRecord, Place]:
        """A new task, with the next free number. Raises OSError and SessionError."""
        tasks = self._tasks(session_key)
        tasks.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max((number for number, _ in _numbered(tasks)), default=0) + 1
        while True:
            try:
                (tasks / f"t{number}").mkdir(mode=0o700)
                break
            except FileExistsError:  # another process was quicker
                number += 1
        folder = tasks / f"t{number}"
        lock = self._lock(session_key, folder)
        lock.take(datetime.now(UTC))
        try:
            record = make(folder.name)
            replace(folder / FILE, record.model_dump_json())
        except BaseException:
            lock.release()
            raise
        self._prune(tasks)
        desk = self._folders(session_key).desk
        return record, Place(folders=Folders(key=session_key, desk=desk, state=folder), lock=lock)

    def save(self, session_key: str, record: TaskRecord) -> None:
        """How it ended. Raises OSError."""
        folder = self._tasks(session_key) / record.id
        replace(folder / FILE, record.model_dump_json())
        if record.told:
            (folder / TOLD).touch(0o600)

    def tell(self, session_key: str, task: str) -> None:
        """The conversation has been told. Raises OSError."""
        (self._tasks(session_key) / task / TOLD).touch(0o600)

    def records(self, session_key: str, running: Sequence[str] = (), *, untold: bool = False) -> list[TaskRecord]:
        """All that there are, oldest first. ``running``: ids of those that this process runs. ``untold``: only those
        of which the conversation was not told.

        One that nobody runs any more and that has not ended was interrupted, and is written down as that. What cannot
        be read is left out.
        """
        found = []
        for _, folder in sorted(_numbered(self._tasks(session_key))):
            if untold and (folder / TOLD).exists():
                continue
            record = _read(folder)
            if record is not None and record.state is TaskState.RUNNING and record.id not in running:
                record = self._settled(session_key, folder, record)
            if record is not None:
                found.append(record)
        return found

    def _settled(self, session_key: str, folder: Path, record: TaskRecord) -> TaskRecord | None:
        lock = self._lock(session_key, folder)
        try:
            lock.take(datetime.now(UTC))
        except SessionError:
            return record  # another process runs it
        try:
            now = _read(folder)  # it may have ended meanwhile
            if now is None or now.state is not TaskState.RUNNING:
                return now
            ended = now.model_copy(update={"state": TaskState.INTERRUPTED, "result": INTERRUPTED})
            self.save(session_key, ended)
            return ended
        except OSError as error:
            _log.warning("the record of task %s cannot be written: %s", folder, error)
            return record
        finally:
            lock.release()

    def _prune(self, tasks: Path) -> None:
        """What was told long ago goes."""
        told = [folder for _, folder in sorted(_numbered(tasks)) if (folder / TOLD).exists()]
        for folder in told[: max(0, len(told) - KEPT)]:
            shutil.rmtree(folder, ignore_errors=True)

    def _tasks(self, session_key: str) -> Path:
        return self._folders(session_key).state / FOLDER

    def _lock(self, session_key: str, folder: Path) -> SessionLock:
        return SessionLock(f"{session_key}, task {folder.name}", folder / "lock", self._program)


def _numbered(tasks: Path) -> Iterator[tuple[int, Path]]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(tasks):
            if (found := _NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False):
                yield int(found[1]), tasks / entry.name


def _read(folder: Path) -> TaskRecord | None:
    try:
        record = TaskRecord.model_validate_json(content(folder / FILE, MAX_FILE_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("the record of a task, %s, cannot be read (%s)", folder / FILE, type(error).__name__)
        return None
    if record.id != folder.name:
        return None
    return record.model_copy(update={"told": True}) if (folder / TOLD).exists() else record


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[History]:
    """The task's own history, open for writing. Raises SessionDamagedError."""
    journal = Journal(place.folders)

    async def write(entries: Sequence[Entry]) -> None:
        await asyncio.to_thread(journal.append, entries)

    await completed(asyncio.to_thread(journal.open))
    history = WrittenHistory(journal.transcript, write)
    try:
        yield history
    finally:
        history.close()
        await completed(asyncio.to_thread(journal.close))
