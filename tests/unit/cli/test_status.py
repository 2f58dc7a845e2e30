"""``bubbles status``: what is in force, for people and for scripts."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bubbles.cli.status import status
from bubbles.config.load import load_settings
from bubbles.cron.contract import JobDraft, JobKind, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.errors import ConfigError
from bubbles.gateway.lock import gateway_lock
from bubbles.mcp.client.shelf import Learnt, Shelf
from bubbles.mcp.fake import server_tool

pytestmark = pytest.mark.req("AUD-02", "CLI-01")

GOOD = 'prefix_rule(pattern=["git", "push"], decision="allow")\n'
BAD = 'prefix_rule(pattern=["ls"], decision="perhaps")\n'


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BUBBLES_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return tmp_path / "data"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def as_json(capsys: pytest.CaptureFixture[str], session: str | None = None) -> dict[str, Any]:
    assert status(session=session, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_fresh_machine_has_a_status_and_nothing_is_made(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status() == 0
    shown = capsys.readouterr().out
    assert "not there yet" in shown
    assert "ask, 300 s to answer" in shown
    assert "local is no boundary: run 'bubbles onboard --sandbox bubblewrap'" in shown
    assert not data.exists()


@pytest.mark.req("SBX-08")
def test_who_chose_local_is_not_told_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "local is no boundary" in as_json(capsys)["sandbox"]["warning"]
    write(data / "config.json", '{"tools": {"sandbox": {"backend": "local"}}}')
    assert as_json(capsys)["sandbox"]["warning"] is None
    status()
    assert "no boundary" not in capsys.readouterr().out


@pytest.mark.req("DEC-05")
def test_every_layer_is_shown_with_path_count_warnings_and_when_it_was_loaded(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(data.parent / ".codex" / "rules" / "a.rules", GOOD + GOOD.replace("push", "fetch"))
    write(data / "rules" / "b.rules", GOOD + BAD)
    write(data / "session_rules" / "work" / "c.rules", GOOD)
    found = as_json(capsys, session="work")["rules"]
    assert found["loaded_at"].endswith("+00:00")
    assert [(layer["layer"], layer["rules"], layer["files"], len(layer["warnings"])) for layer in found["layers"]] == [
        ("session", 1, 1, 0),
        ("assistant", 1, 1, 1),
        ("global", 2, 1, 0),
    ]
    assert [Path(layer["path"]) for layer in found["layers"]] == [
        data / "session_rules" / "work",
        data / "rules",
        data.parent / ".codex" / "rules",
    ]
    status(session="work")
    shown = capsys.readouterr().out
    assert f"warning: {data / 'rules' / 'b.rules'}:2" in shown


def test_configuration_is_shown_with_what_is_wrong_with_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        data / "config.json",
        '{"tools": {"sandbox": {"backend": "vm\\u001b"}, "approvals": {"mode": "deny", "timeoutS": 20, "colour": 1}}}',
    )
    found = as_json(capsys)
    assert found["approvals"] == {"mode": "deny", "timeout_s": 20.0}
    assert found["config"]["exists"]
    assert any("colour" in warning for warning in found["config"]["warnings"])
    assert any("which there is not" in warning for warning in found["config"]["warnings"])
    status()
    shown = capsys.readouterr().out
    assert "colour is not a setting" in shown
    assert "\x1b" not in shown


@pytest.mark.req("SEC-03")
def test_nothing_of_the_environment_is_shown(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "tulips-at-noon")
    write(data / "rules" / "b.rules", GOOD)
    status()
    status(as_json=True)
    assert "tulips" not in capsys.readouterr().out


@pytest.mark.usefixtures("data")
def test_session_that_is_no_key_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="is not the key of a session"):
        status(session="../x")


@pytest.mark.req("CLI-03", "SESS-03")
def test_a_session_appears_only_where_it_differs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = data / "session_state"
    write(state / "plain" / "config.json", "{}")
    write(state / "no_file" / "session.jsonl", "")
    write(state / "other" / "config.json", json.dumps({"sandbox": "bubblewrap", "system_prompt": "x" * 500}))
    write(state / "broken" / "config.json", "{")
    assert as_json(capsys)["sessions"] == {"other": {"system_prompt": f"{'x' * 59}…", "sandbox": "bubblewrap"}}
    assert status() == 0
    shown = capsys.readouterr().out
    assert "other: system_prompt" in shown
    assert "plain" not in shown
    assert str(state / "broken" / "config.json") in shown


@pytest.mark.req("PROV-02", "CLI-03")
def test_the_model_is_shown_with_who_answers_and_why(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    providers = {"openrouter": {"apiKey": "key-of-the-owner-0123456789"}}
    written = {"agents": {"defaults": {"model": "anthropic/claude-x"}}, "providers": providers}
    write(data / "config.json", json.dumps(written))
    found = as_json(capsys)
    assert (found["model"]["model"], found["model"]["provider"]) == ("anthropic/claude-x", "openrouter")
    assert "anthropic, which has no key" in found["model"]["reason"]
    assert found["providers"] == ["openrouter"]
    assert status() == 0
    shown = capsys.readouterr().out
    assert found["model"]["reason"] in shown
    assert "key-of-the-owner" not in shown


@pytest.mark.req("TOOL-09", "CLI-03")
def test_mcp_servers_are_shown_as_last_seen_and_none_is_started(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = data.parent / "started"
    servers = {
        "notes": {"command": "touch", "args": [str(mark)]},
        "new": {"url": "https://user:key-of-the-owner@mcp.example/mcp"},
        "old": {"command": "x", "enabled": False},
    }
    write(data / "config.json", json.dumps({"tools": {"mcpServers": servers}}))
    known = load_settings().tools.mcp_servers["notes"]
    tool = server_tool("notes", "ping", "Says that it is there.")
    seen = "2026-12-01T10:05:06+00:00"
    Shelf(data).write("notes", known, Learnt(tools=(tool,), seen=seen, problem="the program ended\x1b"))
    found = {server["name"]: server for server in as_json(capsys)["mcp_servers"]}
    assert (found["notes"]["tool_count"], found["notes"]["seen"]) == (1, seen)
    assert (found["new"]["kind"], found["new"]["seen"], found["old"]["state"]) == ("http", None, "off")
    assert status() == 0
    shown = capsys.readouterr().out
    assert "mcp server notes (stdio): 1 tool, seen 2026-12-01 10:05 UTC" in shown
    assert "warning: the program ended" in shown
    assert "mcp server new (http): not seen yet" in shown
    assert "mcp server old (stdio): off" in shown
    assert "key-of-the-owner" not in shown
    assert "\x1b" not in shown
    assert not mark.exists()


@pytest.mark.req("OPS-02", "CLI-03")
def test_whether_the_gateway_runs_is_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys)["gateway"] == {"running": False, "pid": None, "url": None}
    status()
    assert "gateway    not running: 'bubbles gateway' starts it\n" in capsys.readouterr().out
    with gateway_lock(data, "0.0.0.0", 18790):
        found = as_json(capsys)["gateway"]
        assert found == {"running": True, "pid": os.getpid(), "url": "http://127.0.0.1:18790"}
        status()
        assert f"gateway    runs (process {os.getpid()}, http://127.0.0.1:18790)\n" in capsys.readouterr().out


@pytest.mark.req("CHAN-02", "CLI-03", "SEC-03")
def test_channels_that_are_on_are_shown_with_what_is_wrong_with_them(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_json(capsys)["channels"] == []
    telegram = {"enabled": True, "token": "123:token-of-the-bot", "allowFrom": ["7", "8\u001b"]}
    write(data / "config.json", json.dumps({"channels": {"telegram": telegram}}))
    assert as_json(capsys)["channels"] == [{"name": "telegram", "allow_from": ["7", "8\x1b"], "problems": []}]
    status()
    assert "channel    telegram, let in: 2 (7, 8\\x1b)\n" in capsys.readouterr().out
    write(data / "config.json", json.dumps({"channels": {"telegram": {"enabled": True}}}))
    status()
    shown = capsys.readouterr().out
    assert "channel    telegram, let in: nobody\n  warning: channels.telegram.token is not set" in shown
    assert "token-of-the-bot" not in shown


async def made(data: Path) -> None:
    store = JobStore(data)
    every = Schedule(kind=ScheduleKind.EVERY, text="30m")
    for enabled in (True, False):
        draft = JobDraft(name="look", message="Look.", schedule=every, enabled=enabled)
        await store.add(draft, "work")
    await store.add(JobDraft(name="beat", message="Beat.", schedule=every), "home", JobKind.HEARTBEAT)


@pytest.mark.req("CLI-03", "CRON-01", "HB-01")
def test_a_session_with_jobs_or_a_heartbeat_differs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(made(data))
    write(data / "session_state" / "work" / "config.json", '{"model": "custom/x"}')
    found = as_json(capsys)
    assert found["jobs"] == {"count": 2, "off": 1, "problems": []}
    assert found["sessions"] == {"home": {"heartbeat": "every 30m"}, "work": {"model": "custom/x", "jobs": 2}}
    assert status() == 0
    shown = capsys.readouterr().out
    assert "jobs       2, 1 of them off\n" in shown
    assert "session    home: heartbeat every 30m\n" in shown
    assert "session    work: model custom/x, jobs 2\n" in shown


@pytest.mark.req("CRON-04", "CLI-03")
def test_jobs_that_cannot_be_read_are_a_warning_and_stay_as_they_are(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(data / "cron" / "jobs.json", "{ not json")
    (problem,) = as_json(capsys)["jobs"]["problems"]
    assert "jobs.json" in problem
    assert status() == 0
    assert f"warning: {problem}" in capsys.readouterr().out
    assert (data / "cron" / "jobs.json").read_text() == "{ not json"
