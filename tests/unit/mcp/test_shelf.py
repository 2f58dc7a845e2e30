"""What is kept of servers on the disk."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from bubbles.config.schema import McpServerSettings
from bubbles.mcp.client.catalogue import Catalogue
from bubbles.mcp.client.shelf import NOTHING, Learnt, Shelf, fingerprint, last_seen
from bubbles.mcp.contract import ServerState

SERVER = McpServerSettings(command="serve", args=("x",), env={"KEY": SecretStr("secret-of-the-owner")})


def learnt() -> Learnt:
    catalogue = Catalogue("one")
    catalogue.take([{"name": "a", "description": "d", "inputSchema": {}}, {"name": "b", "inputSchema": {}}])
    return Learnt(tools=catalogue.tools, seen="2026-01-01T00:00:00+00:00", problem="it is slow")


def test_what_is_put_there_is_found_there_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.write("one", SERVER, learnt())
    assert shelf.read("one", SERVER) == learnt()
    file = tmp_path / "mcp" / "one.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret-of-the-owner" not in file.read_text()
    assert os.listdir(file.parent) == ["one.json"]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        json.dumps({"fingerprint": "another", "tools": []}).encode(),
        json.dumps({"fingerprint": fingerprint(SERVER), "tools": "none", "seen": 7, "problem": []}).encode(),
        json.dumps({"fingerprint": fingerprint(SERVER), "tools": [{"name": "a", "inputSchema": "x"}, 7]}).encode(),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "one.json").write_bytes(damage)
    assert Shelf(tmp_path).read("one", SERVER) == NOTHING


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    os.mkfifo(tmp_path / "mcp" / "one.json")
    assert Shelf(tmp_path).read("one", SERVER) == NOTHING


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "mcp").write_text("in the way")
    Shelf(tmp_path).write("one", SERVER, learnt())
    assert Shelf(tmp_path).read("one", SERVER) == NOTHING


def test_it_is_of_the_server_and_not_of_its_keys() -> None:
    assert fingerprint(SERVER) == fingerprint(SERVER.model_copy(update={"env": {}, "allow": ("x",)}))
    assert fingerprint(SERVER) != fingerprint(SERVER.model_copy(update={"args": ("y",)}))
    one = McpServerSettings(url="https://me:one@host/mcp?key=one")
    assert fingerprint(one) == fingerprint(McpServerSettings(url="https://me:two@host/mcp?key=two"))
    assert fingerprint(one) != fingerprint(McpServerSettings(url="https://host/other"))


@pytest.mark.req("CLI-03")
def test_status_shows_servers_without_starting_any(tmp_path: Path) -> None:
    Shelf(tmp_path).write("one", SERVER, learnt())
    servers = {
        "one": SERVER,
        "off": SERVER.model_copy(update={"enabled": False}),
        "web": McpServerSettings(url="http://host/mcp"),
        "inside": SERVER.model_copy(update={"sandboxed": True}),
    }
    one, off, web, inside = last_seen(tmp_path, servers)
    assert (one.state, one.tools, one.problem, one.seen[:4]) == (ServerState.IDLE, 2, "it is slow", "2026")
    assert (off.state, web.kind, web.tools, inside.kind) == (ServerState.OFF, "http", 0, "stdio in the sandbox")
