"""One process at a time at a login (flock(2)): a refresh token that is sent twice logs the person out."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bubbles.providers.logins.contract import LoginBusyError, LoginError

WAIT_S = 60.0
"""For the lock: longer than a renewal may take."""
_CANNOT = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""File systems of a network that know no locks; a login that could never be used would be worse."""


class FileLock:
    """For the tasks of one event loop. The file stays: one that is removed keeps nobody out.

    The kernel knows no waiting with an end, so that a thread waits. When nobody wants the lock any more it goes on
    waiting, and the next one who wants it takes it over: there is never more than one.
    """

    def __init__(self, provider: str, path: Path) -> None:
        self._provider = provider
        self._path = path
        self._wanted: deque[asyncio.Future[int]] = deque()
        self._waits_in: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def held(self, wait_s: float = WAIT_S) -> AsyncIterator[None]:
        """Raises ``LoginBusyError`` after ``wait_s`` seconds, ``LoginError`` if the file cannot be used."""
        fd = await self._taken(wait_s)
        try:
            yield
        finally:
            os.close(fd)

    async def _taken(self, wait_s: float) -> int:
        loop = asyncio.get_running_loop()
        wanted: asyncio.Future[int] = loop.create_future()
        if self._waits_in is not loop:
            self._wanted.clear()  # of a loop that has ended
            self._begin(loop)
        self._wanted.append(wanted)
        try:
            async with asyncio.timeout(wait_s):
                return await wanted
        except TimeoutError:
            _give_back(wanted)
            raise LoginBusyError(
                f"{self._provider}: another process is at work on the login and does not end; end it, or try again."
            ) from None
        except OSError as error:
            raise LoginError(f"{self._path} cannot be used ({error.strerror}): make its directory writable.") from error
        except asyncio.CancelledError:
            _give_back(wanted)
            raise

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waits_in = loop
        threading.Thread(target=self._wait, args=(loop,), name=f"lock of {self._provider}", daemon=True).start()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own."""
        result: int | OSError
        try:
            result = _locked(self._path)
        except OSError as error:
            result = error
        try:
            loop.call_soon_threadsafe(self._deliver, loop, result)
        except RuntimeError:  # the loop has ended, and with it who wanted this
            if isinstance(result, int):
                os.close(result)

    def _deliver(self, loop: asyncio.AbstractEventLoop, result: int | OSError) -> None:
        """To the first who still wants it; the others have the next thread waiting for them."""
        self._waits_in = None
        while self._wanted and self._wanted[0].done():
            self._wanted.popleft()
        if not self._wanted:
            if isinstance(result, int):
                os.close(result)
            return
        wanted = self._wanted.popleft()
        if isinstance(result, int):
            wanted.set_result(result)
        else:
            wanted.set_exception(result)
        if any(not one.done() for one in self._wanted):
            self._begin(loop)


def _give_back(wanted: asyncio.Future[int]) -> None:
    """If it came in the same moment."""
    if wanted.done() and not wanted.cancelled() and wanted.exception() is None:
        os.close(wanted.result())


def _locked(path: Path) -> int:
    """A descriptor that holds the lock. Raises OSError."""
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _CANNOT:
            os.close(fd)
            raise
    return fd
