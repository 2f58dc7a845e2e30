"""``bubbles rules`` and ``sandbox exec --gate`` as a person or a script runs them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bubbles.cli import main
from tests.policy.project import make_project, rows

pytestmark = [pytest.mark.req("CLI-01", "DEC-09"), pytest.mark.timeout(60)]

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "person" / ".codex" / "rules").mkdir(parents=True)
    (tmp_path / "project" / "sub").mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BUBBLES_", "CODEX_"))}
    return {**kept, "HOME": str(tmp_path / "person"), "BUBBLES_HOME": str(tmp_path / "data")}


@pytest.fixture
def bubbles(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Run:
    """The command line in this process: starting Python for each call would take most of the time."""
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "project")

    def run(*argv: str) -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setattr(sys, "argv", ["bubbles", *argv])
        status = main()
        out, err = capfdbinary.readouterr()
        return subprocess.CompletedProcess(argv, status, out, err)

    return run


def printed(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_check_says_what_would_become_of_a_command_and_why(bubbles: Run, tmp_path: Path) -> None:
    rules = tmp_path / "person" / ".codex" / "rules" / "default.rules"
    rules.write_text('prefix_rule(pattern=["gh", ["pr", "issue"]], justification="looking only")\nprefix_rule(1)\n')
    found = printed(bubbles("rules", "check", "--json", "--", "gh", "pr", "view", "7"))
    assert (found["outcome"], found["stage"], found["policy"]) == ("auto_allow", "rules", "rules_allow")
    assert found["matches"] == [
        {
            "decision": "allow",
            "prefix": ["gh", "pr"],
            "layer": "global",
            "file": str(rules),
            "line": 1,
            "justification": "looking only",
            "overridden": False,
        }
    ]
    said = bubbles("rules", "check", "--script", "cd sub && npm publish")
    assert b"A person is asked (stage default, policy no_rule)." in said.stdout
    assert b"npm publish" in said.stdout
    assert f"{rules}:2".encode() in said.stderr


def test_batch_reads_and_prints_json_lines(bubbles: Run, tmp_path: Path) -> None:
    project = make_project(tmp_path / "cases")
    sample = [row for row in rows("commands.jsonl") if row["id"][-1] in "37"]
    lines = [json.dumps({**row, "cmd": project.fill(row["cmd"]), "cwd": project.fill(row["cwd"])}) for row in sample]
    batch = tmp_path / "rows.jsonl"
    batch.write_text("\n".join(lines))
    done = bubbles(*("rules", "check", "--root", str(project.root), "--desk", str(project.desk), "--batch", str(batch)))
    assert done.returncode == 0, done.stderr.decode()
    found = {row["id"]: row["outcome"] for row in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(sample)
    wanted = {row["id"]: {row["expect"], *row["also_ok"]} for row in sample}
    for ident, outcome in found.items():
        assert outcome in wanted[ident] or ("decline_or_ask" in wanted[ident] and outcome in ("ask", "decline")), ident


def test_a_row_that_is_no_command_is_named_and_the_others_are_judged(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    lines = [
        b'{"id": 1, "cmd": "pytest -q"}',
        b"not json",
        b'{"id": 2}',
        b"[]",
        b'{"id": 3, "cmd": "id", "cwd": 5}',
        b"",
        b'{"id": 4, "cmd": "rm -rf /"}',
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bubbles", "rules", "check", "--batch", "-"],
        input=b"\n".join(lines),
        capture_output=True,
        cwd=tmp_path / "project",
        env=environment,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["auto_allow", "decline"]
    assert [line.split(":")[1].strip() for line in done.stderr.decode().splitlines()] == [
        f"line {number} of -" for number in (2, 3, 4, 5)
    ]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("check",), "give one of"),
        (("check", "--script", "a", "--", "b"), "give one of"),
        (("check", "--rules", "/nowhere", "--script", "a"), "/nowhere is not a directory"),
        (("check", "--backend", "vm", "--script", "a"), "vm"),
        (("check", "--session", "../x", "--script", "a"), "../x"),
        (("list", "--session", "a.B"), "a.B"),
    ],
)
def test_wrong_usage_is_one_sentence(bubbles: Run, argv: tuple[str, ...], says: str) -> None:
    done = bubbles("rules", *argv)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert says in line


def test_list_shows_every_layer_rule_and_warning(bubbles: Run, tmp_path: Path) -> None:
    (tmp_path / "person" / ".codex" / "rules" / "a.rules").write_text('prefix_rule(pattern=["gh"])\n')
    mine = tmp_path / "data" / "session_rules" / "s1"
    mine.mkdir(parents=True)
    (mine / "b.rules").write_text('prefix_rule(pattern=["npm", "publish"], decision="forbidden")\nnonsense(\n')
    done = bubbles("rules", "list", "--session", "s1", "--json")
    assert done.returncode == 1  # a file has a fault
    session, assistant, everywhere = json.loads(done.stdout)["layers"]
    assert (session["layer"], session["rules"][0]["pattern"]) == ("session", ["npm", "publish"])
    assert session["warnings"]
    assert (assistant["layer"], assistant["rules"]) == ("assistant", [])
    assert (everywhere["layer"], everywhere["rules"][0]["decision"]) == ("global", "allow")
    shown = bubbles("rules", "list", "--session", "s1").stdout.decode()
    assert "npm publish" in shown
    assert "b.rules:2" in shown
    assert bubbles("rules", "list").returncode == 0


@pytest.mark.req("DEC-08", "APPR-02")
def test_the_gate_lets_through_asks_and_refuses(bubbles: Run, tmp_path: Path) -> None:
    fine = bubbles("sandbox", "exec", "-b", "local", "--gate", "--", "cat", "note.txt")
    assert fine.returncode == 1  # cat ran, and found no such file
    assert b"note.txt" in fine.stderr
    nobody = bubbles("sandbox", "exec", "-b", "local", "--gate", "--", "touch", "made")
    assert nobody.returncode == 126
    assert b"nobody can be asked" in nobody.stderr
    assert not (tmp_path / "project" / "made").exists()
    refused = bubbles("sandbox", "exec", "-b", "local", "--gate", "--", "rm", "-rf", "/")
    assert b"never run" in refused.stderr
    events = [
        (event["event"], event["policy"])
        for event in map(json.loads, bubbles("timeline", "--json").stdout.splitlines())
    ]
    assert events == [
        ("approval_auto_resolved", "local_self_validation"),
        ("command_finished", "local_self_validation"),
        ("approval_requested", "no_rule"),
        ("approval_resolved", "no_rule"),
        ("approval_auto_declined", "high_risk"),
    ]


def at_a_terminal(project: Path, environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """``touch made`` at the gate, at a terminal; its card is shown."""
    leader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 500))  # the project's path in one line, however long
    child = subprocess.Popen(
        [sys.executable, "-m", "bubbles", "sandbox", "exec", "-b", "local", "--gate", "--", "touch", "made"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=project,
        env=environment,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    while b"[y/n]" not in shown:
        shown += os.read(leader, 4096)
    assert b"touch made" in shown
    assert str(project).encode() in shown
    return child, leader


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(("typed", "made"), [(b"y\n", True), (b"n\n", False)])
def test_the_person_at_the_terminal_decides(
    tmp_path: Path, environment: dict[str, str], typed: bytes, made: bool
) -> None:
    child, leader = at_a_terminal(tmp_path / "project", environment)
    os.write(leader, typed)
    status = child.wait(timeout=30)
    os.close(leader)
    assert (status == 0) is made
    assert (tmp_path / "project" / "made").exists() is made


@pytest.mark.req("APPR-04")
def test_a_card_does_not_outlive_its_process(bubbles: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    child, leader = at_a_terminal(tmp_path / "project", environment)
    child.kill()
    child.wait(timeout=30)
    os.close(leader)
    assert bubbles("sandbox", "exec", "-b", "local", "--gate", "--", "pwd").returncode == 0
    assert not (tmp_path / "project" / "made").exists()
    events = [json.loads(line) for line in bubbles("timeline", "--json").stdout.splitlines()]
    assert [(event["event"], event.get("outcome")) for event in events[:2]] == [
        ("approval_requested", None),
        ("approval_resolved", "lost"),
    ]
