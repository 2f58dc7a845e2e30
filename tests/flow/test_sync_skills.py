"""``bubbles sync-skills`` as a person or a script runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bubbles.sessions.workspace import SKILLS_TEMPLATE

pytestmark = [pytest.mark.req("SESS-05"), pytest.mark.timeout(60)]


def sync(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bubbles", "sync-skills", *argv],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def made(home: Path, key: str) -> Path:
    """The desk of a session that has a history."""
    desk, state = home / ".bubbles/sessions" / key, home / ".bubbles/session_state" / key
    desk.mkdir(parents=True)
    state.mkdir(parents=True)
    (state / "session.jsonl").write_text("")
    return desk


def test_without_sessions_there_is_nothing_to_do(tmp_path: Path) -> None:
    done = sync(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 sessions, 0 with nothing to do.\n", "")


def test_every_session_has_the_skills_of_the_template_after_it(tmp_path: Path) -> None:
    desks = [made(tmp_path, key) for key in ("one", "two")]
    wanted = sorted(path.parent.name for path in SKILLS_TEMPLATE.glob("*/SKILL.md"))
    done = sync(tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [each["session"] for each in found["sessions"]] == ["one", "two"]
    for desk, each in zip(desks, found["sessions"], strict=True):
        assert each["added"] == wanted
        assert sorted(path.name for path in (desk / "skills").iterdir()) == wanted
    assert sync(tmp_path).stdout == "2 sessions, 2 with nothing to do.\n"


def test_a_session_that_cannot_be_looked_at_is_a_failure_and_the_others_are_done(tmp_path: Path) -> None:
    desk = made(tmp_path, "one")
    made(tmp_path, "two")
    (desk / "skills").write_text("in the way")
    done = sync(tmp_path, "--json")
    sessions = json.loads(done.stdout)["sessions"]
    assert sessions[1]["problem"] is None
    assert "Traceback" not in done.stderr
