"""One open sandbox a session: opened once, kept across turns, closed when idle, replaced when lost or changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from sandbox_backends.contract import SandboxBackend, SandboxSession, SandboxSpec

IDLE_S = 15 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A session's sandbox, for as long as the ``use`` context lasts."""

    session: SandboxSession
    reset: str | None
    """Why the state of an earlier sandbox of this session is gone (its processes, /tmp), the first time it is: to be
    told to the model. Files in the roots and the home remain."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Kept:
    demand: tuple[str, SandboxSpec]
    """Backend and spec that it was opened with."""
    ready: asyncio.Future[SandboxSession]
    task: asyncio.Task[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    users: int = 0
    idle: asyncio.TimerHandle | None = None


class Sandboxes:
    """Use as an async context; leaving it closes every sandbox. All calls belong to one event loop."""

    def __init__(self, backend: Callable[[str], SandboxBackend], *, idle_s: float = IDLE_S) -> None:
        self._backend = backend
        self._idle_s = idle_s
        self._kept: dict[str, _Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._resets: dict[str, str] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for kept in self._kept.values():
            self._let_go(kept)
        await self._tasks.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def use(self, backend: str, spec: SandboxSpec) -> AsyncIterator[Lease]:
        """The sandbox of ``spec.session``, open; whatever ``backend.open`` raises is raised here and not retried."""
        kept = await self._obtain(backend, spec)
        kept.users += 1
        if kept.idle is not None:
            kept.idle.cancel()
            kept.idle = None
        try:
            session = await asyncio.shield(kept.ready)
            yield Lease(session=session, reset=self._resets.pop(spec.session, None))
        finally:
            kept.users -= 1
            if kept.users == 0 and not kept.stop.is_set():
                kept.idle = asyncio.get_running_loop().call_later(self._idle_s, self._reap, kept)

    def open_ahead(self, backend: str, spec: SandboxSpec) -> None:
        """Begin to open the sandbox now, so that the first tool call need not wait for it (SBX-12)."""

        async def open_it() -> None:
            try:
                async with self.use(backend, spec):
                    pass
            except Exception:  # noqa: BLE001 - whoever needs the sandbox opens it again and is told
                return

        self._tasks.create_task(open_it())

    async def close(self, session: str) -> None:
        """Close the sandbox of one session, if one is open."""
        kept = self._kept.pop(session, None)
        if kept is not None:
            self._let_go(kept)
            await asyncio.wait({kept.task})

    async def _obtain(self, backend: str, spec: SandboxSpec) -> _Kept:
        async with self._locks.setdefault(spec.session, asyncio.Lock()):
            kept = self._kept.get(spec.session)
            if kept is not None:
                why = self._unusable(kept, backend, spec)
                if why is None:
                    return kept
                self._let_go(kept)
                await asyncio.wait({kept.task})
                if why:
                    self._resets[spec.session] = why
            return self._open(backend, spec)

    @staticmethod
    def _unusable(kept: _Kept, backend: str, spec: SandboxSpec) -> str | None:
        """Why another sandbox is needed ('' when nothing was lost by it), or None."""
        if kept.stop.is_set():
            return "it was idle and has been closed"
        if kept.ready.done() and (kept.ready.cancelled() or kept.ready.exception() is not None):
            return ""
        if kept.ready.done() and (lost := kept.ready.result().lost) is not None:
            return lost
        if kept.demand != (backend, spec):
            return "its settings have changed"
        return None

    def _open(self, backend: str, spec: SandboxSpec) -> _Kept:
        ready: asyncio.Future[SandboxSession] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = self._tasks.create_task(self._keep(backend, spec, ready, stop))
        kept = _Kept(demand=(backend, spec), ready=ready, task=task, stop=stop)
        self._kept[spec.session] = kept
        return kept

    async def _keep(
        self, backend: str, spec: SandboxSpec, ready: asyncio.Future[SandboxSession], stop: asyncio.Event
    ) -> None:
        """Enter and leave the backend's context in one task, as contexts demand."""
        try:
            async with self._backend(backend).open(spec) as session:
                ready.set_result(session)
                await stop.wait()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - handed to every caller that waits for this sandbox
            if not ready.done():
                ready.set_exception(error)
                ready.exception()  # nobody may be waiting

    def _reap(self, kept: _Kept) -> None:
        if kept.users == 0:
            self._let_go(kept)

    @staticmethod
    def _let_go(kept: _Kept) -> None:
        if kept.idle is not None:
            kept.idle.cancel()
        kept.stop.set()
