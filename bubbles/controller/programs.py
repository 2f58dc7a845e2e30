"""Programs that one speaks with over stdin and stdout for as long as they run: MCP servers (TOOL-09).

Outside every sandbox a program runs in a ``local`` place of its own, whose runner ends it with all it started as soon
as this process is gone, however that came about. Inside, it runs in a session's sandbox and holds it open.

ProgramError (a GateError)    the program cannot be started, or no longer listens
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.bus import Origin
from bubbles.controller.contract import GateError, Workplace
from bubbles.controller.sandboxes import Sandboxes
from sandbox_backends.contract import (
    BackgroundProcess,
    ExecRequest,
    ExecResult,
    OnOutput,
    Outcome,
    Root,
    SandboxBackend,
    SandboxSession,
    SandboxSpec,
)
from sandbox_backends.errors import SandboxError
from sandbox_backends.threads import in_thread
from sandbox_backends.trees import remove_tree

LEAVE_S = 0.5
"""How long a program may take to end by itself once its input is closed."""
KILL_S = 1.0
"""How long its end is awaited after it was killed."""
OWN_DIRECTORY = "bubbles-mcp-"
"""Begins the name of the directory that a program outside has to itself."""
YOUNG_S = 60.0
"""Such a directory may not be locked yet."""
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""What a runner reports, as a shell does, for a program that it could not start."""

_THERE = ("/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh")
"""Starts the program in a directory that need not be one of the place's roots."""


class ProgramError(GateError):
    """One sentence for the person, without its end: it is read after "the server cannot be used:"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    name: str
    """Letters, digits, ``_`` and ``-``: it is what its place is called."""
    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    """Added to the environment of its place."""
    cwd: Path | None = None
    """None: a directory of its own; in a sandbox, the session's working directory."""


class RunningProgram:
    """A program that runs."""

    def __init__(self, process: BackgroundProcess) -> None:
        self._process = process

    async def write(self, data: bytes) -> None:
        """Waits until the program has taken it. Raises ``ProgramError`` when it no longer reads."""
        try:
            await self._process.write(data)
        except SandboxError as error:
            raise ProgramError(str(error)) from error

    async def ended(self) -> str:
        """How it ended, once it has."""
        result = await self._process.wait()
        return "the program ended" if result is None else _fate(result)

    async def leave(self) -> None:
        """Close its input, and give it a moment to end by itself."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._process.write(b"", eof=True)
                await self._process.wait()
        except (TimeoutError, SandboxError):
            return


class Launcher:
    """Starts programs. ``local`` gives the backend of that name, in a thread; ``place_of`` the place of a session's
    commands, as it is now, and raises LookupError for a session without one.
    """

    def __init__(
        self, sandboxes: Sandboxes, local: Callable[[], SandboxBackend], place_of: Callable[[Origin], Workplace]
    ) -> None:
        self._sandboxes = sandboxes
        self._local = local
        self._place_of = place_of

    def start(
        self, program: Program, on_output: OnOutput, origin: Origin | None = None
    ) -> AbstractAsyncContextManager[RunningProgram]:
        """The program at work; leaving the context ends it with all that it started. Raises ``ProgramError``.

        ``origin`` says in whose sandbox; None is outside. ``on_output`` gets its output on the event loop as it comes,
        and must not raise.
        """
        return self._outside(program, on_output) if origin is None else self._inside(program, on_output, origin)

    @asynccontextmanager
    async def _outside(self, program: Program, on_output: OnOutput) -> AsyncIterator[RunningProgram]:
        with _told():
            backend = await asyncio.to_thread(self._local)
            async with in_thread(_own_directory()) as directory:
                roots = (Root(path=directory),)
                spec = SandboxSpec(session=f"mcp-{program.name}", roots=roots, env=program.env)
                async with backend.open(spec) as session:
                    served = RunningProgram(await _begin(session, program, on_output))
                    try:
                        yield served
                    finally:
                        await served.leave()

    @asynccontextmanager
    async def _inside(self, program: Program, on_output: OnOutput, origin: Origin) -> AsyncIterator[RunningProgram]:
        try:
            place = self._place_of(origin)
        except LookupError as error:
            raise ProgramError("its session has no sandbox yet") from error
        with _told():
            async with self._sandboxes.use(place.backend, place.spec, tell_reset=False) as lease:
                process = await _begin(lease.session, program, on_output)
                served = RunningProgram(process)
                try:
                    yield served
                    await served.leave()
                finally:
                    await process.signal(signal.SIGKILL)
                    await process.wait(KILL_S)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        raise ProgramError(str(error)) from error
    except OSError as error:
        raise ProgramError(f"no place can be made for it ({error.strerror or error})") from error


@contextmanager
def _own_directory() -> Iterator[Path]:
    """Empty, and gone afterwards. It is locked meanwhile, so that what a killed program left can be told from it."""
    sweep_directories(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=OWN_DIRECTORY, ignore_cleanup_errors=True) as directory:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield Path(directory)
        finally:
            os.close(fd)


def sweep_directories(above: Path) -> None:
    """Remove what programs had to themselves whose Bubbles was killed. Blocks; never raises."""
    for path in above.glob(f"{OWN_DIRECTORY}*"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            found = os.fstat(fd)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > YOUNG_S:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(path)
        except OSError:
            continue  # in use
        finally:
            os.close(fd)


async def _begin(session: SandboxSession, program: Program, on_output: OnOutput) -> BackgroundProcess:
    argv = program.argv if program.cwd is None else (*_THERE, os.fspath(program.cwd), *program.argv)
    request = ExecRequest(argv=argv, env={**session.env, **program.env}, timeout_s=None)
    return await session.start(request, on_output=on_output)


def _fate(result: ExecResult) -> str:
    if result.outcome is Outcome.EXITED:
        if result.exit_code == NOT_FOUND:
            return "the program was not found in its sandbox (tools.sandbox.toolDirs shows more there)"
        if result.exit_code == NOT_RUNNABLE:
            return "the program could not be run"
        return f"the program ended with status {result.exit_code}"
    if result.outcome is Outcome.SIGNALED:
        return f"the program was ended by signal {-(result.exit_code or 0)}"
    if result.outcome is Outcome.OOM:
        return "the program was ended because its sandbox ran out of memory"
    return "its sandbox was closed"
