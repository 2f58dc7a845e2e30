"""A sandbox session over a runner, whichever place the runner is in (SBX-02)."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from sandbox_backends.answers import MAX_ROW_BYTES, UNREADABLE, Listing, exec_result, file_stat
from sandbox_backends.background import RunningProcess
from sandbox_backends.checks import check_exec, check_path
from sandbox_backends.contract import (
    MAX_READ_BYTES,
    DirListing,
    ExecRequest,
    ExecResult,
    FileStat,
    OnOutput,
    Outcome,
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
from sandbox_backends.link import field as checked_field
from sandbox_backends.runner import wire
from sandbox_backends.seccomp import build_filter

GRACE_S = 10.0
"""How much longer than a command's own time limit its answer is awaited before the sandbox counts as lost."""


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
            result = exec_result(meta, {name: stream.value() for name, stream in kept.items()})
        except ProtocolError:
            self._link.close()
            raise
        if streaming:
            dropped = result.dropped_bytes + sum(stream.dropped for stream in kept.values())
            result = replace(result, dropped_bytes=dropped)
        if result.exit_code in (-9, 137) and self._place.oom_kills() > ooms:
            result = replace(result, outcome=Outcome.OOM, exit_code=None)
        return result

    async def start(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> RunningProcess:
        process = RunningProcess(self._link, self.id)
        one_stream = request if on_output is not None else replace(request, merge_stderr=True)
        call = self._begin_exec(one_stream, on_output or process.receive, True, open_stdin=True)
        try:
            await self._link.stdin(call, b"", False)  # answered as soon as it has begun, or could not
            process.attach(call, None if request.timeout_s is None else request.timeout_s + self._place.grace_s)
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
            {"path": check_path(path), "offset": offset, "limit": max_bytes},
            sink=lambda _, data: parts.append(data),
            budget=max_bytes,
        )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if mode is not None and not 0 <= mode <= 0o777:
            raise InvalidRequestError(f"write_file mode must be permission bits between 0 and 0o777, not {mode:#o}")
        first, rest = data[: wire.CHUNK], data[wire.CHUNK :]
        call = self._link.begin(wire.WRITE, {"path": check_path(path), "mode": mode, "eof": not rest}, first)
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
        listing = Listing()
        budget = wire.MAX_ENTRIES * MAX_ROW_BYTES
        meta = await self._link.call(wire.LIST, {"path": check_path(path)}, sink=listing.receive, budget=budget)
        if listing.partial:
            raise self._distrust("half a directory entry")
        return DirListing(entries=tuple(listing.entries), truncated=checked_field(meta, "truncated", bool))

    async def stat(self, path: str) -> FileStat:
        meta = await self._link.call(wire.STAT, {"path": check_path(path)})
        try:
            return file_stat(meta["stat"])
        except UNREADABLE as error:
            raise self._distrust("a file description that cannot be read") from error

    def _distrust(self, what: str) -> ProtocolError:
        self._link.close()
        return ProtocolError(f"the sandbox's runner sent {what}")

    def _begin_exec(self, request: ExecRequest, sink: OnOutput, streaming: bool, open_stdin: bool = False) -> Call:
        check_exec(request)
        meta: Meta = {
            "argv": list(request.argv),
            "cwd": request.cwd or "",
            "env": None if request.env is None else dict(request.env),
            "stdin": open_stdin or request.stdin is not None,
            "timeout": request.timeout_s,
            "keep": 0 if streaming else request.max_output_bytes,
            "stream": streaming,
            "merge": request.merge_stderr,
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
