"""One forbidden command by every way into the assistant: there is one gate, and none of them goes around it.

Each way wants three commands: one that a rule forbids, one that is refused whatever the rules say, and one that a rule
allows, which shows that commands of this way do run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address, Kind
from bubbles.config.channels import ChannelSettings
from bubbles.cron.contract import JobDraft, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.providers.contract import ModelRequest, ToolMessage
from bubbles.providers.scripted import Step, calls
from tests.gateway_at_work import Disk, at_work, results, texts, until
from tests.mcp_served import make_ground, raw
from tests.model_server import serving

ALLOWED, FORBIDDEN = "./allowed-marker.sh", "./forbidden-marker.sh"
DESTRUCTIVE = "rm -rf .git"
"""Refused outright; if it ran, it would remove a directory of the test's own."""
COMMANDS = (ALLOWED, FORBIDDEN, DESTRUCTIVE)
RULES = f"""\
prefix_rule(pattern=["{ALLOWED}"], decision="allow")
prefix_rule(pattern=["{FORBIDDEN}"], decision="forbidden")
prefix_rule(pattern=["rm"], decision="allow")
"""
ASKED_ABOUT = "python3 -c 'print(6 * 7)'"
CHAT = Address(channel="telegram", chat_id="7")
KEY, WORK = "telegram.7", "work"


@dataclass(frozen=True, slots=True)
class Ground:
    disk: Disk

    def made(self, folder: Path) -> Path:
        """With what the commands need, and what they would leave or remove."""
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "canary").write_text("sings")
        for program in (ALLOWED, FORBIDDEN):
            script = folder / program
            script.write_text(f"#!/bin/sh\necho ran > {script.stem}.ran\n")
            script.chmod(0o755)
        return folder


Way = Callable[[Ground], Awaitable[tuple[Path, str]]]
"""Wants the commands: where they were to run, and what came back."""


def wanted() -> Step:
    return calls(*(("exec", {"script": command}) for command in COMMANDS))


def think(request: ModelRequest) -> Step:
    """In the words of the person or the job. What came of the commands is the reply."""
    newest, text = request.messages[-1], texts(request)[-1]
    if "ask first" in text and not results(request):
        return calls(("exec", {"script": ASKED_ABOUT}))
    if "delegate" in text and not results(request):
        return calls(("spawn", {"task": "do it all", "label": "all of it"}))
    if not isinstance(newest, ToolMessage):
        return text if "declined" in text else wanted()
    if newest.name == "spawn":
        return "It is under way."
    return wanted() if newest.text.rstrip().endswith("42") else "\n".join(results(request)[-len(COMMANDS) :])


def in_a_chat(text: str, chat: str = "7", *, presses: bool = False, **more: Any) -> Way:
    async def goes(ground: Ground) -> tuple[Path, str]:
        disk = ground.disk
        disk.access["telegram"] = ChannelSettings(allow_from=("ann",), group_policy="all")
        folder = await asyncio.to_thread(ground.made, disk.desk(f"telegram.{chat}"))
        async with at_work(disk, think) as here:
            await disk.telegram.say(text, chat=chat, **more)
            if presses:
                (card,) = await disk.telegram.heard(1, chat=chat)
                await disk.telegram.say(f"/approve {card.card}", chat=chat, press=True)
            await until(lambda: declined_in(disk, chat))
            await here.settled()
            return folder, declined_in(disk, chat)

    return goes


def declined_in(disk: Disk, chat: str) -> str:
    """The reply that says so."""
    replies = [p.text for _, p in disk.telegram.sent if p.chat_id == chat and p.kind is Kind.REPLY]
    return next((text for text in replies if "declined" in text), "")


async def by_a_job(ground: Ground) -> tuple[Path, str]:
    folder = await asyncio.to_thread(ground.made, ground.disk.desk(KEY))
    await ground.disk.job("Do it.", KEY, CHAT)
    async with at_work(ground.disk, think) as here:
        await until(lambda: declined_in(ground.disk, "7"))
        await here.settled()
    return folder, declined_in(ground.disk, "7")


async def by_a_heartbeat(ground: Ground) -> tuple[Path, str]:
    folder = await asyncio.to_thread(ground.made, ground.disk.desk(KEY))
    store = JobStore(ground.disk.data_dir)
    beat = await store.set_heartbeat(KEY, Schedule(kind=ScheduleKind.EVERY, text="30m"), CHAT)
    assert beat is not None
    await store.ask(beat.id)
    async with at_work(ground.disk, think) as here:
        await until(lambda: declined_in(ground.disk, "7"))
        await here.settled()
    return folder, declined_in(ground.disk, "7")


async def ran(*words: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bubbles", *words),
        env=environment,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def by_the_command_line(*words: str, job: bool = False) -> Way:
    """One turn in a process of its own, by a model over HTTP."""

    def brain(request: Mapping[str, Any]) -> str | list[tuple[str, Mapping[str, Any]]]:
        told = [str(message["content"]) for message in request["messages"] if message["role"] == "tool"]
        return "\n".join(told) if told else [("exec", {"script": command}) for command in COMMANDS]

    async def goes(ground: Ground) -> tuple[Path, str]:
        await asyncio.to_thread(ground.disk.prepare)
        folder = await asyncio.to_thread(ground.made, ground.disk.desk(WORK))
        more: tuple[str, ...] = ()
        if job:
            far = Schedule(kind=ScheduleKind.AT, text="2099-01-01T00:00:00Z")
            draft = JobDraft(name="a job", message="Do it.", schedule=far)
            more = ((await JobStore(ground.disk.data_dir).add(draft, WORK)).id,)
        async with serving(brain) as server:
            environment = {**ground.disk.environment, **server.environment}
            status, out, err = await ran(*words, *more, folder=folder, environment=environment)
        assert status == 0, err
        return folder, out

    return goes


async def by_sandbox_exec(ground: Ground) -> tuple[Path, str]:
    await asyncio.to_thread(ground.disk.prepare)
    folder = await asyncio.to_thread(ground.made, ground.disk.base / "project")
    start = ("sandbox", "exec", "--gate", "-b", "local", "--")
    came = await asyncio.gather(
        *(ran(*start, *each.split(), folder=folder, environment=ground.disk.environment) for each in COMMANDS)
    )
    assert [status == 0 for status, _, _ in came] == [True, False, False]
    return folder, "\n".join(err for _, _, err in came)


async def by_mcp_serve(ground: Ground) -> tuple[Path, str]:
    served = await asyncio.to_thread(make_ground, ground.disk.base, "bubblewrap")
    folder = await asyncio.to_thread(ground.made, served.project)
    async with raw(served) as agent:
        await agent.initialize()
        came = []
        for number, command in enumerate(COMMANDS, 1):
            await agent.call(number, "exec", script=command)
            came.append((await agent.answer(number))["result"])
    assert [result.get("isError", False) for result in came] == [False, True, True]
    return folder, json.dumps(came)


WAYS: dict[str, tuple[Way, str, str]] = {
    "private chat": (in_a_chat("do it"), "telegram", "user"),
    "mention in a group": (in_a_chat("do it", "g", is_group=True), "telegram", "user"),
    "talk in a group": (in_a_chat("do it", "g", is_group=True, addressed=False), "telegram", "bystander"),
    "button": (in_a_chat("ask first", presses=True), "telegram", "user"),
    "sub-agent": (in_a_chat("delegate it"), "telegram", "user"),
    "job": (by_a_job, "telegram", "cron"),
    "heartbeat": (by_a_heartbeat, "telegram", "heartbeat"),
    "agent -m": (by_the_command_line("agent", "-s", WORK, "-m", "do it"), "cli", "user"),
    "cron run": (by_the_command_line("cron", "run", job=True), "cli", "cron"),
    "sandbox exec --gate": (by_sandbox_exec, "cli", "user"),
    "mcp serve": (by_mcp_serve, "mcp", "user"),
}
NEEDS = {"mcp serve": pytest.mark.needs("bubblewrap")}


@pytest.mark.req("DEC-02", "DEC-08", "SBX-01")
@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in WAYS])
async def test_what_is_forbidden_never_runs_whichever_way_it_comes(tmp_path: Path, name: str) -> None:
    way, channel, trigger = WAYS[name]
    disk = Disk(tmp_path)
    disk.data_dir.mkdir(mode=0o700)
    disk.rule(RULES)
    folder, answer = await way(Ground(disk))

    assert (folder / "allowed-marker.ran").exists(), "commands of this way do run"
    assert not (folder / "forbidden-marker.ran").exists()
    assert (folder / ".git" / "canary").read_text() == "sings"
    declined = [line for line in disk.timeline if line["event"] == "approval_auto_declined"]
    assert sorted((line["command"], line["stage"], line["verdict"]) for line in declined) == [
        (FORBIDDEN, "rules", "deny"),
        (DESTRUCTIVE, "blacklist", "deny"),
    ]
    assert {(line["channel"], line["trigger"]) for line in declined} == {(channel, trigger)}
    assert all(bool(line.get("task")) is (name == "sub-agent") for line in declined)
    ended = [line["command"] for line in disk.timeline if line["event"] == "command_finished"]
    assert [command for command in ended if command != ASKED_ABOUT] == [ALLOWED]
    assert answer.count("declined") >= 2, answer
