"""``bubbles mcp serve`` as a real process: for the SDK's own client, and for bytes that no good client would send."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.sandbox_image import NAME as IMAGE

REPOSITORY = Path(__file__).parent.parent
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "raw client", "version": "1"},
}
ASKED_ABOUT = "python3 -c 'print(6 * 7)'"
"""A command that no rule allows and nothing forbids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A home of its own, and a project in it."""

    base: Path
    backend: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.base / "project"

    @property
    def data_dir(self) -> Path:
        return self.base / "data"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.base / "person"),
            "BUBBLES_HOME": str(self.data_dir),
            "BUBBLES_TOOLS__SANDBOX__DOCKER__IMAGE": os.environ.get("BUBBLES_TEST_IMAGE", IMAGE),
            "ANTHROPIC_API_KEY": "sk-canary-of-the-owner",
            "PYTHONPATH": str(REPOSITORY),
            **self.more,
        }

    def command(self, *options: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "bubbles", "mcp", "serve", "--backend", self.backend, *options)

    def rule(self, text: str) -> None:
        rules = self.data_dir / "rules"
        rules.mkdir(parents=True, exist_ok=True)
        (rules / "test.rules").write_text(text)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the timeline has."""
        files = sorted((self.data_dir / "timeline").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def make_ground(base: Path, backend: str, **more: str) -> Ground:
    ground = Ground(base=base, backend=backend, more=more)
    ground.project.mkdir()
    (base / "person").mkdir()
    (ground.project / "notes.txt").write_text("first\nsecond\n")
    return ground


@dataclass(slots=True)
class Person:
    """Who sits before the client, and what they answer every form."""

    action: Any = "accept"
    content: Any = None
    forms: list[types.ElicitRequestFormParams] = field(default_factory=list)

    async def asked(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append(params)
        return types.ElicitResult.model_construct(action=self.action, content=self.content)


YES: dict[str, str | int | float | list[str] | None] = {"decision": "run"}


@asynccontextmanager
async def client(
    ground: Ground, asked: Any = None, *options: str, mode: Any = "legacy", errlog: TextIO | None = None
) -> AsyncIterator[Client]:
    """The SDK's own client; ``asked`` answers forms, and without it there is no elicitation."""
    command, *arguments = ground.command(*(options or ("--root", str(ground.project))))
    parameters = StdioServerParameters(command=command, args=arguments, env=ground.environment, cwd=ground.project)
    transport = stdio_client(parameters, errlog or sys.stderr)
    async with Client(transport, mode=mode, elicitation_callback=asked) as connected:
        yield connected


async def told(connected: Client, tool: str, /, **arguments: Any) -> str:
    result = await connected.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    assert not result.is_error, text
    return text


async def refused(connected: Client, tool: str, /, **arguments: Any) -> str:
    result = await connected.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    assert result.is_error, text
    return text


class Raw:
    """The command, and its two pipes as they are."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    async def send(self, *messages: Mapping[str, Any]) -> None:
        await self.send_bytes(b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in messages))

    async def send_bytes(self, data: bytes) -> None:
        self.stdin.write(data)
        await self.stdin.drain()

    async def call(self, ident: int, tool: str, **arguments: Any) -> None:
        await self.send({"id": ident, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    async def line(self) -> dict[str, Any]:
        """The next message; a line that is none fails the test."""
        async with asyncio.timeout(15):
            found = json.loads(await self.stdout.readline())
        assert found["jsonrpc"] == "2.0"
        message: dict[str, Any] = found
        return message

    async def answer(self, ident: int) -> dict[str, Any]:
        while (found := await self.line()).get("id") != ident or "method" in found:
            pass
        return found

    async def initialize(self, **more: Any) -> dict[str, Any]:
        await self.send({"id": 0, "method": "initialize", "params": {**INITIALIZE, **more}})
        found = await self.answer(0)
        await self.send({"method": "notifications/initialized"})
        return found

    async def ends(self, within_s: float = 15.0) -> int:
        """Its exit status."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()


@asynccontextmanager
async def raw(ground: Ground, *options: str) -> AsyncIterator[Raw]:
    process = await asyncio.create_subprocess_exec(
        *ground.command(*(options or ("--root", str(ground.project)))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ground.project,
        env=ground.environment,
        limit=32 << 20,
    )
    try:
        yield Raw(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
