"""``bubbles agent`` killed at random instants of a turn: nothing finished is lost, nothing is repeated silently."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.model_server import Request, serving
from tests.places import HARD

STEPS = 400
"""More than any run takes: the model goes on until it is killed, or told to end."""
STEP = """#!/bin/bash
echo "begin $1" >> steps.log
sleep 0.01
echo "end $1" >> steps.log
echo "did $1"
"""
ROOMY = {"BUBBLES_AGENTS__DEFAULTS__CONTEXT_TOKENS": "1000000"}
RULE = 'prefix_rule(pattern=["./step.sh"])\n'
WORKING_S = 1.0
"""How long a killed turn has worked at most, after as much time as a whole turn without a call takes."""


def calls_of(messages: list[Mapping[str, Any]]) -> dict[str, str]:
    """Step by call id, over the whole conversation."""
    found = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            if match := re.search(r"step\.sh (\d+)", call["function"]["arguments"]):
                found[call["id"]] = match[1]
    return found


def told_by(messages: list[Mapping[str, Any]]) -> dict[str, str]:
    """Results by call id."""
    return {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}


def brain(request: Request) -> str | list[tuple[str, dict[str, Any]]]:
    """Never asks for a step twice: whatever runs twice was repeated by the program."""
    messages = request["messages"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    if "finish" in str(said[-1]):
        return "All done."
    done = [int(step) for step in calls_of(messages).values()]
    following = max(done, default=0) + 1
    return [
        ("exec", {"script": f"./step.sh {number}"}) for number in range(following, following + random.choice((1, 1, 3)))
    ]


class Crashing:
    """One session, killed again and again."""

    def __init__(self, base: Path, environment: Mapping[str, str], backend: str) -> None:
        self.backend = backend
        self.home, self.project = base / "home", base / "project"
        rules = self.home / ".bubbles" / "rules"
        rules.mkdir(parents=True)
        self.project.mkdir()
        (rules / "test.rules").write_text(RULE)
        script = self.project / "step.sh"
        script.write_text(STEP)
        script.chmod(0o755)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), **environment}

    async def turn(self, text: str, kill_after_s: float | None) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bubbles", "agent", "-m", text, "-s", "crash", "-b", self.backend),
            *("--project", str(self.project)),
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if kill_after_s is not None:
            await asyncio.sleep(kill_after_s)
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    def steps(self) -> list[str]:
        log = self.project / "steps.log"
        return log.read_text().splitlines() if log.exists() else []

    def history(self) -> list[dict[str, Any]]:
        path = self.home / ".bubbles" / "session_state" / "crash" / "session.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    async def sandboxes(self) -> list[Any]:
        """What is left of sandboxes once the next command that uses one has begun (SPEC 4.8)."""
        for words in (
            ("sandbox", "exec", "-b", self.backend, "--root", str(self.project), "--", "true"),
            ("sandbox", "ls"),
        ):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bubbles", *words, *(("--json",) if words[1] == "ls" else ())),
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await process.communicate()
            assert process.returncode == 0
        found: list[Any] = json.loads(out)["sandboxes"]
        return found

    def left_over(self) -> list[str]:
        """Processes that still work in the project."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd() == str(self.project) and process.pid != os.getpid():
                    found.append(" ".join(process.cmdline()))
            except (psutil.Error, OSError):
                continue
        return found


async def crash(base: Path, kills: int, seed: int, backend: str = "local") -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with serving(brain) as server:
        scene = Crashing(base, {**server.environment, **ROOMY}, backend)
        began = time.monotonic()
        await scene.turn("finish", None)
        start_s = time.monotonic() - began
        for number in range(kills):
            await scene.turn(f"go on, part {number}", chance.uniform(start_s / 3, start_s + WORKING_S))
        status, out, err = await scene.turn("finish", None)
        assert (status, out.strip()) == (0, "All done."), err
        server.check()
        last = server.requests[-1]["messages"]
        steps = scene.steps()
        begun = [line.split()[1] for line in steps if line.startswith("begin")]
        ended = {line.split()[1] for line in steps if line.startswith("end")}
        assert len(begun) == len(set(begun)), "a step ran twice"
        told = told_by(last)
        for ident, step in calls_of(last).items():
            if f"did {step}" in told[ident]:
                assert step in ended
            elif step in begun:
                assert "not known" in told[ident] or "unknown" in told[ident], told[ident]
            else:
                assert "not run" in told[ident] or "not known" in told[ident] or "unknown" in told[ident], told[ident]
        assert set(begun) <= set(calls_of(last).values()), "a step ran of which the model knows nothing"
        _nothing_is_lost(server.requests)
        assert len(begun) >= kills // 3, "the kills came too early to prove anything"
    await _gone(scene)
    assert await scene.sandboxes() == []


def _nothing_is_lost(requests: list[Request]) -> None:
    """What one request held as a result is held by all that come after."""
    known: dict[str, str] = {}
    for request in requests:
        told = told_by(request["messages"])
        for ident, text in known.items():
            assert told.get(ident) == text
        known = told


async def _gone(scene: Crashing) -> None:
    async with asyncio.timeout(10):
        while scene.left_over():  # noqa: ASYNC110 - processes of others tell nobody of their end
            await asyncio.sleep(0.05)


@pytest.mark.req("CTX-04")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3, 4))])
async def test_a_turn_killed_at_fifty_random_instants_loses_and_repeats_nothing(tmp_path: Path, part: int) -> None:
    await crash(tmp_path, kills=10, seed=random.randrange(2**32))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", HARD)
async def test_killed_turns_leave_no_sandbox_behind(tmp_path: Path, backend: str) -> None:
    for part in (tmp_path, *list(tmp_path.parents)[:3]):
        if part.name.startswith(("pytest-", "test_", "popen-")):
            part.chmod(0o755)
    await crash(tmp_path, kills=15, seed=random.randrange(2**32), backend=backend)
