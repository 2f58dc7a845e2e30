"""Starting a runner as a child process of the controller, and seeing it off: for places that are processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO

from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.threads import in_thread

END_S = 3.0
"""How long a runner may take to end by itself once its connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerProcess:
    """The outermost process of a place and our end of the socket pair its runner holds."""

    process: asyncio.subprocess.Process
    sock: socket.socket
    complaints: IO[bytes]

    async def why_lost(self) -> str:
        """What it said on stderr, or how it ended."""
        try:
            async with asyncio.timeout(1.0):
                await self.process.wait()
        except TimeoutError:
            return "its runner does not answer"
        said = await asyncio.to_thread(self._said)
        return said or f"its main process ended with status {self.process.returncode}"

    def _said(self) -> str:
        self.complaints.seek(max(0, self.complaints.seek(0, os.SEEK_END) - 2000))
        lines = self.complaints.read().decode("utf-8", "replace").strip().splitlines()
        if "Traceback (most recent call last):" in lines:
            lines = lines[-1:]
        return "; ".join(lines)


@asynccontextmanager
async def launch(
    argv: Callable[[int], Sequence[str]], *, env: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> AsyncIterator[RunnerProcess]:
    """Run ``argv(fd)``, where ``fd`` is the runner's end of a new socket pair.

    It gets a session of its own, so that no terminal signal reaches it and killpg ends even a launcher that is killed
    while it is still setting up (bwrap loses its inner half otherwise). Leaving the context waits for the end.
    """
    async with in_thread(_complaints()) as complaints:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv(theirs.fileno()),
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=complaints,
                pass_fds=(theirs.fileno(), *pass_fds),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise BackendUnavailableError(
                f"The sandbox's main process cannot be started: {error.filename or argv(0)[0]}: {error.strerror}.",
                "Free memory, processes or open files, and try again.",
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            yield RunnerProcess(process=process, sock=ours, complaints=complaints)
        finally:
            ours.close()
            await _see_off(process)


@contextmanager
def _complaints() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


async def _see_off(process: asyncio.subprocess.Process) -> None:
    """Wait for the end, and bring it about after a while; never cut short, however often it is cancelled."""
    cancelled: asyncio.CancelledError | None = None
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        pass
    except asyncio.CancelledError as error:
        cancelled = error
    _kill_group(process)
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of the process's group.

    asyncio reaps the leader as soon as it has ended, and then its number is free, but not while anything of its group
    is left. So once a process of that number is there again, it is a stranger's and so is the group. (Between that look
    and the signal the number would have to be given away and be made a group: that cannot be ruled out, only not hit.)
    """
    try:
        if process.returncode is not None and _is_taken(process.pid):
            return
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _is_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
