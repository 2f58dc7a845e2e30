"""One turn at a time on a session, whichever process runs it (CTX-04, CORE-05)."""

from __future__ import annotations

import contextlib
import fcntl
import os
from datetime import datetime
from pathlib import Path

from bubbles.sessions.contract import SessionBusyError, SessionDamagedError

_MAX_HOLDER = 200


class SessionLock:
    """A lock that the kernel releases when the process ends, however that is (flock(2)). Blocks on the disk only.

    The file stays. In it stands who has it, or was killed while it had it.
    """

    def __init__(self, key: str, path: Path, program: str) -> None:
        self._key = key
        self._path = path
        self._program = program
        self._fd = -1
        self.held = False

    def take(self, since: datetime) -> None:
        """SessionBusyError at once if another turn has it; it names the process."""
        try:
            while not self._locked():
                pass  # somebody put another file there between opening and locking it
            text = f"{os.getpid()} {since.astimezone():%H:%M:%S} {self._program}\n"
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode("utf-8", "replace"), 0)
            self.held = True
        except OSError as error:
            self.release()
            raise SessionDamagedError(
                f"The lock {self._path} of session {self._key} cannot be taken ({error.strerror or error}): mend that."
            ) from error

    def release(self) -> None:
        if self._fd < 0:
            return
        if self.held:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)  # so that nobody takes this turn for the next one
        os.close(self._fd)
        self._fd, self.held = -1, False

    def _locked(self) -> bool:
        self.release()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            self.release()
            raise SessionBusyError(
                f"session {self._key} is in use by {holder}: wait until it has finished, or use another session."
            ) from None
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.lstat())
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        text = os.pread(self._fd, _MAX_HOLDER, 0).decode("utf-8", "replace").strip()
        pid, _, rest = text.partition(" ")
        since, _, program = rest.partition(" ")
        if pid == str(os.getpid()):
            return f"another turn of this program (since {since})"
        if not pid.isdecimal() or not text.isprintable():
            return "another process"
        return f"process {pid} ({program}, since {since})"
