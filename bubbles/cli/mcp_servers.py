"""``bubbles mcp list``: what the configured MCP servers have, asked of each of them now (TOOL-09)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli.report import complain, print_json, print_table, run, spinner, styled, visible

if TYPE_CHECKING:
    from bubbles.config.schema import McpServerSettings, Settings
    from bubbles.mcp.contract import ServerInfo, Servers, ServerTool

Opened = Callable[["Settings"], AbstractAsyncContextManager["Servers"]]

MAX_DESCRIPTION = 100
GRACE_S = 1.0
"""Beyond the longest ``startTimeoutS``: that a server says itself why it was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All servers, once each was ready or had failed."""

    infos: tuple[ServerInfo, ...]
    tools: tuple[ServerTool, ...]

    def of(self, name: str) -> tuple[ServerTool, ...]:
        return tuple(tool for tool in self.tools if tool.server == name)


def list_servers(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> int:
    """Show each MCP server's tools, and which run without asking. Each is asked now.

    Exit status 1 when a server that is enabled cannot be used.
    """
    from bubbles.app.servers import mcp_servers
    from bubbles.config.load import load_settings

    return listed(load_settings(), mcp_servers, as_json=as_json)


def listed(settings: Settings, opened: Opened, *, as_json: bool) -> int:
    """Prints them. ``opened`` gives the servers of these settings."""
    from bubbles.mcp.client.shelf import last_seen
    from bubbles.mcp.contract import ServerState

    configured = settings.tools.mcp_servers
    if any(its.enabled for its in configured.values()):
        with spinner("asking the MCP servers"):
            seen = run(_asked(settings, opened))
    else:
        seen = Seen(infos=last_seen(settings.data_dir, configured), tools=())
    if as_json:
        print_json({"servers": [_as_json(info, seen, settings) for info in seen.infos]})
    else:
        _show(seen, settings)
    return 0 if all(info.state in (ServerState.READY, ServerState.OFF) for info in seen.infos) else 1


async def _asked(settings: Settings, opened: Opened) -> Seen:
    from bubbles.app.workshop import ONCE
    from bubbles.bus import Address, Origin

    origin = Origin(session_key=ONCE, address=Address(channel="cli", chat_id="terminal"), sender="me")
    within_s = max(its.start_timeout_s for its in settings.tools.mcp_servers.values() if its.enabled) + GRACE_S
    async with opened(settings) as servers:
        servers.tools(origin)  # begins to start them
        await servers.settled(origin, within_s)
        # Nothing is tried again: this program ends.
        infos = tuple(replace(info, retry_in_s=None) for info in servers.infos(ONCE))
        return Seen(infos=infos, tools=servers.tools(origin))


def _as_json(info: ServerInfo, seen: Seen, settings: Settings) -> dict[str, Any]:
    from bubbles.mcp.shown import as_json

    its = settings.tools.mcp_servers[info.name]
    tools = [
        {
            "name": tool.name,
            "offered_as": tool.offered_as,
            "description": tool.description,
            "tokens": tool.tokens,
            "call": _call(tool, its, settings),
        }
        for tool in seen.of(info.name)
    ]
    return {**as_json(info), "tools": tools}


def _call(tool: ServerTool, its: McpServerSettings, settings: Settings) -> str:
    """What becomes of a call, in a word, by what the gate decides of it."""
    from bubbles.controller.calls import ServerCall, decide_call
    from bubbles.controller.policy.contract import Mode, Verdict

    def verdict(*, held: bool) -> Verdict:
        call = ServerCall(server=tool.server, tool=tool.name, arguments="", allow=its.allow, held=held)
        return decide_call(call, Mode(settings.tools.approvals.mode)).verdict

    unheld = verdict(held=False)
    if unheld is Verdict.ASK and its.sandboxed and verdict(held=True) is Verdict.ALLOW:
        return "runs if the sandbox holds it"
    return {Verdict.ALLOW: "runs", Verdict.ASK: "asks", Verdict.DENY: "declined"}[unheld]


def _show(seen: Seen, settings: Settings) -> None:
    from bubbles.mcp.shown import described
    from bubbles.tools.mcp_offer import Budget, choose

    if not seen.infos:
        print("No MCP servers are configured: name one in tools.mcpServers.")
        return
    for info, line in zip(seen.infos, described(seen.infos), strict=True):
        print(styled(visible(line), "red" if _failed(info) else "bold"))
        its = settings.tools.mcp_servers[info.name]
        rows = [
            (f"  {tool.name}", _call(tool, its, settings), _first_line(tool.description)) for tool in seen.of(info.name)
        ]
        if rows:
            print_table(("  TOOL", "CALLS", "WHAT IT SAYS OF ITSELF"), rows)
    allow = {name: its.allow for name, its in settings.tools.mcp_servers.items()}
    budget = Budget.within(settings.agents.defaults.context_tokens)
    for sentence in choose(seen.tools, budget, allow).crowded.values():
        complain(sentence)


def _failed(info: ServerInfo) -> bool:
    from bubbles.mcp.contract import ServerState

    return info.state not in (ServerState.READY, ServerState.OFF)


def _first_line(text: str) -> str:
    lines: Sequence[str] = text.strip().splitlines()
    line = lines[0].strip() if lines else ""
    return line if len(line) <= MAX_DESCRIPTION else f"{line[: MAX_DESCRIPTION - 1]}…"
