"""One open sandbox a session: opened once, kept across turns, closed when idle, replaced when lost or changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

from sandbox_backends.contract import SandboxBackend, SandboxSession, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, SandboxError, SandboxLostError

IDLE_S = 15 * 60.0

_log = logging.getLogger(__name__)


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

    def unusable(self, demand: tuple[str, SandboxSpec]) -> str | None:
        """Why another sandbox is needed ('' when nothing is lost by it, or that is known already), or None."""
        if self.stop.is_set():
            return ""
        if not self.ready.done():
            return None if self.demand == demand else ""
        if self.ready.exception() is not None:
            return ""
        if (lost := self.ready.result().lost) is not None:
            return lost
        return None if self.demand == demand else "its settings have changed"

    def let_go(self) -> None:
        """Close it. Whoever still uses it finds it lost; an opening that goes on is cancelled."""
        self.stop.set()
        if self.idle is not None:
            self.idle.cancel()
        if not self.ready.done():
            _fail(self.ready, SandboxLostError("the sandbox was closed before it had opened"))
            self.task.cancel()


class Sandboxes:
    """Use as an async context; leaving it closes every sandbox. All calls belong to one event loop.

    ``backend`` gives the one of a name, in a thread: its module may be large, and it looks at the host. ``reap``
    removes what earlier controllers left; it is begun when the context is entered, and nothing waits for it.
    """

    def __init__(
        self,
        backend: Callable[[str], SandboxBackend],
        *,
        idle_s: float = IDLE_S,
        reap: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._backend = backend
        self._reap_leftovers = reap
        self._reaping: asyncio.Task[None] | None = None
        self._idle_s = idle_s
        self._kept: dict[str, _Kept] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._resets: dict[str, str] = {}
        self._tasks = asyncio.TaskGroup()
        self._ending = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._reap_leftovers is not None:
            self._reaping = self._tasks.create_task(self._clean(self._reap_leftovers))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        if self._reaping is not None:
            self._reaping.cancel()
        for kept in self._kept.values():
            kept.let_go()
        # Not told of the error: it would cancel what is closing, and wrap the error in a group.
        await self._tasks.__aexit__(None, None, None)

    @asynccontextmanager
    async def use(self, backend: str, spec: SandboxSpec, *, tell_reset: bool = True) -> AsyncIterator[Lease]:
        """The sandbox of ``spec.session``, open; whatever ``backend.open`` raises is raised here and not retried, an
        OSError as BackendUnavailableError.

        One that was opened for another demand is closed first, under whoever still uses it. Without ``tell_reset`` a
        reset is left for the next one to tell: the caller does not speak with the model.
        """
        kept = await self._obtain((backend, spec))
        with self._in_use(kept):
            session = await asyncio.shield(kept.ready)
            yield Lease(session=session, reset=self._resets.pop(spec.session, None) if tell_reset else None)

    def open_ahead(
        self, backend: str, spec: SandboxSpec, on_failure: Callable[[SandboxError], None] = lambda _: None
    ) -> None:
        """Begin to open the sandbox now, so that the first tool call need not wait for it (SBX-12).

        ``on_failure`` is told why it cannot be; whoever needs it opens it again and is told too.
        """

        async def open_it() -> None:
            try:
                kept = await self._obtain((backend, spec))
                with self._in_use(kept):
                    await asyncio.shield(kept.ready)
            except SandboxLostError:
                return  # closed meanwhile
            except SandboxError as error:
                on_failure(error)
            except Exception:  # noqa: BLE001 - whoever needs the sandbox opens it again and is told
                return

        if not self._ending:
            self._tasks.create_task(open_it())

    async def close(self, session: str) -> None:
        """Close the sandbox of one session, if one is open. The next one comes without a word of it."""
        kept = self._kept.get(session)
        if kept is not None:
            kept.let_go()
            await asyncio.wait({kept.task})
        self._resets.pop(session, None)

    async def _clean(self, reap: Callable[[], Awaitable[object]]) -> None:
        try:
            await reap()
        except Exception as error:  # noqa: BLE001 - leftovers are no reason to go without sandboxes
            _log.warning("what earlier sandboxes left could not all be removed", exc_info=error)

    async def _obtain(self, demand: tuple[str, SandboxSpec]) -> _Kept:
        session = demand[1].session
        async with self._locks.setdefault(session, asyncio.Lock()):
            while (kept := self._kept.get(session)) is not None:
                why = kept.unusable(demand)
                if why is None:
                    return kept
                if why:
                    self._resets.setdefault(session, why)
                kept.let_go()
                await asyncio.wait({kept.task})
                self._forget(kept)
            return self._open(demand)

    def _open(self, demand: tuple[str, SandboxSpec]) -> _Kept:
        if self._ending:
            raise SandboxLostError("no sandbox is opened any more: the program is ending")
        ready: asyncio.Future[SandboxSession] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = self._tasks.create_task(self._keep(demand, ready, stop))
        kept = self._kept[demand[1].session] = _Kept(demand=demand, ready=ready, task=task, stop=stop)
        task.add_done_callback(lambda _: self._forget(kept))
        return kept

    async def _keep(
        self, demand: tuple[str, SandboxSpec], ready: asyncio.Future[SandboxSession], stop: asyncio.Event
    ) -> None:
        """Enter and leave the backend's context in one task, as contexts demand."""
        backend, spec = demand
        try:
            place = await asyncio.to_thread(self._backend, backend)
            async with place.open(spec) as session:
                if not ready.done():
                    ready.set_result(session)
                await stop.wait()
        except asyncio.CancelledError:
            _fail(ready, SandboxLostError("the sandbox was closed before it had opened"))
            raise
        except Exception as error:  # noqa: BLE001 - handed to every caller that waits for this sandbox
            if ready.done():
                _log.warning("the sandbox of session %s did not close as it should", spec.session, exc_info=error)
            _fail(ready, _explained(error))

    def _forget(self, kept: _Kept) -> None:
        session = kept.demand[1].session
        if self._kept.get(session) is kept:
            del self._kept[session]

    @contextmanager
    def _in_use(self, kept: _Kept) -> Iterator[None]:
        kept.users += 1
        if kept.idle is not None:
            kept.idle.cancel()
        try:
            yield
        finally:
            kept.users -= 1
            if kept.users == 0 and not kept.stop.is_set() and not kept.task.done():
                kept.idle = asyncio.get_running_loop().call_later(self._idle_s, self._reap, kept)

    def _reap(self, kept: _Kept) -> None:
        """Close one that has been idle. Nothing is to be told of one that never opened."""
        if kept.ready.done() and kept.ready.exception() is None:
            self._resets.setdefault(kept.demand[1].session, "it was idle and has been closed")
        kept.let_go()


def _explained(error: Exception) -> Exception:
    """What the machine has no more of, such as disk space or open files, said to whoever needs the sandbox."""
    if not isinstance(error, OSError):
        return error
    where = f"{error.filename}: " if error.filename else ""
    reason = f"No place can be made for the sandbox: {where}{error.strerror or error}."
    told = BackendUnavailableError(reason, "Free disk space, memory or open files, and try again.")
    told.__cause__ = error
    return told


def _fail(ready: asyncio.Future[SandboxSession], error: Exception) -> None:
    if not ready.done():
        ready.set_exception(error)
        ready.exception()  # nobody may be waiting
