"""A command that goes on in a place while others run."""

from __future__ import annotations

import asyncio

from sandbox_backends.answers import exec_result
from sandbox_backends.contract import ExecResult, Outcome, OutputChunk, StreamName
from sandbox_backends.errors import FileError, SandboxError, SandboxLostError
from sandbox_backends.link import Call, Link
from sandbox_backends.runner import wire

RING_BYTES = 1 << 20


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

    def attach(self, call: Call, within_s: float | None) -> None:
        """It has begun; past ``within_s`` without its end the sandbox counts as lost."""
        self._call = call
        self.id = f"{self._session}.{call.request}"
        self._ended = asyncio.create_task(self._result(within_s))

    def receive(self, _stream: StreamName, data: bytes) -> None:
        self._ring += data
        extra = len(self._ring) - RING_BYTES
        if extra > RING_BYTES // 4:
            del self._ring[:extra]
            self._start += extra

    async def _result(self, within_s: float | None) -> ExecResult:
        try:
            assert self._call is not None
            return exec_result(await self._link.result(self._call, within_s), {})
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
