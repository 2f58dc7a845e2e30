"""``bubbles mcp list``: each server is asked, and what it has is shown with what becomes of a call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles.cli.mcp_servers import Opened, listed
from bubbles.config.schema import Settings
from bubbles.mcp.contract import ServerInfo, Servers, ServerState
from bubbles.mcp.fake import FakeServers, crowd, server_tool, starting
from bubbles.mcp.shown import as_json, described, remembered

pytestmark = pytest.mark.req("TOOL-09", "DEC-11")

ISSUE = server_tool("github", "create_issue", "Creates an issue.\nAnd more.")
PING = server_tool("github", "ping")


def settings(tmp_path: Path, mode: str = "ask", **servers: dict[str, Any]) -> Settings:
    written = {name: {"command": "x", **its} for name, its in servers.items()}
    tools = {"mcp_servers": written, "approvals": {"mode": mode}}
    return Settings.model_validate(
        {"data_dir": tmp_path / "data", "person_home": tmp_path, "host_env": {}, "tools": tools}
    )


def opening(servers: FakeServers) -> Opened:
    @asynccontextmanager
    async def opened(_: Settings) -> AsyncIterator[Servers]:
        yield servers

    return opened


def never(_: Settings) -> Any:
    raise AssertionError("nothing is to be started")


def test_each_server_is_shown_with_its_tools_and_what_becomes_of_a_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = FakeServers(arriving=(ISSUE, PING), states=starting("github"))
    its = settings(tmp_path, github={"allow": ["create_*"], "start_timeout_s": 7})
    assert listed(its, opening(servers), as_json=False) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "github (stdio): ready, 2 tools"
    assert [line.split() for line in shown[1:]] == [
        ["TOOL", "CALLS", "WHAT", "IT", "SAYS", "OF", "ITSELF"],
        ["create_issue", "runs", "Creates", "an", "issue."],
        ["ping", "asks"],
    ]
    assert servers.waits == [8.0]


@pytest.mark.parametrize(
    ("mode", "sandboxed", "call"),
    [
        ("ask", False, "asks"),
        ("deny", False, "declined"),
        ("trust_sandbox", False, "asks"),
        ("trust_sandbox", True, "runs if the sandbox holds it"),
    ],
)
def test_what_becomes_of_a_call_follows_from_the_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, sandboxed: bool, call: str
) -> None:
    its = settings(tmp_path, mode, github={"sandboxed": sandboxed, "allow": ["ping"]})
    assert listed(its, opening(FakeServers(has=(ISSUE, PING))), as_json=True) == 0
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    assert [(tool["name"], tool["call"]) for tool in server["tools"]] == [("create_issue", call), ("ping", "runs")]


def test_a_server_that_cannot_be_used_is_the_exit_status_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = FakeServers(has=(PING,))
    servers.gone("broken", "The program 'x\x1b[31m' is not there.")
    its = settings(tmp_path, github={}, broken={})
    assert listed(its, opening(servers), as_json=False) == 1
    shown = capsys.readouterr().out
    assert "github (stdio): ready, 1 tool" in shown
    assert "broken (stdio): failed: The program 'x" in shown
    assert "\x1b" not in shown
    assert listed(its, opening(servers), as_json=True) == 1
    found = {server["name"]: server for server in json.loads(capsys.readouterr().out)["servers"]}
    assert found["broken"]["state"] == "waiting"
    assert found["broken"]["problem"].startswith("The program")
    assert found["github"]["problem"] is None


def test_one_that_is_still_starting_when_its_time_is_over_counts_as_failed(tmp_path: Path) -> None:
    assert listed(settings(tmp_path, slow={}), opening(FakeServers(states=starting("slow"))), as_json=True) == 1


def test_nothing_is_started_where_all_are_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(settings(tmp_path), never, as_json=False) == 0
    assert capsys.readouterr().out == "No MCP servers are configured: name one in tools.mcpServers.\n"
    assert listed(settings(tmp_path, old={"enabled": False}), never, as_json=False) == 0
    assert capsys.readouterr().out == "old (stdio): off\n"


def test_a_server_with_too_much_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B084."""
    servers = FakeServers(has=(*crowd("flood", 60), server_tool("flood", "odd", f"a\u202eb{'x' * 300}")))
    assert listed(settings(tmp_path, flood={}), opening(servers), as_json=False) == 0
    shown = capsys.readouterr()
    assert "The MCP server flood has 61 tools" in shown.err
    assert "\u202e" not in shown.out
    assert max(map(len, shown.out.splitlines())) < 150


INFO = ServerInfo(name="a", kind="http", state=ServerState.IDLE, tools=3, seen="2026-12-01T10:05:06+00:00")


@pytest.mark.parametrize(
    ("info", "now", "then"),
    [
        (INFO, "not started yet, 3 tools when last seen (2026-12-01 10:05 UTC)", "3 tools, seen 2026-12-01 10:05 UTC"),
        (ServerInfo(name="a", kind="http", state=ServerState.IDLE), "not started yet", "not seen yet"),
        (ServerInfo(name="a", kind="http", state=ServerState.OFF), "off", "off"),
        (ServerInfo(name="a", kind="http", state=ServerState.STARTING), "starting", "not seen yet"),
        (
            ServerInfo(name="a", kind="http", state=ServerState.WAITING, problem="It\nis gone.", retry_in_s=-2.0),
            "failed, next try in 0 s: It⟨\\n⟩is gone.",
            "not seen yet",
        ),
        (
            ServerInfo(name="a", kind="http", state=ServerState.READY, tools=1, problem="1 is left out"),
            "ready, 1 tool: 1 is left out",
            "not seen yet",
        ),
    ],
    ids=lambda value: str(value.state) if isinstance(value, ServerInfo) else "",
)
def test_a_server_in_a_line(info: ServerInfo, now: str, then: str) -> None:
    assert described([info]) == [f"a (http): {now}"]
    assert remembered(info) == then
    assert as_json(info)["state"] == info.state


def test_a_problem_is_shown_in_few_words() -> None:
    info = ServerInfo(name="a", kind="http", state=ServerState.WAITING, problem="x" * 5_000)
    (line,) = described([info])
    assert len(line) < 400
