"""Sessions by their keys, and turns on them (SESS-01, CTX-04)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from bubbles.sessions import workspace
from bubbles.sessions.contract import Folders, History, SessionError
from bubbles.sessions.entries import Entry
from bubbles.sessions.history import WrittenHistory, completed
from bubbles.sessions.journal import FILE, Journal
from bubbles.sessions.key import display, is_key
from bubbles.sessions.lock import SessionLock

REMEMBERED = 64
"""Sessions whose histories stay in memory between turns; others are read again."""
Now = Callable[[], datetime]


def _utc() -> datetime:
    return datetime.now(UTC)


class Session:
    """One conversation. What it has read of its history it keeps; other processes' lines are read at each turn."""

    def __init__(
        self, folders: Folders, *, program: str = "bubbles", skills: Path = workspace.SKILLS_TEMPLATE, now: Now = _utc
    ) -> None:
        self.folders = folders
        self._program = program
        self._skills = skills
        self._now = now
        self._journal = Journal(folders, now)
        self._warnings: list[str] = []

    @property
    def key(self) -> str:
        return self.folders.key

    def take_warnings(self) -> tuple[str, ...]:
        """What the person is to be told of the session's files: each sentence once."""
        taken = tuple(self._warnings)
        self._warnings.clear()
        return taken

    async def prepare(self) -> None:
        """Make what is missing of its directories. Raises SessionDamagedError."""
        self._warnings += await asyncio.to_thread(workspace.prepare, self.folders, self._skills)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[History]:
        """Its history, open for writing, with what a crash left open settled.

        Raises SessionBusyError at once while another turn, of whatever process, is at work on it, and
        SessionDamagedError. Nothing is written when the context is left.
        """
        lock = SessionLock(display(self.key), self.folders.state / "lock", self._program)
        history: WrittenHistory | None = None
        try:
            await completed(asyncio.to_thread(lock.take, self._now()))
            await self.prepare()
            await completed(asyncio.to_thread(self._open))
            history = WrittenHistory(self._journal.transcript, self._write)
            await history.settle()
            yield history
        finally:
            if history is not None:
                history.close()
            await completed(asyncio.to_thread(self._leave, lock))

    def _open(self) -> None:
        try:
            self._journal.open()
        finally:
            self._warnings += self._journal.warnings
            self._journal.warnings.clear()

    async def _write(self, entries: Sequence[Entry]) -> None:
        await asyncio.to_thread(self._journal.append, entries)

    def _leave(self, lock: SessionLock) -> None:
        if lock.held:
            self._journal.close()
            lock.release()


class Sessions:
    """All sessions of one data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        program: str = "bubbles",
        skills: Path = workspace.SKILLS_TEMPLATE,
        now: Now = _utc,
    ) -> None:
        """``program`` is what other processes are told is at work. ``skills`` holds a folder for each skill that a new
        session gets.
        """
        self._data_dir = data_dir
        self._program = program
        self._skills = skills
        self._now = now
        self._open: OrderedDict[str, Session] = OrderedDict()

    def folders(self, key: str) -> Folders:
        """Where the session's things are, whether or not there is one. SessionError for what is no key."""
        if not is_key(key):
            raise SessionError(f"{key[:120]!r} is no session's key: take one that bubbles.sessions.key makes.")
        data_dir = self._data_dir
        return Folders(key=key, desk=data_dir / "sessions" / key, state=data_dir / "session_state" / key)

    async def open(self, key: str) -> Session:
        """The session of this key, made if there is none. Raises SessionError."""
        session = self._open.pop(key, None)
        if session is None:
            session = Session(self.folders(key), program=self._program, skills=self._skills, now=self._now)
        self._open[key] = session
        while len(self._open) > REMEMBERED:
            self._open.popitem(last=False)
        await session.prepare()
        return session

    async def keys(self) -> tuple[str, ...]:
        """Of all sessions that have a history, in order."""
        return await asyncio.to_thread(self.made)

    def made(self) -> tuple[str, ...]:
        """As ``keys``, for who is in no event loop. Blocks."""
        try:
            names = [path.name for path in (self._data_dir / "session_state").iterdir() if (path / FILE).is_file()]
        except FileNotFoundError:
            return ()
        return tuple(sorted(name for name in names if is_key(name)))
