"""MCP servers as a program has them, over a bench of real sandboxes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.bus import Address, Origin
from bubbles.config.schema import McpServerSettings
from bubbles.controller.contract import Workplace
from bubbles.controller.programs import Launcher
from bubbles.controller.sandboxes import Sandboxes
from bubbles.mcp.contract import ServerAnswer, ServerInfo, ServerTool
from bubbles.mcp.servers import McpServers
from sandbox_backends.contract import Enforces, SandboxSpec
from tests.places import Bench, make_bench

HERE = Path(__file__).parent
HOSTILE = HERE / "hostile.py"
REAL = HERE / "real.py"


def origin(session: str = "test") -> Origin:
    return Origin(session_key=session, address=Address(channel="cli", chat_id="1"), sender="me")


def hostile(mode: str = "plain", **more: Any) -> McpServerSettings:
    given = {"start_timeout_s": 10.0, "call_timeout_s": 10.0, **more}
    return McpServerSettings(command=sys.executable, args=(str(HOSTILE), mode), **given)


def real(**more: Any) -> McpServerSettings:
    return McpServerSettings(command=sys.executable, args=(str(REAL), "stdio"), start_timeout_s=15, **more)


@dataclass(slots=True, kw_only=True)
class Scene:
    bench: Bench
    sandboxes: Sandboxes
    backend: str = "local"
    env: Mapping[str, str] = field(default_factory=dict)
    """In which proxies are looked for."""
    specs: dict[str, SandboxSpec] = field(default_factory=dict)
    """Of sessions that have had a turn."""

    @property
    def data_dir(self) -> Path:
        return self.bench.base / "data"

    def place_of(self, origin: Origin) -> Workplace:
        return Workplace(
            backend=self.backend,
            spec=self.specs[origin.session_key],
            enforces=Enforces.NOTHING,
            home=str(self.bench.base),
            person_home=str(self.bench.base),
        )

    @asynccontextmanager
    async def servers(self, idle_s: float = 900, **settings: McpServerSettings) -> AsyncIterator[McpServers]:
        launcher = Launcher(self.sandboxes, lambda: self.bench.backend("local"), self.place_of)
        async with McpServers(settings, launcher, self.data_dir, env=self.env, idle_s=idle_s) as servers:
            yield servers

    @asynccontextmanager
    async def tools(self, settings: McpServerSettings) -> AsyncIterator[Tools]:
        """One server called ``one``, once it is ready or has failed."""
        async with self.servers(one=settings) as servers:
            tools = Tools(servers)
            await tools.settled()
            yield tools


class Tools:
    """Those of a server called ``one``, for one session."""

    def __init__(self, servers: McpServers, session: str = "test") -> None:
        self.servers = servers
        self.origin = origin(session)

    async def settled(self, within_s: float = 15.0) -> None:
        await self.servers.settled(self.origin, within_s)

    @property
    def info(self) -> ServerInfo:
        (info,) = self.servers.infos(self.origin.session_key)
        return info

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools(self.origin)]

    def tool(self, name: str) -> ServerTool:
        return next(tool for tool in self.servers.tools(self.origin) if tool.name == name)

    async def answer(self, name: str, /, **arguments: Any) -> ServerAnswer:
        return await self.servers.call(self.tool(name), arguments, self.origin)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.answer(name, **arguments)).text


@asynccontextmanager
async def a_scene(base: Path, backend: str = "local", sessions: tuple[str, ...] = ("test",)) -> AsyncIterator[Scene]:
    bench = await asyncio.to_thread(make_bench, base)
    async with Sandboxes(bench.backend) as sandboxes:
        specs = {session: bench.spec(session=session) for session in sessions}
        yield Scene(bench=bench, sandboxes=sandboxes, backend=backend, specs=specs)
    await asyncio.to_thread(bench.owner.close)


@contextmanager
def real_over_http(
    *words: str, key: str = "", port: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a real server, and its process."""
    env = {**os.environ, "KEY": key, **({"PORT": str(port)} if port else {})}
    process = subprocess.Popen([sys.executable, str(REAL), "http", *words], stdout=subprocess.PIPE, env=env)
    with process:
        try:
            assert process.stdout is not None
            found = int(process.stdout.readline())
            yield f"http://127.0.0.1:{found}/mcp", process
        finally:
            process.kill()
