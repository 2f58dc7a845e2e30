"""Tasks in the background of ``bubbles agent``, a real process at a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.model_server import Calls, ModelServer, Request, serving
from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("TOOL-05"), pytest.mark.timeout(60)]

ENTER, CONTROL_C, CONTROL_D = "\r", "\x03", "\x04"
RISKY = "curl http://127.0.0.1:9/x | sh"


def brain(request: Request) -> str | Calls:
    """A conversation that begins what it is told to, and tasks that do as their text says."""
    messages = request["messages"]
    last, asked = messages[-1], [m["content"] for m in messages if m["role"] == "user"][-1]
    if '<part name="task">' in str(messages[0]["content"]):
        return f"It gave {last['content']}" if last["role"] == "tool" else [("exec", {"script": asked})]
    if asked.startswith("spawn ") and last["role"] != "tool":
        return [("spawn", {"task": asked.removeprefix("spawn "), "label": "some work"})]
    return "It came back." if "report of task" in asked else f"Said: {asked}"


@asynccontextmanager
async def talking(home: Path, term: str = "xterm-256color") -> AsyncIterator[tuple[Person, ModelServer]]:
    async with serving(brain) as server:
        environment = {
            **server.environment,
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": term,
            "BUBBLES_HOME": str(home / "data"),
            "BUBBLES_TOOLS__SANDBOX__BACKEND": "local",
        }
        async with at_a_terminal((sys.executable, "-m", "bubbles", "agent"), environment) as person:
            await person.sees("Ctrl-D leaves")
            yield person, server


def record(home: Path) -> dict[str, Any]:
    path = home / "data" / "session_state" / "default" / "tasks" / "t1" / "task.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def left_over(home: Path) -> list[str]:
    """Processes that were begun with this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BUBBLES_HOME") == str(home / "data") or str(home) in process.cwd():
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.req("ERR-04")
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
async def test_what_comes_back_is_shown_while_something_else_is_typed(tmp_path: Path, term: str) -> None:
    async with talking(tmp_path, term) as (person, server):
        person.types("spawn sleep 1; echo seven" + ENTER)
        await person.sees("Said: spawn")
        person.types("half a ")
        await person.sees("Task t1 (some work) is done: ")
        await person.sees("It came back.")
        person.types("thought" + ENTER)
        await person.sees("Said: half a thought")
        person.types("/status" + ENTER)
        await person.sees("t1 some work: done, ")
        person.types(CONTROL_D)
        assert await person.leaves() == 0
        server.check()
        assert b"reply is empty" not in person.raw
        assert b"There was no answer" not in person.raw


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
async def test_a_card_of_a_task_is_answered_between_turns(tmp_path: Path, term: str) -> None:
    async with talking(tmp_path, term) as (person, server):
        person.types(f"spawn {RISKY}" + ENTER)
        await person.sees("t1, a task in the background")
        await person.sees("[y/n]")
        person.types("n" + ENTER)
        await person.sees("It came back.")
        told = json.dumps(server.requests[-1]["messages"])
        assert "It gave" in told
        assert "A person declined it" in told
        person.types("still there?" + ENTER)
        await person.sees("Said: still there?")
        person.types(CONTROL_D)
        assert await person.leaves() == 0


async def test_control_c_and_stop_say_what_goes_on_and_stop_ends_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as (person, _):
        person.types("spawn sleep 60" + ENTER)
        await person.sees("Said: spawn")
        await person.sees("tasks: 1")
        person.types(CONTROL_C)
        await person.sees("In the background goes on: t1 (some work). /stop t1 ends it.")
        person.types("/stop t1" + ENTER)
        await person.sees("Task t1 is stopped.")
        person.types("hello" + ENTER)
        await person.sees("Said: hello")
        person.types("exit" + ENTER)
        assert await person.leaves() == 0
    assert record(tmp_path)["state"] == "stopped"


@pytest.mark.parametrize("how", ["leave", "signal"])
async def test_leaving_ends_tasks_and_leaves_no_process(tmp_path: Path, how: str) -> None:
    async with talking(tmp_path) as (person, _):
        person.types("spawn sleep 59" + ENTER)
        await person.sees("Said: spawn")
        async with asyncio.timeout(10):
            while not any("sleep 59" in line for line in left_over(tmp_path)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        if how == "leave":
            person.types("exit" + ENTER)
            await person.sees("1 task in the background: interrupted")
            assert await person.leaves() == 0
        else:
            person.sends(signal.SIGTERM)
            assert await person.leaves() == 130
        assert b"Traceback" not in person.raw
    assert record(tmp_path)["state"] == "interrupted"
    assert left_over(tmp_path) == []
