"""``bubbles timeline`` as a process: following, and being told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbles.bus import Address, Origin
from bubbles.controller.policy.contract import Command, Decision, Policy, Stage, Verdict
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline.events import Subject
from bubbles.controller.timeline.writing import Timeline

pytestmark = pytest.mark.req("AUD-02", "CLI-01")


def record(data: Path, script: str, at: datetime) -> None:
    timeline = Timeline(data, Redactor(), owner="me", now=lambda: at)
    decision = Decision(verdict=Verdict.ALLOW, stage=Stage.LANE, policy=Policy.LOCAL_SELF_VALIDATION, reason="Tests.")
    origin = Origin(session_key="work", address=Address(channel="cli", chat_id="direct"), sender="me")
    command = Command.of_script(script)
    subject = Subject(origin=origin, command=command, cwd="/work", backend="local", decision=decision)
    asyncio.run(timeline.decided(subject))


def bubbles(data: Path, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bubbles", "timeline", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BUBBLES_HOME": str(data)},
    )


def test_following_goes_on_into_the_next_month_until_control_c(tmp_path: Path) -> None:
    for number in range(12):
        record(tmp_path, f"old {number}", datetime(2026, 11, 30, tzinfo=UTC))
    with bubbles(tmp_path, "--json", "-f") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        begun = [json.loads(following.stdout.readline())["command"] for _ in range(10)]
        assert begun == [f"old {number}" for number in range(2, 12)]
        record(tmp_path, "new", datetime(2026, 12, 1, tzinfo=UTC))
        assert json.loads(following.stdout.readline())["command"] == "new"
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 130
        assert following.stderr.read() == ""


def test_wrong_usage_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    with bubbles(tmp_path, "--since", "yesterday") as failed:
        out, err = failed.communicate(timeout=10)
    assert (failed.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "--since 'yesterday' is no time" in err
