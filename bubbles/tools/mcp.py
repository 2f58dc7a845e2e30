"""The tools of MCP servers, for the model (TOOL-09). Calls pass the gate for calls (DEC-11).

Tools that fit stand in every request; the others, and those of servers that are not there yet, are found by
``mcp_find`` and called by ``mcp_call``. No request waits for a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from bubbles.bus import Origin
from bubbles.config.schema import McpServerSettings
from bubbles.controller.approvals.card import shown_line
from bubbles.controller.calls import CallGate, ServerCall
from bubbles.mcp.contract import McpError, ServerInfo, Servers, ServerState, ServerTool
from bubbles.mcp.shown import state_of
from bubbles.providers.contract import ToolCall, ToolSpec
from bubbles.tools import mcp_arguments, mcp_search
from bubbles.tools.contract import Args, PlaceOf, ToolError, ToolResult
from bubbles.tools.mcp_offer import Budget, choose
from bubbles.tools.schema import parameters, read_arguments
from bubbles.tools.truncate import LONG
from bubbles.tools.untrusted import marked

FIND = "mcp_find"
CALL = "mcp_call"
WAIT_S = 5.0
"""That a search waits for servers that are starting."""
MAX_KNOWN = 256
"""Sets of tools that are remembered: each session with a server in its own sandbox may have one of its own."""
MAX_OFFERS = 16
"""Made of one such set."""
MAX_NAME = 80
MOVED = "The session's sandbox was changed while this call waited, so it was not made: call again."
NOT_THERE = (ServerState.IDLE, ServerState.STARTING, ServerState.WAITING)


def _object(value: object) -> object:
    """Some models write an object as the text of one."""
    return mcp_arguments.read_object(value) if isinstance(value, str) else value


class FindArgs(Args):
    query: Annotated[str, Field(max_length=1_000)] = ""
    """Words for what you want to do, or a tool's name. Left out: the names of all."""


class CallArgs(Args):
    tool: Annotated[str, Field(max_length=200)]
    """Its name as mcp_find gave it."""
    arguments: Annotated[dict[str, Any], BeforeValidator(_object)] = Field(default_factory=dict)
    """As the tool's own schema says."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A set of tools, and what was made of it."""

    tools: tuple[ServerTool, ...]
    offers: dict[tuple[Budget, tuple[str, ...]], tuple[ToolSpec, ...]] = field(default_factory=dict)
    """By the servers that are not there: what the model is offered then."""

    @cached_property
    def by_name(self) -> Mapping[str, ServerTool]:
        return {tool.offered_as: tool for tool in self.tools}

    @cached_property
    def servers(self) -> frozenset[str]:
        return frozenset(tool.server for tool in self.tools)


class McpTools:
    """``ToolSource``. Safe for concurrent use inside one event loop."""

    def __init__(
        self,
        servers: Servers,
        gate: CallGate,
        settings: Mapping[str, McpServerSettings],
        *,
        place_of: PlaceOf,
        budget_of: Callable[[Origin], Budget] = lambda _: Budget(),
        on_warning: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``place_of``: the sandbox of a session, for the servers that run in it. ``on_warning`` is told once of each
        server that does not fit into the budget.
        """
        self._servers = servers
        self._gate = gate
        self._settings = {name: its for name, its in settings.items() if its.enabled}
        self._place_of = place_of
        self._budget_of = budget_of
        self._on_warning = on_warning
        self._known: dict[int, tuple[tuple[ServerTool, ...], _Known]] = {}
        self._warned: set[str] = set()

    def specs(self, origin: Origin) -> tuple[ToolSpec, ...]:
        known = self._now(origin)
        key = self._budget_of(origin), self._absent(known, origin)
        found = known.offers.get(key)
        if found is None:
            if len(known.offers) >= MAX_OFFERS:
                known.offers.clear()
            found = known.offers[key] = self._offered(known, *key)
        return found

    def hint(self, call: ToolCall) -> str | None:
        if call.name == FIND:
            return f"{FIND}({shown_line(read_arguments(FindArgs, call.arguments).query)})"
        if call.name == CALL:
            wanted = read_arguments(CallArgs, call.arguments)
            name, arguments = wanted.tool, wanted.arguments
        else:
            name, arguments = call.name, None
        tool = next((known.by_name[name] for _, known in self._known.values() if name in known.by_name), None)
        if tool is None:
            return None
        if arguments is None:
            arguments = mcp_arguments.read_object(call.arguments)
        return mcp_arguments.hint(tool.server, tool.name, arguments)

    async def run(self, call: ToolCall, origin: Origin) -> ToolResult | None:
        """Also tools that are not among those offered: a model calls by its name what ``mcp_find`` showed it."""
        if not self._settings:
            return None
        if call.name == FIND:
            return await self._find(read_arguments(FindArgs, call.arguments).query, origin)
        if call.name == CALL:
            wanted = read_arguments(CallArgs, call.arguments)
            return await self._call(self._named(wanted.tool, origin), wanted.arguments, origin)
        tool = self._now(origin).by_name.get(call.name)
        if tool is None:
            self._check_absent(call.name, origin)
            return None
        return await self._call(tool, mcp_arguments.read_object(call.arguments), origin)

    def _now(self, origin: Origin) -> _Known:
        """What there is for this session: begins to start what is not started."""
        tools = self._servers.tools(origin)
        held = self._known.pop(id(tools), None)
        if held is None:  # the tuple is kept with it: its id is its own as long as it is
            same = next((known for _, known in self._known.values() if known.tools == tools), None)
            held = tools, same or _Known(tools=tools)
        self._known[id(tools)] = held
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return held[1]

    def _absent(self, known: _Known, origin: Origin) -> tuple[str, ...]:
        """Servers whose tools are not known, but may come."""
        if self._settings.keys() <= known.servers:
            return ()
        infos = self._servers.infos(origin.session_key)
        return tuple(sorted(info.name for info in infos if info.state in NOT_THERE and info.name not in known.servers))

    def _offered(self, known: _Known, budget: Budget, absent: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        choice = choose(known.tools, budget, {name: its.allow for name, its in self._settings.items()})
        for server, sentence in choice.crowded.items():
            if server not in self._warned:
                self._warned.add(server)
                self._on_warning(sentence)
        native = tuple(_spec(tool) for tool in choice.native)
        return (*native, *_finders(choice.rest, absent)) if choice.rest or absent else native

    async def _find(self, query: str, origin: Origin) -> ToolResult:
        known = self._now(origin)
        if self._absent(known, origin):
            await self._servers.settled(origin, WAIT_S)
            known = self._now(origin)
        said = []
        if not known.tools:
            said.append("No tools of MCP servers are there now.")
        else:
            text = await asyncio.to_thread(_searched, known.tools, query)
            said.append(text)
        missing = [info for info in self._servers.infos(origin.session_key) if _is_missing(info, known)]
        if missing:
            states = "; ".join(f"{info.name} ({state_of(info)})" for info in missing)
            said.append(f"Not there now:\n{marked(states, 'these MCP servers')}")
        return ToolResult(text="\n\n".join(said), is_error=not known.tools)

    def _named(self, name: str, origin: Origin) -> ServerTool:
        """The tool that a model means. Raises ToolError."""
        known = self._now(origin)
        if (tool := known.by_name.get(name)) is not None:
            return tool
        alike = [tool for tool in known.tools if name in (tool.name, f"{tool.server}.{tool.name}")]
        if len(alike) == 1:
            return alike[0]
        self._check_absent(name, origin)
        raise ToolError(f"There is no MCP tool '{shown_line(name[:MAX_NAME])}': look for its name with {FIND}.")

    def _check_absent(self, name: str, origin: Origin) -> None:
        """Raises ToolError if this is a tool of a server that is not there now."""
        for info in self._servers.infos(origin.session_key):
            if info.state in NOT_THERE and name.startswith(f"mcp__{info.name}__"):
                state = marked(state_of(info), _source(info.name))
                raise ToolError(f"The MCP server {info.name} is not there now:\n{state}")

    async def _call(self, tool: ServerTool, arguments: dict[str, Any], origin: Origin) -> ToolResult:
        mcp_arguments.check(arguments, tool)
        settings, source = self._settings.get(tool.server), _source(tool.server)
        text = mcp_arguments.written(arguments, by_http=settings is not None and settings.url is not None)
        wanted = self._server_call(tool, text, settings, origin)
        try:
            async with self._gate.permitted(wanted, origin):
                if self._server_call(tool, text, settings, origin) != wanted:
                    raise ToolError(MOVED)
                answer = await self._servers.call(tool, arguments, origin)
        except McpError as error:
            raise ToolError(_explained(error, source)) from None
        if not answer.text:
            said = "It gave an error without words." if answer.is_error else "It gave no text."
            return ToolResult(text=said, is_error=answer.is_error, images=answer.images)
        long = len(answer.text) > LONG
        shown = await asyncio.to_thread(marked, answer.text, source) if long else marked(answer.text, source)
        return ToolResult(text=shown, is_error=answer.is_error, images=answer.images)

    def _server_call(
        self, tool: ServerTool, text: str, settings: McpServerSettings | None, origin: Origin
    ) -> ServerCall:
        allow = () if settings is None else settings.allow
        if settings is None or not settings.sandboxed:
            return ServerCall(server=tool.server, tool=tool.name, arguments=text, allow=allow)
        place = self._place_of(origin)
        return ServerCall(
            server=tool.server,
            tool=tool.name,
            arguments=text,
            allow=allow,
            backend=place.backend,
            directory=place.directory(None if settings.cwd is None else str(settings.cwd)),
            network=place.network,
            held=place.contained and place.offline,
        )


def _source(server: str) -> str:
    return f"the MCP server {server}"


def _explained(error: McpError, source: str) -> str:
    """What the server says of its failure is in its own words too."""
    return f"{error.told}\n{marked(error.said, source)}" if error.said else error.told


def _spec(tool: ServerTool) -> ToolSpec:
    description = tool.description or f"{tool.name} of the MCP server {tool.server}."
    return ToolSpec(name=tool.offered_as, description=description, parameters=tool.schema)


def _finders(rest: Sequence[ServerTool], absent: Sequence[str]) -> tuple[ToolSpec, ToolSpec]:
    counts = {server: sum(tool.server == server for tool in rest) for server in {tool.server: None for tool in rest}}
    more = [f"{server} ({count} more)" for server, count in counts.items()] + [
        f"{name} (not seen yet)" for name in absent
    ]
    find = (
        f"Find tools of MCP servers that are not among yours: {', '.join(more)}. Gives names, descriptions and schemas "
        f"of those that fit, for {CALL}."
    )
    call = f"Call a tool of an MCP server that {FIND} has found."
    return (
        ToolSpec(name=FIND, description=find, parameters=parameters(FindArgs)),
        ToolSpec(name=CALL, description=call, parameters=parameters(CallArgs)),
    )


def _searched(tools: Sequence[ServerTool], query: str) -> str:
    servers = "MCP servers: " + ", ".join(dict.fromkeys(tool.server for tool in tools))
    found = mcp_search.search(tools, query)
    if not found.tools:
        said = f"No tool has a word of that; these are all {len(tools)}:" if query.strip() else f"All {len(tools)}:"
        return f"{said}\n{marked(mcp_search.listed(tools), servers)}"
    more = f", the best of {len(found.tools) + found.more} that have a word of it" if found.more else ""
    return f"{len(found.tools)} found{more}; {CALL} calls one.\n{marked(mcp_search.shown(found), servers)}"


def _is_missing(info: ServerInfo, known: _Known) -> bool:
    return info.state is ServerState.WAITING or (info.state in NOT_THERE and info.name not in known.servers)
