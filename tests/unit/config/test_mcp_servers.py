"""``tools.mcpServers``: entries under names of the person's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbles.config.edit import change
from bubbles.config.secrets import secrets_of
from tests.unit.config.test_load import loaded, refused

pytestmark = pytest.mark.req("CFG-01", "TOOL-09")

SECRET = "canary-0123456789"


def servers(**entries: object) -> dict[str, object]:
    return {"tools": {"mcpServers": entries}}


def test_the_names_of_an_entry_may_be_written_either_way(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        servers(files={"command": "fs", "startTimeoutS": 5}, My_Server={"url": "http://h/mcp", "call_timeout_s": 7}),
    )
    held = settings.tools.mcp_servers
    assert (held["files"].start_timeout_s, held["My_Server"].call_timeout_s) == (5, 7)
    assert settings.warnings == ()


def test_a_misspelt_name_in_an_entry_is_reported_and_kept(tmp_path: Path) -> None:
    settings = loaded(tmp_path, servers(files={"command": "fs", "sandboxd": True}))
    (warning,) = settings.warnings
    assert "tools.mcp_servers.files.sandboxd is not a setting" in warning
    assert "did you mean sandboxed?" in warning
    path = tmp_path / ".bubbles" / "config.json"
    assert change(path, ("tools", "mcp_servers", "files", "sandboxed"), True)
    assert json.loads(path.read_text()) == servers(files={"command": "fs", "sandboxd": True, "sandboxed": True})


def test_a_new_entry_is_put_where_the_others_are(tmp_path: Path) -> None:
    loaded(tmp_path, servers(files={"command": "fs"}))
    path = tmp_path / ".bubbles" / "config.json"
    assert change(path, ("tools", "mcp_servers", "web"), {"url": "http://h/mcp"})
    assert json.loads(path.read_text()) == servers(files={"command": "fs"}, web={"url": "http://h/mcp"})


def test_a_variable_sets_one_thing_of_an_entry_or_all_of_them(tmp_path: Path) -> None:
    one = loaded(tmp_path, servers(files={"command": "fs"}), BUBBLES_TOOLS__MCP_SERVERS__FILES__SANDBOXED="true")
    assert one.tools.mcp_servers["files"].sandboxed
    every = loaded(tmp_path, BUBBLES_TOOLS__MCP_SERVERS='{"a": {"command": "x", "callTimeoutS": 3, "nme": 1}}')
    assert every.tools.mcp_servers["a"].call_timeout_s == 3
    assert "tools.mcp_servers.a.nme is not a setting" in every.warnings[0]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "it needs either a command or a url"),
        ({"command": "x", "url": "http://h"}, "it needs either a command or a url"),
        ({"url": "http://h", "args": ["x"]}, "belong to a command"),
        ({"url": "http://h", "sandboxed": True}, "belong to a command"),
        ({"command": "x", "headers": {"A": "b"}}, "headers belong to a url"),
        ({"command": "x", "callTimeoutS": 0}, "tools.mcp_servers.files.call_timeout_s is 0"),
        ({"command": "x", "cwd": "here"}, "absolute"),
        ({"url": "ftp://h"}, "http://"),
        ({"command": "x", "env": {"A B": "c"}}, "tools.mcp_servers.files.env"),
        ("text", "should be"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_by_its_name(tmp_path: Path, entry: object, said: str) -> None:
    message = refused(tmp_path, servers(files=entry))
    assert said in message
    assert "tools.mcp_servers.files" in message


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.b", "x" * 31, "\u00e9"])
def test_a_name_that_could_not_be_a_part_of_a_tools_name_is_refused(tmp_path: Path, name: str) -> None:
    assert "tools.mcp_servers" in refused(tmp_path, servers(**{name: {"command": "x"}}))


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"TOKEN": SECRET}},
        {"command": "x", "env": {"ANYTHING": SECRET}},
        {"command": "x", "args": ["--api-key", SECRET]},
        {"command": "x", "args": [f"--token={SECRET}"]},
        {"command": "x", "args": [f"https://user:{SECRET}@host/"]},
        {"url": f"https://user:{SECRET}@host/mcp"},
        {"url": f"https://host/mcp?api_key={SECRET}"},
        {"url": "https://host/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {"command": "x", "env": {"TOKEN": "${THE_TOKEN}"}},
    ],
)
def test_its_secrets_are_known_and_not_shown(tmp_path: Path, entry: object) -> None:
    settings = loaded(tmp_path, servers(files=entry), THE_TOKEN=SECRET)
    assert SECRET in secrets_of(settings)
    hidden = {**entry, "args": ["(plain)"]} if isinstance(entry, dict) and "args" in entry else entry
    shown = loaded(tmp_path, servers(files=hidden), THE_TOKEN=SECRET)
    assert SECRET not in repr(shown)


def test_ordinary_arguments_are_no_secrets(tmp_path: Path) -> None:
    entry = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"]}
    assert secrets_of(loaded(tmp_path, servers(files={**entry, "env": {"LOG": "debug"}}))) == ()
