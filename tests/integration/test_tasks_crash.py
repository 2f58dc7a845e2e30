"""``bubbles agent`` killed while tasks run in the background: each is told of exactly once, and none runs twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.model_server import Calls, Request, serving
from tests.ptys import at_a_terminal

STEP = """#!/bin/bash
echo "begin $1" >> steps.log
sleep 0.05
echo "end $1" >> steps.log
"""
RULE = 'prefix_rule(pattern=["./step.sh"])\n'
STEPS = 3
"""Calls of one task."""
WORKING_S = 1.0
"""How long a killed program has had tasks at most."""
KILLS = 8


def brain(request: Request) -> str | Calls:
    """Every message begins two tasks of three steps each, and no step is asked for twice."""
    messages = request["messages"]
    last, asked = messages[-1], [m["content"] for m in messages if m["role"] == "user"][-1]
    if '<part name="task">' in str(messages[0]["content"]):
        done = sum(message["role"] == "tool" for message in messages)
        return f"All of {asked}." if done == STEPS else [("exec", {"script": f"./step.sh {asked}-{done}"})]
    if asked.startswith("begin ") and last["role"] != "tool":
        name = asked.split()[1]
        return [("spawn", {"task": f"{name}{which}", "label": f"{name}{which}"}) for which in "ab"]
    return "Noted."


class Crashing:
    def __init__(self, base: Path, environment: dict[str, str]) -> None:
        self.home, self.project = base / "home", base / "project"
        rules = self.home / ".bubbles" / "rules"
        rules.mkdir(parents=True)
        self.project.mkdir()
        (rules / "test.rules").write_text(RULE)
        script = self.project / "step.sh"
        script.write_text(STEP)
        script.chmod(0o755)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", **environment}
        self.argv = (sys.executable, "-m", "bubbles", "agent", "-s", "crash", "-b", "local", "--project", self.project)

    async def killed(self, number: int, chance: random.Random) -> None:
        argv = tuple(map(str, self.argv))
        async with at_a_terminal(argv, self.environment) as person:
            await person.sees("> ")
            person.types(f"begin n{number}\n")
            await person.sees("spawn(")
            await asyncio.sleep(chance.uniform(0, WORKING_S))
            person.sends(signal.SIGKILL)
            await person.leaves()

    async def finish(self) -> str:
        process = await asyncio.create_subprocess_exec(
            *map(str, self.argv),
            *("-m", "finish"),
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode().strip()

    @property
    def state(self) -> Path:
        return self.home / ".bubbles" / "session_state" / "crash"

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / "session.jsonl").read_text().splitlines()]

    def left_over(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd() == str(self.project) and process.pid != os.getpid():
                    found.append(" ".join(process.cmdline()))
            except (psutil.Error, OSError):
                continue
        return found


def told(lines: list[dict[str, Any]]) -> Counter[str]:
    """How often each task's report stands in the history."""
    users = [line["text"] for line in lines if line["kind"] == "user"]
    found = [re.match(r"\[Written by the program: report of task (t\d+) in the background", text) for text in users]
    return Counter(match[1] for match in found if match)


@pytest.mark.req("TOOL-05")
@pytest.mark.timeout(180)
async def test_tasks_of_a_killed_program_are_told_of_once_and_run_once(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with serving(brain) as server:
        scene = Crashing(tmp_path, server.environment)
        for number in range(KILLS):
            await scene.killed(number, chance)
        assert await scene.finish() == "Noted."
        assert await scene.finish() == "Noted."
        server.check()
        lines = scene.history()
        records = {path.parent.name: json.loads(path.read_text()) for path in scene.state.glob("tasks/t*/task.json")}
        begun = {match[1] for line in lines if (match := re.match(r"Task (t\d+) has begun", line.get("text", "")))}
        assert len(begun) >= KILLS, "the kills came too early to prove anything"
        assert begun <= records.keys()
        assert told(lines) == Counter(records.keys()), "each is told of exactly once"
        ends = Counter(record["state"] for record in records.values())
        assert ends.keys() <= {"done", "interrupted"}
        assert ends["interrupted"], "the kills came too late to prove anything"
        steps = (scene.project / "steps.log").read_text().splitlines()
        assert len(steps) == len(set(steps)), "a step ran twice"
        asked = {name for name, record in records.items() if record["state"] == "done"}
        for name in asked:
            assert {f"end {records[name]['task']}-{step}" for step in range(STEPS)} <= set(steps)
    async with asyncio.timeout(10):
        while scene.left_over():  # noqa: ASYNC110 - processes of others tell nobody of their end
            await asyncio.sleep(0.05)
