"""What MCP servers add to a turn that does not use them: five of thirty tools each, connected, against none.

As a script this is the model (``--model``) or a server (``--tools NAME``): both in processes of their own, so that what
they do with a request is not counted as ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from aiohttp import web

from bubbles.agent.limits import Model
from bubbles.agent.loop import AgentLoop
from bubbles.app.gate import Gate, whole_gate
from bubbles.app.workshop import Workshop, workshop
from bubbles.bus import Address, Origin
from bubbles.config.load import load_settings
from bubbles.config.schema import McpServerSettings, Settings
from bubbles.controller.contract import Workplace
from bubbles.controller.programs import Launcher
from bubbles.mcp.contract import Servers
from bubbles.mcp.servers import McpServers
from bubbles.providers.contract import UserMessage
from bubbles.providers.custom_client import CustomProvider
from bubbles.sessions.contract import Author
from bubbles.sessions.session import Sessions
from bubbles.tools.all import make_tools
from bubbles.tools.mcp import McpTools
from tests.benchmarks.core import Watch
from tests.model_server import MAX_REQUEST_BYTES, Calls, ModelServer, Request

SERVERS = 5
TOOLS = 30
WARMING = 3
"""Rounds that do not count: the first opens the sandboxes."""
CALLS = 6
"""Of one turn, each after a reply of its own."""
WORDS = "list create read update delete search move copy archive comment assign label close open merge".split()
THINGS = ("issue", "page")
PROMPT = "You are Bubbles. Work with the tools that you have. " * 40


def think(request: Request) -> str | Calls:
    """``CALLS`` commands, one a reply, since the person spoke last."""
    since = 0
    for message in request["messages"]:
        since = 0 if message["role"] == "user" else since + (message["role"] == "tool")
    return "Done." if since >= CALLS else [("exec", {"script": f"true {since} {len(request['messages'])}"})]


async def be_the_model() -> None:
    """It takes all of a request and looks at the messages alone: how long a model reads is not Bubbles' time."""
    server = ModelServer(think, keep=False)

    async def answer(request: web.Request) -> web.StreamResponse:
        messages, found, _ = (await request.read()).rpartition(b',"tools":[')
        if found:
            request._read_bytes = messages + b"}"  # what its json() then reads
        return await server.answer(request)

    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def tools_of(name: str) -> list[dict[str, Any]]:
    """Thirty that are ordinary: a sentence or two, four arguments, 130 tokens each."""

    def text(description: str) -> dict[str, str]:
        return {"type": "string", "description": description}

    return [
        {
            "name": f"{word}_{thing}",
            "description": f"Use it to {word} a {thing} of {name}. What comes back is the {thing} as it then is.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "project": text(f"The project that the {thing} belongs to, as owner/name."),
                    "number": {"type": "integer", "description": f"Which {thing}, counted from 1."},
                    "body": text(f"What the {thing} is to say, as Markdown."),
                    "labels": {"type": "array", "items": {"type": "string"}, "description": "Names of labels."},
                },
                "required": ["project", "number"],
            },
        }
        for word in WORDS
        for thing in THINGS
    ]


def be_a_server(name: str) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("id") is None:
            continue
        result: dict[str, Any] = {}
        if asked["method"] == "initialize":
            info = {"name": name, "version": "1"}
            version = asked["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif asked["method"] == "tools/list":
            result = {"tools": tools_of(name)}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the two that are compared: a session with its own loop and client."""

    loop: AgentLoop
    provider: CustomProvider
    sessions: Sessions
    origin: Origin

    async def turn(self) -> tuple[float, float]:
        """Seconds, and seconds of this process's processor."""
        session = await self.sessions.open(self.origin.session_key)
        began, worked = time.perf_counter(), time.process_time()
        async with session.turn() as history:
            done = await self.loop.run(
                history,
                UserMessage(text="Go on."),
                author=Author.PERSON,
                origin=self.origin,
                prompt=PROMPT,
                observer=Watch(),
            )
        if done.error is not None or done.calls != CALLS:
            raise RuntimeError(f"the turn went wrong: {done}")
        return time.perf_counter() - began, time.process_time() - worked


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--model", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def settings_in(home: Path, url: str) -> Settings:
    settings = load_settings({"PATH": os.environ["PATH"], "HOME": str(home)})
    servers = {
        f"server{number}": McpServerSettings(command=sys.executable, args=(__file__, "--tools", f"server{number}"))
        for number in range(SERVERS)
    }
    tools = settings.tools.model_copy(update={"mcp_servers": servers})
    return settings.model_copy(update={"tools": tools})


def real_servers(shop: Workshop, gate: Gate) -> McpServers:
    def nowhere(origin: Origin) -> Workplace:
        raise LookupError(origin.session_key)

    settings = shop.settings
    starter = Launcher(gate.sandboxes, lambda: shop.backend("local"), nowhere)
    return McpServers(settings.tools.mcp_servers, starter, settings.data_dir, env=settings.host_env)


def arm(shop: Workshop, gate: Gate, servers: Servers | None, url: str, name: str) -> Arm:
    settings = shop.settings
    sessions = Sessions(settings.data_dir, program="bench")
    folders = sessions.folders(name)
    place = shop.session_place(folders, "local", None)
    sources = []
    if servers is not None:
        sources.append(McpTools(servers, gate.calls, settings.tools.mcp_servers, place_of=lambda _: place))
    tools = make_tools(gate.controller, lambda _: place, lambda _: folders, settings, gate.redactor.mask, (), sources)
    provider = CustomProvider(base_url=f"{url}/v1", api_key="sk-test-key-of-the-model-server")
    origin = Origin(session_key=name, address=Address(channel="bench", chat_id=name), sender="me")
    loop = AgentLoop(model=Model(provider=provider, name="thinker"), tools=tools)
    return Arm(loop=loop, provider=provider, sessions=sessions, origin=origin)


async def measure(home: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of a turn without and with servers, and what they add in percent: of time, and of our processor."""
    home.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(model())
        shop = stack.enter_context(workshop(settings_in(home, url)))
        gate = await stack.enter_async_context(whole_gate(shop, lambda _: None))
        servers = await stack.enter_async_context(real_servers(shop, gate))
        arms = {"none": arm(shop, gate, None, url, "none"), "five": arm(shop, gate, servers, url, "five")}
        for each in arms.values():
            stack.push_async_callback(each.provider.aclose)
        servers.tools(arms["five"].origin)
        await servers.settled(arms["five"].origin, 30)
        if len(servers.tools(arms["five"].origin)) != SERVERS * TOOLS:
            raise RuntimeError(f"not all servers are there: {servers.infos()}")
        return await compared(arms, rounds)


async def compared(arms: dict[str, Arm], rounds: int) -> dict[str, float]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for taken in _orders(list(arms), rounds + WARMING):
        for name in taken:
            samples[name].append(await arms[name].turn())
    none, five = (samples[name][WARMING:] for name in ("none", "five"))
    return {
        "none_ms": statistics.median(seconds for seconds, _ in none) * 1e3,
        "five_ms": statistics.median(seconds for seconds, _ in five) * 1e3,
        "adds_percent": _added([taken[0] for taken in none], [taken[0] for taken in five]),
        "adds_cpu_percent": _added([taken[1] for taken in none], [taken[1] for taken in five]),
    }


def _added(none: Sequence[float], five: Sequence[float]) -> float:
    """By pairs that were taken one after the other: the machine's speed drifts."""
    return (statistics.median(with_ / without for without, with_ in zip(none, five, strict=True)) - 1) * 100


def _orders(names: list[str], rounds: int) -> Iterator[list[str]]:
    """Whoever comes after another pays for what that one left to be done."""
    for _ in range(rounds):
        random.shuffle(names)
        yield names


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tools"]:
        be_a_server(sys.argv[2])
    elif sys.argv[1:2] == ["--model"]:
        asyncio.run(be_the_model())
    else:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="bubbles-bench-") as directory:
            print(json.dumps(asyncio.run(measure(Path(directory), int((sys.argv[1:] or ["50"])[0]))), indent=2))
