"""The configured MCP servers (TOOL-09): the tools they have, and calls of them.

One connection serves the whole program, or, for a server that runs in sandboxes, one each session.
"""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bubbles.bus import Origin
from bubbles.config.schema import McpServerSettings
from bubbles.mcp.client.calls import call
from bubbles.mcp.client.connection import Connection
from bubbles.mcp.client.endpoint import IDLE_S, Endpoint
from bubbles.mcp.client.secrets import secrets_of_server
from bubbles.mcp.client.shelf import NOTHING, Learnt, Shelf, info_of
from bubbles.mcp.contract import McpError, ServerAnswer, ServerInfo, ServerTool, Starter

GENTLE_S = 1.5
"""How long servers may take to end in good order."""
SHELF_S = 0.5
"""How long the start may wait for what was learnt before; what takes longer comes a little later."""
MAX_OFFERS = 64
"""Of tools, that are remembered: each session may have another one."""

Key = tuple[str, str]
"""Server, and session; the latter is empty for a server that serves the whole program."""
Parts = tuple[tuple[ServerTool, ...], ...]


class McpServers:
    """``Servers``. Use as an async context; leaving it ends every server. All calls belong to one event loop.

    ``env`` says which proxy is used; ``redact`` takes secrets out of what is logged and shown;
    a server in a sandbox ends when nobody has used it for ``idle_s`` seconds.
    """

    def __init__(
        self,
        settings: Mapping[str, McpServerSettings],
        starter: Starter,
        data_dir: Path,
        *,
        env: Mapping[str, str],
        redact: Callable[[str], str] = str,
        idle_s: float = IDLE_S,
    ) -> None:
        self._settings = settings
        self._starter = starter
        self._shelf = Shelf(data_dir)
        self._env = env
        self._redact = redact
        self._idle_s = idle_s
        self._learnt: dict[str, Learnt] = {}
        self._connections: dict[Key, Connection] = {}
        self._offers: deque[tuple[Parts, tuple[ServerTool, ...]]] = deque(maxlen=MAX_OFFERS)
        self._writing: dict[str, asyncio.Lock] = {}
        self._tasks = asyncio.TaskGroup()
        self._ending = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._settings:
            loading = self._tasks.create_task(self._load())
            await asyncio.wait({loading}, timeout=SHELF_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        tasks = {task for one in self._connections.values() if (task := one.end()) is not None}
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=GENTLE_S)
        finally:
            for task in tasks:
                task.cancel()
            # Not told of the error: it would cancel what is written, and wrap the error in a group.
            await self._tasks.__aexit__(None, None, None)

    # -- Servers --

    def begin(self, origin: Origin) -> None:
        """Start what is not started, without waiting for it."""
        for _, connection in self._of(origin):
            connection.begin()

    def tools(self, origin: Origin) -> tuple[ServerTool, ...]:
        for _, connection in self._of(origin):
            connection.begin_soon()
        parts = tuple(connection.learnt.tools for _, connection in self._of(origin))
        for these, offer in self._offers:
            if len(these) == len(parts) and all(map(operator.is_, these, parts)):
                return offer
        offer = _without_doubles(parts)
        self._offers.append((parts, offer))
        return offer

    def infos(self, session_key: str | None = None) -> tuple[ServerInfo, ...]:
        return tuple(self._info(name, session_key) for name in self._settings)

    async def settled(self, origin: Origin, within_s: float) -> None:
        self.begin(origin)
        waits = [asyncio.create_task(connection.tried()) for _, connection in self._of(origin)]
        if not waits:
            return
        try:
            await asyncio.wait(waits, timeout=within_s)
        finally:
            for wait in waits:
                wait.cancel()

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any], origin: Origin) -> ServerAnswer:
        settings = self._settings.get(tool.server)
        if settings is None or not settings.enabled or self._ending:
            raise McpError(f"There is no MCP server {tool.server} now.")
        connection = self._connection(tool.server, settings, origin)
        async with connection.in_use():
            return await call(connection, tool, arguments)

    # -- inside --

    def _of(self, origin: Origin) -> Iterator[tuple[str, Connection]]:
        """The servers that this session can reach, in the order of the settings."""
        if self._ending:
            return
        for name, settings in self._settings.items():
            if settings.enabled:
                yield name, self._connection(name, settings, origin)

    def _connection(self, name: str, settings: McpServerSettings, origin: Origin) -> Connection:
        key = (name, origin.session_key if settings.sandboxed else "")
        found = self._connections.get(key)
        if found is None:
            self._forget_idle()
            found = self._connections[key] = self._made(name, settings, origin if settings.sandboxed else None)
        return found

    def _made(self, name: str, settings: McpServerSettings, origin: Origin | None) -> Connection:
        own = secrets_of_server(settings)
        endpoint = Endpoint(
            name=name,
            settings=settings,
            starter=self._starter,
            env=self._env,
            redact=lambda text: self._redact(own.mask(text)),
            mask=own.mask,
            origin=origin,
            idle_s=self._idle_s,
        )
        return Connection(endpoint, self._learnt.get(name, NOTHING), self._spawn, partial(self._keep, name, settings))

    def _spawn(self, running: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(running)

    def _forget_idle(self) -> None:
        """Of sessions that are long gone."""
        for key in [key for key, connection in self._connections.items() if key[1] and connection.over]:
            del self._connections[key]

    def _info(self, name: str, session_key: str | None) -> ServerInfo:
        found = self._connections.get((name, "")) or self._connections.get((name, session_key or ""))
        if found is None or not self._settings[name].enabled:
            return info_of(name, self._settings[name], self._learnt.get(name, NOTHING))
        return found.info()

    async def _load(self) -> None:
        for name, settings in self._settings.items():
            if settings.enabled:
                learnt = await asyncio.to_thread(self._shelf.read, name, settings)
                self._learnt.setdefault(name, learnt)

    def _keep(self, name: str, settings: McpServerSettings, learnt: Learnt) -> None:
        self._learnt[name] = learnt
        self._tasks.create_task(self._write(name, settings))

    async def _write(self, name: str, settings: McpServerSettings) -> None:
        async with self._writing.setdefault(name, asyncio.Lock()):
            await asyncio.to_thread(self._shelf.write, name, settings, self._learnt[name])


def _without_doubles(parts: Parts) -> tuple[ServerTool, ...]:
    """No two that the model would call alike: the first stays."""
    found: dict[str, ServerTool] = {}
    for part in parts:
        for tool in part:
            found.setdefault(tool.offered_as, tool)
    return tuple(found.values())
