"""A sandbox session over a runner, whichever place the runner is in (SBX-02)."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sandbox_backends.contract import (
    MAX_READ_BYTES,
    DirEntry,
    DirListing,
    ExecRequest,
    ExecResult,
    FileStat,
    OnOutput,
    Outcome,
    OutputChunk,
    Root,
    StreamName,
)
from sandbox_backends.errors import (
    BackendUnavailableError,
    FileError,
    InvalidRequestError,
    ProtocolError,
    SandboxError,
    SandboxLostError,
)
from sandbox_backends.link import Call, Link, Meta
from sandbox_backends.link import field as checked
from sandbox_backends.runner import wire
from sandbox_backends.seccomp import build_filter

GRACE_S = 10.0
"""How much longer than a command's own time limit its answer is awaited before the sandbox counts as lost."""
RING_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 16 << 20
MAX_ROW_BYTES = 4096
"""Of one entry of a directory, as it is sent: a name of 255 bytes may take six times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a backend hands over once its runner is on its way: the socket to it and what the runner must be told."""

    id: str
    sock: socket.socket
    roots: tuple[Root, ...]
    """As resolve_spec gave them: the runner compares their identity with what it finds."""
    cwd: str
    env: Mapping[str, str]
    hard: bool
    """The runner is alone in its own pid namespace and must hold no capability."""
    refuse_setid: bool = False
    rlimits: Mapping[str, int] = field(default_factory=dict)
    bridge: tuple[str, ...] = ()
    """Arguments for ``runner/bridge.py``; empty when there is no egress proxy."""
    warnings: tuple[str, ...] = ()
    oom_kills: Callable[[], int] = lambda: 0
    """How many processes of this place the kernel has killed for memory so far."""
    grace_s: float = GRACE_S
    why_lost: Callable[[], Awaitable[str]] | None = None
    """A sentence on what became of the place, asked once after its connection ended."""


@asynccontextmanager
async def connect(place: Place) -> AsyncIterator[RunnerSession]:
    """Shake hands with the runner in ``place``; leaving the context ends the runner and everything under it.

    Raises BackendUnavailableError when the runner does not come up as it should.
    """
    link = await Link.connect(place.sock)
    try:
        try:
            hello = await link.hello()
            program = build_filter(hello["machine"], refuse_setid=place.refuse_setid) if place.hard else b""
            init: Meta = {
                "id": place.id,
                "roots": [[str(root.path), *(root.identity or ())] for root in place.roots],
                "cwd": place.cwd,
                "env": dict(place.env),
                "hard": place.hard,
                "rlimits": dict(place.rlimits),
                "bridge": list(place.bridge),
            }
            await link.init(init, program)
        except (SandboxLostError, FileError) as error:
            reason = await place.why_lost() if place.why_lost and isinstance(error, SandboxLostError) else ""
            raise BackendUnavailableError(f"The sandbox did not start: {reason or error}") from error
        link.explain = place.why_lost
        yield RunnerSession(place, link)
    finally:
        link.close()
        await link.closed.wait()


class RunnerSession:
    """``SandboxSession`` by frames to a runner."""

    def __init__(self, place: Place, link: Link) -> None:
        self._place = place
        self._link = link
        self.id = place.id
        self.cwd = place.cwd
        self.env = place.env
        self.warnings = place.warnings

    @property
    def lost(self) -> str | None:
        return str(self._link.lost) if self._link.lost else None

    async def exec(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> ExecResult:
        if request.timeout_s is None:
            raise InvalidRequestError("exec needs a time limit (timeout_s); use start for what may run on")
        kept = {name: wire.HeadTail(request.max_output_bytes) for name in ("stdout", "stderr")}

        def sink(stream: StreamName, data: bytes) -> None:
            kept[stream].feed(data)
            if on_output is not None:
                on_output(stream, data)

        ooms = self._place.oom_kills()
        streaming = on_output is not None
        call = self._begin_exec(request, sink, streaming)
        feeder = self._feed(call, request.stdin)
        try:
            meta = await self._link.result(call, request.timeout_s + self._place.grace_s)
        except SandboxLostError:
            meta = {"outcome": "lost", "code": None, "dropped": 0, "duration": 0.0, "detached": False}
        except BaseException:
            self._link.signal(call, signal.SIGKILL)
            raise
        finally:
            if feeder is not None:
                feeder.cancel()
        try:
            result = _result(meta, {name: stream.value() for name, stream in kept.items()})
        except ProtocolError:
            self._link.close()
            raise
        if streaming:
            dropped = result.dropped_bytes + sum(stream.dropped for stream in kept.values())
            result = replace(result, dropped_bytes=dropped)
        if result.exit_code in (-9, 137) and self._place.oom_kills() > ooms:
            result = replace(result, outcome=Outcome.OOM, exit_code=None)
        return result

    async def start(self, request: ExecRequest) -> RunningProcess:
        process = RunningProcess(self._link, self.id)
        call = self._begin_exec(request, process.receive, True, open_stdin=True)
        try:
            await self._link.stdin(call, b"", False)  # answered as soon as it has begun, or could not
            process.attach(call, request.timeout_s)
            await process.feed(request.stdin or b"")
        except asyncio.CancelledError:
            self._link.signal(call, signal.SIGKILL)
            raise
        return process

    async def read_file(self, path: str, *, offset: int = 0, max_bytes: int = MAX_READ_BYTES) -> bytes:
        if not 0 <= max_bytes <= MAX_READ_BYTES or not 0 <= offset < 2**63:
            raise InvalidRequestError(f"read_file takes 0 to {MAX_READ_BYTES} bytes from an offset of 0 or more")
        parts: list[bytes] = []
        await self._link.call(
            wire.READ,
            {"path": _path(path), "offset": offset, "limit": max_bytes},
            sink=lambda _, data: parts.append(data),
            budget=max_bytes,
        )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if mode is not None and not 0 <= mode <= 0o777:
            raise InvalidRequestError(f"write_file mode must be permission bits between 0 and 0o777, not {mode:#o}")
        first, rest = data[: wire.CHUNK], data[wire.CHUNK :]
        call = self._link.begin(wire.WRITE, {"path": _path(path), "mode": mode, "eof": not rest}, first)
        try:
            for at in range(0, len(rest), wire.CHUNK):
                if call.done.done():
                    break  # it has failed already
                eof = at + wire.CHUNK >= len(rest)
                await self._link.send(wire.DATA, call, {"eof": eof}, rest[at : at + wire.CHUNK])
            await self._link.result(call, 60.0)
        except asyncio.CancelledError:
            self._link.signal(call, signal.SIGKILL)
            raise

    async def list_dir(self, path: str = ".") -> DirListing:
        listing = _Listing()
        budget = wire.MAX_ENTRIES * MAX_ROW_BYTES
        meta = await self._link.call(wire.LIST, {"path": _path(path)}, sink=listing.receive, budget=budget)
        if listing.partial:
            raise self._distrust("half a directory entry")
        return DirListing(entries=tuple(listing.entries), truncated=checked(meta, "truncated", bool))

    async def stat(self, path: str) -> FileStat:
        meta = await self._link.call(wire.STAT, {"path": _path(path)})
        try:
            return _stat(meta["stat"])
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise self._distrust("a file description that cannot be read") from error

    def _distrust(self, what: str) -> ProtocolError:
        self._link.close()
        return ProtocolError(f"the sandbox's runner sent {what}")

    def _begin_exec(self, request: ExecRequest, sink: OnOutput, streaming: bool, open_stdin: bool = False) -> Call:
        _check(request)
        meta: Meta = {
            "argv": list(request.argv),
            "cwd": request.cwd or "",
            "env": None if request.env is None else dict(request.env),
            "stdin": open_stdin or request.stdin is not None,
            "timeout": request.timeout_s,
            "keep": 0 if streaming else request.max_output_bytes,
            "stream": streaming,
            "merge": request.merge_stderr or open_stdin,
        }
        budget = None if streaming else 2 * request.max_output_bytes + 8192
        return self._link.begin(wire.EXEC, meta, sink=sink, budget=budget)

    def _feed(self, call: Call, stdin: bytes | None) -> asyncio.Task[None] | None:
        """Send what fits at once; more goes on in a task, as the command reads."""
        if stdin is None:
            return None

        async def feed() -> None:
            try:
                for at in range(0, len(stdin) or 1, wire.CHUNK):
                    eof = at + wire.CHUNK >= len(stdin)
                    if not await self._link.stdin(call, stdin[at : at + wire.CHUNK], eof):
                        return
            except SandboxError:
                return  # the command's own result says so

        return asyncio.create_task(feed())


class RunningProcess:
    """``BackgroundProcess``: output in a ring of the last megabyte."""

    def __init__(self, link: Link, session: str) -> None:
        self._link = link
        self._session = session
        self._call: Call | None = None
        self._ring = bytearray()
        self._start = 0
        self._ended: asyncio.Task[ExecResult] | None = None
        self._writing = asyncio.Lock()
        self._feeder: asyncio.Task[None] | None = None
        self.id = ""

    def attach(self, call: Call, timeout_s: float | None) -> None:
        self._call = call
        self.id = f"{self._session}.{call.request}"
        self._ended = asyncio.create_task(self._result(None if timeout_s is None else timeout_s + GRACE_S))

    def receive(self, _stream: StreamName, data: bytes) -> None:
        self._ring += data
        extra = len(self._ring) - RING_BYTES
        if extra > RING_BYTES // 4:
            del self._ring[:extra]
            self._start += extra

    async def _result(self, within_s: float | None) -> ExecResult:
        try:
            assert self._call is not None
            return _result(await self._link.result(self._call, within_s), {})
        except SandboxLostError:
            self._link.close()
            return ExecResult(outcome=Outcome.LOST, exit_code=None)

    def poll(self, since: int = 0) -> OutputChunk:
        assert self._ended is not None
        at = min(max(since, self._start), self._start + len(self._ring))
        return OutputChunk(
            data=bytes(self._ring[at - self._start :]),
            next=self._start + len(self._ring),
            dropped_bytes=max(0, self._start - since),
            result=self._ended.result() if self._ended.done() else None,
        )

    async def feed(self, data: bytes) -> None:
        """Write in the background, ahead of whatever is written later; a process may never read it."""

        async def write() -> None:
            try:
                await self.write(data)
            except SandboxError:
                return  # what became of the process says so

        if data:
            self._feeder = asyncio.create_task(write())
            await asyncio.sleep(0)  # for it to be the first in line

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        """Raises FileError ``io`` when the process no longer reads, SandboxLostError."""
        assert self._call is not None
        async with self._writing:
            for at in range(0, len(data) or 1, wire.CHUNK):
                last = at + wire.CHUNK >= len(data)
                if not await self._link.stdin(self._call, data[at : at + wire.CHUNK], eof and last):
                    raise FileError("io", "the process no longer reads its input")

    async def signal(self, number: int) -> None:
        if self._call is not None:
            self._link.signal(self._call, number)

    async def wait(self, timeout_s: float | None = None) -> ExecResult | None:
        assert self._ended is not None
        done, _ = await asyncio.wait({self._ended}, timeout=timeout_s)
        return self._ended.result() if done else None


class _Listing:
    """Takes a directory listing as it comes, one entry a line, and believes no line before it has read it."""

    def __init__(self) -> None:
        self.entries: list[DirEntry] = []
        self.partial = b""

    def receive(self, _stream: StreamName, data: bytes) -> None:
        *lines, self.partial = (self.partial + data).split(b"\n")
        if len(self.partial) > MAX_ROW_BYTES or len(self.entries) + len(lines) > wire.MAX_ENTRIES:
            raise ProtocolError("the sandbox's runner sent a directory listing that is too large")
        for line in lines:
            try:
                if len(line) > MAX_ROW_BYTES:
                    raise ValueError("too long")
                row = json.loads(line)
                self.entries.append(DirEntry(name=_name(row[0]), stat=_stat(row[1:])))
            except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
                raise ProtocolError("the sandbox's runner sent a directory entry that cannot be read") from error


def _check(request: ExecRequest) -> None:
    """Raise InvalidRequestError for what no place could carry out, before anything is sent."""
    env = request.env or {}
    if not request.argv or not request.argv[0]:
        raise InvalidRequestError("argv is empty: give at least the program to run")
    for text in (*request.argv, *env, *env.values(), request.cwd or ""):
        if not isinstance(text, str):
            raise InvalidRequestError(f"argv, environment and cwd are text, not {type(text).__name__}")
        if "\0" in text:
            raise InvalidRequestError(f"{text[:80]!r} holds a NUL byte, which no program can be given")
        if not _encodes(text):
            raise InvalidRequestError(f"{text[:80]!r} holds half a character, which no program can be given")
    for name in env:
        if not name or "=" in name:
            raise InvalidRequestError(f"{name[:80]!r} cannot name an environment variable")
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise InvalidRequestError(f"timeout_s must be above 0, not {request.timeout_s}")
    if not 0 <= request.max_output_bytes <= MAX_OUTPUT_BYTES:
        raise InvalidRequestError(f"max_output_bytes must be 0 to {MAX_OUTPUT_BYTES}, not {request.max_output_bytes}")


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _path(path: str) -> str:
    if not isinstance(path, str):
        raise InvalidRequestError(f"a path is text, not {type(path).__name__}")
    if len(path) > 65536:
        raise FileError("too_long", f"a path of {len(path)} characters is too long")
    if not _encodes(path):
        raise FileError("invalid", f"{path!r}: a path cannot hold half a character")
    return path


def _name(name: Any) -> str:
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > 1024:
        raise ValueError("not a file name")
    return name


def _stat(row: Any) -> FileStat:
    kind, size, mode, mtime = row
    if kind not in ("file", "directory", "symlink", "other") or type(size) is not int or type(mode) is not int:
        raise ValueError("not a file description")
    if not 0 <= size < 2**63 or type(mtime) not in (int, float) or not abs(mtime) < 2**63:
        raise ValueError("not a file description")
    return FileStat(kind=kind, size_bytes=size, mode=mode & 0o7777, mtime_s=float(mtime))


def _result(meta: Meta, streams: Mapping[str, bytes]) -> ExecResult:
    try:
        outcome = Outcome(checked(meta, "outcome", str))
    except ValueError:
        raise ProtocolError("the sandbox's runner sent an outcome that is not known") from None
    code = None if meta.get("code") is None else checked(meta, "code", int, -128, 255)
    if (code is None) != (outcome not in (Outcome.EXITED, Outcome.SIGNALED)):
        raise ProtocolError("the sandbox's runner sent an outcome without its exit status")
    return ExecResult(
        outcome=outcome,
        exit_code=cast("int | None", code),
        stdout=streams.get("stdout", b""),
        stderr=streams.get("stderr", b""),
        dropped_bytes=checked(meta, "dropped", int, 0),
        duration_s=checked(meta, "duration", float, 0),
        detached=checked(meta, "detached", bool),
    )
