"""A sandbox in memory, for tests of what stands above: no process, no file, the same contract (conformance suite).

``FakeBackend`` runs *programs*: functions from a :class:`FakeRun` to an exit status, found by the first word of argv. A
few that need no host are built in. Every request is kept in ``requests``, so that a test can prove what was run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from posixpath import basename, normpath
from typing import Any

from sandbox_backends.contract import (
    MAX_READ_BYTES,
    DirEntry,
    DirListing,
    Enforces,
    ExecRequest,
    ExecResult,
    FileStat,
    OnOutput,
    Outcome,
    OutputChunk,
    Probe,
    SandboxSession,
    SandboxSpec,
    StreamName,
)
from sandbox_backends.errors import FileError, InvalidRequestError, PathRefusedError, SandboxLostError
from sandbox_backends.runner.wire import HeadTail

Program = Callable[["FakeRun"], Awaitable[int]]
EVERYTHING = ~Enforces.NOTHING


@dataclass(slots=True, kw_only=True)
class FakeRun:
    """What a program sees."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin: asyncio.Queue[bytes | None]
    write: Callable[[StreamName, bytes], None]

    async def read_all(self) -> bytes:
        """Everything written to stdin, once it is closed."""
        parts = []
        while (part := await self.stdin.get()) is not None:
            parts.append(part)
        return b"".join(parts)


async def _echo(run: FakeRun) -> int:
    run.write("stdout", (" ".join(run.argv[1:]) + "\n").encode("utf-8", "surrogateescape"))
    return 0


async def _cat(run: FakeRun) -> int:
    run.write("stdout", await run.read_all())
    return 0


async def _true(_: FakeRun) -> int:
    return 0


async def _false(_: FakeRun) -> int:
    return 1


async def _pwd(run: FakeRun) -> int:
    run.write("stdout", run.cwd.encode() + b"\n")
    return 0


async def _sleep(run: FakeRun) -> int:
    await asyncio.sleep(float(run.argv[1]))
    return 0


async def _printenv(run: FakeRun) -> int:
    for name in sorted(run.env):
        run.write("stdout", f"{name}={run.env[name]}\n".encode("utf-8", "surrogateescape"))
    return 0


PROGRAMS: Mapping[str, Program] = {
    "echo": _echo,
    "cat": _cat,
    "true": _true,
    "false": _false,
    "pwd": _pwd,
    "sleep": _sleep,
    "printenv": _printenv,
}


@dataclass(slots=True, kw_only=True)
class FakeBackend:
    """Opens :class:`FakeSession`; ``name`` and ``enforces`` are what a test wants them to be."""

    name: str = "fake"
    enforces: Enforces = EVERYTHING
    programs: Mapping[str, Program] = field(default_factory=dict)
    sessions: list[FakeSession] = field(default_factory=list)
    open_error: Exception | None = None

    async def probe(self) -> Probe:
        return Probe(usable=True, version="0")

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        if self.open_error is not None:
            raise self.open_error
        session = FakeSession(spec, {**PROGRAMS, **self.programs}, len(self.sessions))
        self.sessions.append(session)
        try:
            yield session
        finally:
            session.lose("the sandbox is closed")


class FakeSession:
    """``SandboxSession`` whose files are a dict and whose commands are Python functions."""

    def __init__(self, spec: SandboxSpec, programs: Mapping[str, Program], number: int) -> None:
        self.id = f"fake-{spec.session}-{number}"
        self.cwd = str(spec.cwd)
        self.env: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "HOME": "/home/agent", **spec.env}
        self.warnings: tuple[str, ...] = ()
        self.lost: str | None = None
        self.requests: list[ExecRequest] = []
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.may_write = asyncio.Event()
        """Cleared, it keeps ``write_file`` waiting."""
        self.may_write.set()
        self._roots = tuple(str(root.path) for root in spec.roots)
        self._programs = programs
        self._running: set[FakeProcess] = set()

    def lose(self, why: str) -> None:
        """End it as if the place had gone away."""
        self.lost = self.lost or why
        for process in self._running:
            process.task.cancel()

    async def exec(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> ExecResult:
        if request.timeout_s is None:
            raise InvalidRequestError("exec needs a time limit (timeout_s); use start for what may run on")
        process = await self._start(request, on_output)
        await process.write(request.stdin or b"", eof=True)
        try:
            result = await asyncio.shield(process.ended)
        except asyncio.CancelledError:
            process.task.cancel()
            raise
        return process.with_output(result)

    async def start(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> FakeProcess:
        process = await self._start(request, on_output, polled=on_output is None)
        if request.stdin is not None:
            await process.write(request.stdin)
        return process

    async def _start(self, request: ExecRequest, on_output: OnOutput | None, *, polled: bool = False) -> FakeProcess:
        self._check()
        if not request.argv or not request.argv[0]:
            raise InvalidRequestError("argv is empty: give at least the program to run")
        for text in request.argv:
            if "\0" in text:
                raise InvalidRequestError(f"{text!r} holds a NUL byte, which no program can be given")
        if request.timeout_s is not None and not request.timeout_s > 0:
            raise InvalidRequestError(f"timeout_s must be above 0, not {request.timeout_s}")
        if request.max_output_bytes < 0:
            raise InvalidRequestError(f"max_output_bytes must be 0 or more, not {request.max_output_bytes}")
        self.requests.append(request)
        process = FakeProcess(self, request, on_output, f"{self.id}.{len(self.requests)}", polled=polled)
        run = FakeRun(
            argv=request.argv,
            cwd=self._resolve(request.cwd or "."),
            env=self.env if request.env is None else request.env,
            stdin=process.stdin,
            write=process.receive,
        )
        program = self._programs.get(basename(request.argv[0]))
        process.begin(_not_found(run) if program is None else _as_coroutine(program, run))
        self._running.add(process)
        process.ended.add_done_callback(lambda _: self._running.discard(process))
        return process

    async def read_file(self, path: str, *, offset: int = 0, max_bytes: int = MAX_READ_BYTES) -> bytes:
        if not 0 <= max_bytes <= MAX_READ_BYTES or not 0 <= offset < 2**63:
            raise InvalidRequestError(f"read_file takes 0 to {MAX_READ_BYTES} bytes from an offset of 0 or more")
        full = self._resolve(path)
        if full not in self.files:
            code = "not_a_file" if self._is_directory(full) else "not_found"
            raise FileError(code, f"{path}: no such file")
        return self.files[full][offset : offset + max_bytes]

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if mode is not None and not 0 <= mode <= 0o777:
            raise InvalidRequestError(f"write_file mode must be permission bits between 0 and 0o777, not {mode:#o}")
        full = self._resolve(path)
        if path.endswith("/") or self._is_directory(full):
            raise FileError("not_a_file", f"{path}: is a directory")
        if any(len(part.encode()) > 255 for part in full.split("/")):
            raise FileError("too_long", f"{path[:40]}…: a name is longer than 255 bytes")
        await self.may_write.wait()
        self.files[full] = bytes(data)
        self.modes[full] = mode if mode is not None else self.modes.get(full, 0o644)

    async def list_dir(self, path: str = ".") -> DirListing:
        full = self._resolve(path)
        if not self._is_directory(full):
            raise FileError("not_a_directory" if full in self.files else "not_found", f"{path}: no such directory")
        names = sorted({name[len(full) + 1 :].split("/")[0] for name in self.files if name.startswith(full + "/")})
        return DirListing(entries=tuple(DirEntry(name=name, stat=self._stat(f"{full}/{name}")) for name in names))

    async def stat(self, path: str) -> FileStat:
        full = self._resolve(path)
        if full not in self.files and not self._is_directory(full):
            raise FileError("not_found", f"{path}: no such file")
        return self._stat(full)

    def _check(self) -> None:
        if self.lost is not None:
            raise SandboxLostError(self.lost)

    def _resolve(self, path: str) -> str:
        self._check()
        if "\0" in path:
            raise FileError("invalid", f"{path!r}: a path cannot hold a NUL byte")
        full = normpath(path if path.startswith("/") else f"{self.cwd}/{path}")
        if not any(full == root or full.startswith(root + "/") for root in self._roots):
            raise PathRefusedError(f"{path}: outside the session's directories")
        return full

    def _is_directory(self, full: str) -> bool:
        return full in self._roots or any(name.startswith(full + "/") for name in self.files)

    def _stat(self, full: str) -> FileStat:
        if full in self.files:
            return FileStat(kind="file", size_bytes=len(self.files[full]), mode=self.modes[full], mtime_s=0.0)
        return FileStat(kind="directory", size_bytes=0, mode=0o755, mtime_s=0.0)


class FakeProcess:
    """``BackgroundProcess`` around a task."""

    task: asyncio.Task[int]
    ended: asyncio.Task[ExecResult]

    def __init__(
        self, session: FakeSession, request: ExecRequest, on_output: OnOutput | None, ident: str, *, polled: bool
    ) -> None:
        self.id = ident
        self._polled = polled
        self.stdin: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._session = session
        self._request = request
        self._on_output = on_output
        self._ring = bytearray()
        self._kept = {"stdout": HeadTail(request.max_output_bytes), "stderr": HeadTail(request.max_output_bytes)}
        self._started = time.monotonic()
        self._signal: int | None = None

    def receive(self, stream: StreamName, data: bytes) -> None:
        if self._polled:
            self._ring += data
        self._kept["stdout" if self._request.merge_stderr else stream].feed(data)
        if self._on_output is not None:
            self._on_output(stream, data)

    def begin(self, work: Coroutine[Any, Any, int]) -> None:
        self.task = asyncio.create_task(work)
        self.ended = asyncio.create_task(self._end())

    async def _end(self) -> ExecResult:
        """The result without its streams, after at most the time limit."""
        done, _ = await asyncio.wait({self.task}, timeout=self._request.timeout_s)
        outcome, code = Outcome.EXITED, None
        if not done:
            outcome = Outcome.TIMED_OUT
            self.task.cancel()
        elif not self.task.cancelled():
            code = self.task.result()
        elif self._signal is not None:
            outcome, code = Outcome.SIGNALED, -self._signal
        else:
            outcome = Outcome.LOST
        return ExecResult(outcome=outcome, exit_code=code, duration_s=time.monotonic() - self._started)

    def with_output(self, result: ExecResult) -> ExecResult:
        out, err = self._kept["stdout"], self._kept["stderr"]
        return replace(result, stdout=out.value(), stderr=err.value(), dropped_bytes=out.dropped + err.dropped)

    def poll(self, since: int = 0) -> OutputChunk:
        result = self.ended.result() if self.ended.done() else None
        return OutputChunk(data=bytes(self._ring[since:]), next=len(self._ring), dropped_bytes=0, result=result)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        if data:
            self.stdin.put_nowait(data)
        if eof:
            self.stdin.put_nowait(None)

    async def signal(self, number: int) -> None:
        self._signal = number
        self.task.cancel()

    async def wait(self, timeout_s: float | None = None) -> ExecResult | None:
        done, _ = await asyncio.wait({self.ended}, timeout=timeout_s)
        return self.ended.result() if done else None


async def _not_found(run: FakeRun) -> int:
    run.write("stderr", f"bubbles: cannot run {run.argv[0]}: command not found\n".encode())
    return 127


async def _as_coroutine(program: Program, run: FakeRun) -> int:
    return await program(run)
