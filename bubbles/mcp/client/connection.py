"""One server, kept at hand: started when it is first needed, and again, after longer and longer pauses, when it failed.

A task of its own owns the connection; whoever calls waits for the answer to that call and for nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bubbles.backoff import pause_s
from bubbles.mcp.client.catalogue import Catalogue
from bubbles.mcp.client.closing import Closing
from bubbles.mcp.client.endpoint import Endpoint, GoneError
from bubbles.mcp.client.library import speaking
from bubbles.mcp.client.shelf import Learnt, info_of
from bubbles.mcp.client.stderr import StderrLog
from bubbles.mcp.contract import McpError, ServerInfo, ServerState

if TYPE_CHECKING:
    from bubbles.mcp.client.session import McpSession

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
STEADY_S = 60.0
"""A server that was there for as long has shown that it can be: the pauses begin anew."""
RELIST_S, RELIST_MOST_S = 0.5, 60.0
"""How long after it said that its tools changed they are listed: it may change several. Longer if it goes on."""
SOON_S = 0.5
"""Most models take longer for their first words: a server that the reply calls is there by then."""
PING_S = 10.0
MAX_PAGES = 1_000
MAX_CALLS = 8
"""At a time. Others wait."""
MAX_PROBLEM = 400
"""Characters."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Connection:
    """All calls belong to one event loop. ``on_learnt`` is told whenever tools or problem have changed."""

    def __init__(self, endpoint: Endpoint, learnt: Learnt, spawn: Spawn, on_learnt: Callable[[Learnt], None]) -> None:
        self.endpoint = endpoint
        self.learnt = learnt
        self.slots = asyncio.Semaphore(MAX_CALLS)
        self._spawn = spawn
        self._on_learnt = on_learnt
        self._state = ServerState.IDLE
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._talk: McpSession | None = None
        self._news = asyncio.Event()
        """Something is to be looked at: the connection ended, or one of the flags below has changed."""
        self._tried = asyncio.Event()
        """It is ready, or has failed."""
        self._users = 0
        self._used_at = self._retry_at = time.monotonic()
        self._ending = self._changed = self._suspect = False

    # -- what others ask --

    @property
    def over(self) -> bool:
        """It ended since nobody used it."""
        return self._task is not None and self._task.done()

    def info(self) -> ServerInfo:
        known = info_of(self.endpoint.name, self.endpoint.settings, self.learnt)
        waiting = self._state is ServerState.WAITING
        retry_in_s = max(0.0, self._retry_at - time.monotonic()) if waiting else None
        return replace(known, state=self._state, retry_in_s=retry_in_s)

    def begin_soon(self) -> None:
        """As ``begin``; but what its tools are is known, and a turn begins: the model has the processor first."""
        if not self.learnt.tools:
            self.begin()
        elif self._timer is None and not self._ending and (self._task is None or self._task.done()):
            self._timer = asyncio.get_running_loop().call_later(SOON_S, self.begin)

    def begin(self) -> None:
        """Start it, unless it runs or waits for its next try."""
        self._unset()
        self._used_at = time.monotonic()
        if not self._ending and (self._task is None or self._task.done()):
            self._starting()
            self._task = self._spawn(self._run())

    async def tried(self) -> None:
        """Returns once it is ready or has failed."""
        await self._tried.wait()

    def end(self) -> asyncio.Task[None] | None:
        """Have it end, in good order if it is there; its task, if it runs."""
        self._unset()
        self._ending = True
        self._news.set()
        if self._task is not None and self._talk is None:
            self._task.cancel()
        return self._task

    def _unset(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """It is not idle meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._used_at = time.monotonic()

    async def reached(self) -> McpSession:
        """What to speak with; one that failed is tried again at once. Raises ``McpError``."""
        self.begin()
        within_s = self.endpoint.settings.start_timeout_s
        try:
            async with asyncio.timeout(within_s):
                if self._talk is not None and self._talk.closing.reason is not None:
                    self._gone()
                await self._tried.wait()
                if self._state is ServerState.WAITING:
                    self._starting()
                    self._news.set()
                    await self._tried.wait()
        except TimeoutError:
            raise McpError(f"The MCP server {self.endpoint.name} is not there after {within_s:g} s.") from None
        if self._talk is None:
            problem = self.learnt.problem or "it is ending"
            raise McpError(f"The MCP server {self.endpoint.name} cannot be used now:", f"{problem}.")
        return self._talk

    def doubt(self) -> None:
        """It let a call go unanswered: see whether it is there at all."""
        self._suspect = True
        self._news.set()

    # -- the task --

    def _starting(self) -> None:
        self._state = ServerState.STARTING
        self._tried.clear()

    def _gone(self) -> None:
        """Who needs it waits for what comes of the next try."""
        if self._talk is not None:
            self._talk = None
            self._starting()

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                self._starting()
                lived_s = await self._attempt()
                if self._ending:
                    return
                if lived_s is None:
                    if self._users:  # somebody came while it went
                        continue
                    return
                failures = 1 if lived_s >= STEADY_S else failures + 1
                waits_s = pause_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
                self._state, self._retry_at = ServerState.WAITING, time.monotonic() + waits_s
                self._tried.set()
                await self._pause(waits_s, lambda: self._state is not ServerState.WAITING)
        finally:
            self._state, self._talk = ServerState.IDLE, None
            self._tried.set()

    async def _attempt(self) -> float | None:
        """Connect, and stay for as long as it lasts; the seconds that it was ready, None if nobody used it any more."""
        endpoint, ready_at = self.endpoint, None
        closing, stderr = Closing(), StderrLog(endpoint.name, endpoint.redact)
        closing.on_end(self._news.set)
        self._news.clear()
        self._changed = self._suspect = False
        try:
            speaks = await speaking()
        except Exception as error:  # noqa: BLE001 - a library that is damaged costs its servers and nothing else
            self._failed(f"what speaks with servers cannot be loaded ({type(error).__name__})", stderr)
            return 0.0
        deadline = asyncio.timeout(endpoint.settings.start_timeout_s)
        try:
            async with deadline, speaks.begun(endpoint, closing, self._note_change, stderr) as talk:
                await self._learn(talk)
                deadline.reschedule(None)
                self._used_at = ready_at = time.monotonic()
                self._talk, self._state = talk, ServerState.READY
                self._tried.set()
                await self._while_it_lives(talk)
                self._gone()
            if closing.reason is None:
                return None
            self._failed(closing.reason, stderr)
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of a server: that one is not there
            if deadline.expired() and closing.reason is None:
                self._failed(f"it did not say within {endpoint.settings.start_timeout_s:g} s what tools it has", stderr)
            else:
                self._failed(closing.reason or closing.hint or speaks.explained(error), stderr)
        finally:
            self._gone()
        return 0.0 if ready_at is None else time.monotonic() - ready_at

    def _failed(self, reason: str, stderr: StderrLog) -> None:
        said = stderr.last
        words = self.endpoint.redact(reason[: 4 * MAX_PROBLEM]) + (f"; it said: {said}" if said else "")
        self._tell(replace(self.learnt, problem=" ".join(words.split())[:MAX_PROBLEM]))

    def _tell(self, learnt: Learnt) -> None:
        if learnt != self.learnt:
            self.learnt = learnt
            self._on_learnt(learnt)

    async def _learn(self, talk: McpSession) -> None:
        catalogue = Catalogue(self.endpoint.name, self.endpoint.settings.tools, self.endpoint.mask)
        pages = 0
        async for rows in talk.pages():
            await asyncio.to_thread(catalogue.take, rows)
            pages += 1
            if catalogue.full or pages >= MAX_PAGES:
                catalogue.fault("there may be more of its tools than are kept")
                break
        before = self.learnt.tools
        same = await asyncio.to_thread(lambda: catalogue.tools == before)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._tell(Learnt(tools=before if same else catalogue.tools, seen=now, problem=catalogue.problem))

    async def _while_it_lives(self, talk: McpSession) -> None:
        """Returns when it ended, is to end, or nobody uses it."""
        pause_s, listed_at = RELIST_S, 0.0
        while talk.closing.reason is None and not self._ending:
            if self._suspect:
                self._suspect = False
                await self._check_up(talk)
            elif self._changed:
                pause_s = RELIST_S if time.monotonic() - listed_at > 2 * pause_s else min(2 * pause_s, RELIST_MOST_S)
                if await self._pause(pause_s, lambda: talk.closing.reason is not None):
                    self._changed = False
                    async with asyncio.timeout(self.endpoint.settings.start_timeout_s):
                        await self._learn(talk)
                    listed_at = time.monotonic()
            elif self.endpoint.origin is None:
                await self._news.wait()
                self._news.clear()
            elif (
                await self._pause(self._used_at + self.endpoint.idle_s - time.monotonic(), self._is_news)
                and self._is_idle()
            ):
                return

    async def _check_up(self, talk: McpSession) -> None:
        async def ping() -> None:
            try:
                await talk.ping()
            except GoneError:
                return

        asking = self._spawn(ping())
        asking.add_done_callback(lambda _: self._news.set())
        if await self._pause(PING_S, lambda: asking.done() or talk.closing.reason is not None):
            talk.closing.end("it does not answer any more")
        asking.cancel()

    async def _pause(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Whether it was a pause to its end; ``until`` is asked at any news."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                while not self._ending and not until():
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            return True
        return False

    def _is_news(self) -> bool:
        return self._changed or self._suspect or (self._talk is not None and self._talk.closing.reason is not None)

    def _is_idle(self) -> bool:
        return self._users == 0 and time.monotonic() - self._used_at >= self.endpoint.idle_s

    def _note_change(self) -> None:
        self._changed = True
        self._news.set()
