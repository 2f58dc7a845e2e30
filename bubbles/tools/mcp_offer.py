"""Which tools of MCP servers stand in every request, and which are left to be found (B084).

A crowd of tools would fill the model's context before the first question, and some vendors refuse a request with more
tools than they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bubbles.controller.calls import named
from bubbles.mcp.contract import ServerTool

OTHER_TOOLS = 20
"""Of a request's tools: Bubbles' own, and those by which the rest is found."""
SHARE = 5
"""A request may be filled by tools of servers up to one part in so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much of a request the tools of servers may be. What is over it is found by ``mcp_find``."""

    server_tools: int = 40
    server_tokens: int = 8_000
    all_tools: int = 200
    all_tokens: int = 24_000

    @classmethod
    def within(cls, context_tokens: int, request_tools: int | None = None) -> Budget:
        """For requests of at most ``context_tokens`` and, if the vendor has such a limit, ``request_tools`` tools in
        all: 128 with OpenAI and GitHub Copilot, which refuse a request with more.
        """
        usual = cls()
        room = usual.all_tools if request_tools is None else max(request_tools - OTHER_TOOLS, 0)
        return cls(all_tools=min(usual.all_tools, room), all_tokens=min(usual.all_tokens, context_tokens // SHARE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    native: tuple[ServerTool, ...]
    """In the order of the servers."""
    rest: tuple[ServerTool, ...]
    crowded: Mapping[str, str]
    """By server: a sentence for the person about what did not fit."""


def choose(tools: Sequence[ServerTool], budget: Budget, allow: Mapping[str, Sequence[str]]) -> Choice:
    """What fits, fairly: no server takes the room of a smaller one. First come those that its owner allows to run
    without asking (``allow``, by server), then in the server's own order.
    """
    by_server: dict[str, list[ServerTool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    counts = {server: min(len(its), budget.server_tools) for server, its in by_server.items()}
    counts = _shares(counts, budget.all_tools)
    costs = {server: min(sum(tool.tokens for tool in its), budget.server_tokens) for server, its in by_server.items()}
    costs = _shares(costs, budget.all_tokens)
    taken: set[int] = set()
    crowded = {}
    for server, its in by_server.items():
        fitting = _fitting(its, counts[server], costs[server], allow.get(server, ()))
        taken.update(map(id, fitting))
        if len(fitting) < len(its):
            crowded[server] = _told(server, len(its), len(fitting), sum(tool.tokens for tool in its))
    return Choice(
        native=tuple(tool for tool in tools if id(tool) in taken),
        rest=tuple(tool for tool in tools if id(tool) not in taken),
        crowded=crowded,
    )


def _shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """Who wants little gets it; the others share evenly what that leaves."""
    shares = {}
    for left, server in enumerate(sorted(wanted, key=lambda server: wanted[server])):
        shares[server] = min(wanted[server], room // (len(wanted) - left))
        room -= shares[server]
    return shares


def _fitting(tools: Iterable[ServerTool], count: int, tokens: int, allow: Sequence[str]) -> list[ServerTool]:
    fitting: list[ServerTool] = []
    for tool in sorted(tools, key=lambda tool: named(tool.name, allow) is None):
        if len(fitting) < count and tool.tokens <= tokens:
            fitting.append(tool)
            tokens -= tool.tokens
    return fitting


def _told(server: str, count: int, fitting: int, tokens: int) -> str:
    return (
        f"The MCP server {server} has {count} tools, about {tokens:,} tokens in every request: {fitting} of them are "
        f"offered to the model, which finds the others with mcp_find. To choose them yourself, name those you need in "
        f"tools.mcpServers.{server}.tools."
    )
