"""MCP servers that run in a session's own sandbox: one each session, and no more powers than its commands (TOOL-09)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.config.schema import McpServerSettings
from bubbles.mcp.contract import McpError, ServerState
from sandbox_backends.contract import ExecRequest, Root
from tests.mcp_playground.scene import HOSTILE, Scene, Tools, a_scene, origin
from tests.places import REAL
from tests.processes import comes_true

SESSIONS = ("test", "other")


@pytest.fixture(params=REAL)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    if request.param == "docker":
        await asyncio.to_thread(request.getfixturevalue, "sandbox_image")
    async with a_scene(tmp_path, request.param, SESSIONS) as scene:
        scene.bench.host_env = {"PATH": "/usr/bin:/bin"}
        await asyncio.to_thread(set_up, scene)
        yield scene


def set_up(scene: Scene) -> None:
    """Each session has a desk of its own, with the server in it."""
    for session in SESSIONS:
        desk = scene.bench.base / session
        desk.mkdir()
        shutil.copy(HOSTILE, desk / "server.py")
        for path in (desk, desk / "server.py"):
            path.chmod(0o755)
        scene.specs[session] = replace(scene.specs[session], roots=(Root(path=desk, label="desk"),))


def inside(mode: str = "plain", **more: Any) -> McpServerSettings:
    return McpServerSettings(command="python3", args=("server.py", mode), sandboxed=True, start_timeout_s=15, **more)


@pytest.mark.req("TOOL-09")
async def test_a_server_serves_its_own_session_with_the_environment_of_its_commands(scene: Scene) -> None:
    async with scene.servers(one=inside(env={"OWN": "mine"})) as servers:
        one, other = Tools(servers), Tools(servers, "other")
        await asyncio.gather(one.settled(), other.settled())
        assert (one.info.state, one.info.kind) == (ServerState.READY, "stdio in the sandbox")
        assert await one.text("cwd") == str(scene.bench.base / "test")
        assert await other.text("cwd") == str(scene.bench.base / "other")
        seen = json.loads(await one.text("env"))
        async with scene.sandboxes.use(scene.backend, scene.specs["test"]) as lease:
            commands = dict(lease.session.env)
        assert {name: seen[name] for name in commands} == commands
        assert seen["OWN"] == "mine"


async def test_a_server_starts_where_the_owner_says(scene: Scene) -> None:
    settings = inside().model_copy(update={"cwd": Path("/usr"), "args": (str(scene.bench.base / "test/server.py"),)})
    async with scene.servers(one=settings) as servers:
        one = Tools(servers)
        await one.settled()
        assert await one.text("cwd") == "/usr"


@pytest.mark.parametrize(
    ("mode", "said"),
    [("die", "the program ended with status 3"), ("endless-line", "more than 16 MiB"), ("hang", "within 1 s")],
)
async def test_a_bad_server_leaves_the_sandbox_to_its_session(scene: Scene, mode: str, said: str) -> None:
    async with scene.sandboxes.use(scene.backend, scene.specs["test"]) as lease:
        settings = inside(mode).model_copy(update={"start_timeout_s": 1.0}) if mode == "hang" else inside(mode)
        async with scene.servers(one=settings) as servers:
            one = Tools(servers)
            await one.settled()
            assert said in one.info.problem
            done = await lease.session.exec(ExecRequest(argv=("echo", "still here")))
            assert done.stdout == b"still here\n"
        assert lease.session.lost is None


async def test_when_the_sandbox_is_closed_the_server_is_there_again_in_the_next(scene: Scene) -> None:
    async with scene.servers(one=inside()) as servers:
        one = Tools(servers)
        await one.settled()
        silent = asyncio.create_task(one.text("silent"))
        await one.text("echo", text="after it")
        await scene.sandboxes.close("test")
        with pytest.raises(McpError, match="its sandbox was closed"):
            await silent
        assert await one.text("echo", text="again") == "again"


async def test_it_moves_with_its_session_to_another_sandbox(scene: Scene) -> None:
    async with scene.servers(one=inside()) as servers:
        one = Tools(servers)
        await one.settled()
        scene.specs["test"] = replace(scene.specs["test"], env={"MOVED": "yes"})
        async with scene.sandboxes.use(scene.backend, scene.specs["test"]):
            assert await comes_true(lambda: one.info.state is ServerState.READY)
            assert json.loads(await one.text("env"))["MOVED"] == "yes"


async def test_the_model_is_still_told_that_its_sandbox_was_reset(scene: Scene) -> None:
    """The server is the first that uses the new one."""
    async with scene.sandboxes.use(scene.backend, scene.specs["test"]):
        pass
    scene.specs["test"] = replace(scene.specs["test"], env={"CHANGED": "yes"})
    async with scene.servers(one=inside()) as servers:
        await Tools(servers).settled()
        async with scene.sandboxes.use(scene.backend, scene.specs["test"]) as lease:
            assert lease.reset == "its settings have changed"


async def test_leaving_ends_the_server_and_not_the_sandbox(scene: Scene) -> None:
    async with scene.sandboxes.use(scene.backend, scene.specs["test"]) as lease:
        async with scene.servers(one=inside("stubborn")) as servers:
            one = Tools(servers)
            await one.settled()
            child, pid = await one.text("child"), await one.text("pid")
        looked = await lease.session.exec(ExecRequest(argv=("ls", f"/proc/{pid}")))
        assert looked.exit_code != 0, "the server runs on"
        assert lease.session.lost is None
        del child  # of another session: in a soft place it ends with the sandbox


async def test_a_server_that_nobody_uses_ends_and_is_there_again_when_it_is_needed(scene: Scene) -> None:
    async with scene.servers(idle_s=0.2, one=inside()) as servers:
        one = Tools(servers)
        await one.settled()
        known = one.tool("pid")
        before = (await servers.call(known, {}, one.origin)).text
        assert await comes_true(lambda: one.info.state is ServerState.IDLE)
        assert one.info.problem == ""
        assert (await servers.call(known, {}, one.origin)).text != before


async def test_a_session_without_a_place_has_no_server_yet(scene: Scene) -> None:
    async with scene.servers(one=inside()) as servers:
        stranger = Tools(servers, "stranger")
        await stranger.settled()
        assert stranger.info.problem == "its session has no sandbox yet"
        assert servers.infos()[0].state is ServerState.IDLE


async def test_what_one_session_learnt_the_next_one_is_offered_at_once(scene: Scene) -> None:
    async with scene.servers(one=inside()) as servers:
        await Tools(servers).settled()
        known = servers.tools(origin("test"))
        assert known
        assert servers.tools(origin("other")) is known
        assert os.path.basename(known[0].server) == "one"
