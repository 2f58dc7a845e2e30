"""MCP servers in lines for a person: ``/status`` and ``bubbles status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bubbles.controller.approvals.card import shown_line
from bubbles.mcp.contract import ServerInfo, ServerState

MAX_PROBLEM = 300
WORDS = {
    ServerState.OFF: "off",
    ServerState.IDLE: "not started yet",
    ServerState.STARTING: "starting",
    ServerState.READY: "ready",
    ServerState.WAITING: "failed",
}


def described(infos: Sequence[ServerInfo]) -> list[str]:
    """A line for each server, such as ``github (stdio): ready, 34 tools``. Nothing in them is a control character."""
    return [f"{info.name} ({info.kind}): {state_of(info)}" for info in infos]


def remembered(info: ServerInfo) -> str:
    """What was last seen of it, by a program that starts nothing: ``34 tools, seen 2026-12-01 10:05 UTC``."""
    if info.state is ServerState.OFF:
        return WORDS[info.state]
    return f"{_count(info)}, seen {_moment(info)}" if info.seen else "not seen yet"


def state_of(info: ServerInfo) -> str:
    """Such as ``failed, next try in 30 s: the program ended at once``."""
    parts = [WORDS[info.state]]
    if info.state is ServerState.READY:
        parts.append(_count(info))
    elif info.tools:
        parts.append(f"{_count(info)} when last seen" + (f" ({_moment(info)})" if info.seen else ""))
    if info.state is ServerState.WAITING and info.retry_in_s is not None:
        parts.append(f"next try in {max(info.retry_in_s, 0):.0f} s")
    problem = problem_of(info)
    return f"{', '.join(parts)}: {problem}" if problem else ", ".join(parts)


def _count(info: ServerInfo) -> str:
    return f"{info.tools} {'tool' if info.tools == 1 else 'tools'}"


def _moment(info: ServerInfo) -> str:
    return shown_line(info.seen[:16].replace("T", " ")) + (" UTC" if info.seen.endswith(("+00:00", "Z")) else "")


def as_json(info: ServerInfo) -> dict[str, Any]:
    """For scripts: ``bubbles status --json``, ``bubbles mcp list --json``."""
    return {
        "name": info.name,
        "kind": info.kind,
        "state": str(info.state),
        "tool_count": info.tools,
        "problem": problem_of(info) or None,
        "retry_in_s": info.retry_in_s,
        "seen": info.seen or None,
    }


def problem_of(info: ServerInfo) -> str:
    """On one line, and short: a server may have chosen its words."""
    shown = shown_line(info.problem[: 2 * MAX_PROBLEM])
    return shown if len(shown) <= MAX_PROBLEM else f"{shown[: MAX_PROBLEM - 1]}…"
