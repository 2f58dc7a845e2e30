"""MCP servers in memory, for tests of what is above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bubbles.bus import Origin
from bubbles.mcp.contract import ServerAnswer, ServerInfo, ServerState, ServerTool
from bubbles.sessions.tokens import estimate

Answers = Callable[[ServerTool, Mapping[str, Any]], ServerAnswer]
"""May raise ``McpError``."""
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def server_tool(
    server: str,
    name: str,
    description: str = "",
    schema: Mapping[str, Any] = NO_ARGUMENTS,
    *,
    tokens: int | None = None,
) -> ServerTool:
    """As a server would have it; ``tokens`` of None follows from its texts."""
    cost = estimate(f"{name}{description}{dict(schema)}") if tokens is None else tokens
    return ServerTool(
        server=server,
        name=name,
        offered_as=f"mcp__{server}__{name}"[:64],
        description=description,
        schema=schema,
        tokens=cost,
    )


def ok(tool: ServerTool, arguments: Mapping[str, Any]) -> ServerAnswer:
    return ServerAnswer(text=f"{tool.name} got {dict(arguments)}")


@dataclass(slots=True, kw_only=True)
class FakeServers:
    """``Servers``. What is in ``has`` is ready; ``states`` are those of other servers. ``calls`` and ``waits`` are what
    it was asked; ``arriving`` comes to be there when somebody waits.
    """

    has: tuple[ServerTool, ...] = ()
    states: dict[str, ServerInfo] = field(default_factory=dict)
    answers: Answers = ok
    arriving: tuple[ServerTool, ...] = ()
    calls: list[tuple[ServerTool, Mapping[str, Any], Origin]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def tools(self, origin: Origin) -> tuple[ServerTool, ...]:
        del origin
        return self.has

    def infos(self, session_key: str | None = None) -> tuple[ServerInfo, ...]:
        del session_key
        ready = {tool.server for tool in self.has} - set(self.states)
        return (*(self._ready(name) for name in sorted(ready)), *self.states.values())

    async def settled(self, origin: Origin, within_s: float) -> None:
        del origin
        self.waits.append(within_s)
        for name in {tool.server for tool in self.arriving}:
            self.states.pop(name, None)
        if self.arriving:
            self.has, self.arriving = (*self.has, *self.arriving), ()

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any], origin: Origin) -> ServerAnswer:
        self.calls.append((tool, arguments, origin))
        return self.answers(tool, arguments)

    def gone(self, name: str, problem: str, retry_in_s: float | None = 30.0) -> None:
        """The server of this name fails, and what it had is not known any more."""
        self.has = tuple(tool for tool in self.has if tool.server != name)
        known = self.states.get(name) or ServerInfo(name=name, kind="stdio", state=ServerState.WAITING)
        self.states[name] = replace(known, state=ServerState.WAITING, problem=problem, retry_in_s=retry_in_s)

    def _ready(self, name: str) -> ServerInfo:
        count = sum(tool.server == name for tool in self.has)
        return ServerInfo(name=name, kind="stdio", state=ServerState.READY, tools=count)


def starting(*names: str) -> dict[str, ServerInfo]:
    """For ``states``."""
    return {name: ServerInfo(name=name, kind="stdio", state=ServerState.STARTING) for name in names}


def crowd(server: str, count: int, *, tokens: int = 100) -> Sequence[ServerTool]:
    """Many tools of one server."""
    return [server_tool(server, f"tool_{number}", f"Does thing {number}.", tokens=tokens) for number in range(count)]
