"""What the assistant's core costs: start-up, one turn from the shell, a tool call, a hundred sessions at once."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bubbles.app.assistant import Assistant, assistant
from bubbles.app.workshop import workshop
from bubbles.bus import Address, InboundMessage, OutboundMessage
from bubbles.config.load import load_settings
from bubbles.providers.contract import ModelReply, ModelRequest, Provider, TextSink, ToolCall, UserMessage
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from bubbles.tools.contract import ToolResult
from tests.model_server import serving

Work = Callable[[], Awaitable[object]]
InTurn = Callable[[dict[str, Work], int], Awaitable[dict[str, float]]]
DEAF = {
    "BUBBLES_TOOLS__MCP_SERVERS": json.dumps({f"deaf{n}": {"command": "sleep", "args": ["1000"]} for n in range(5)})
}
CALLS = 150
SESSIONS = 100
TURNS = 20


async def _process(*argv: str, environment: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait() != 0:
        raise RuntimeError(f"{argv} failed")


async def starts(home: Path, in_turn: InTurn, rounds: int) -> dict[str, float]:
    """Milliseconds of whole processes: a bare Python, ``--help``, ``status`` and one message to a model next door."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    bubbles = str(Path(sys.executable).parent / "bubbles")
    async with serving(lambda _: "Hello.", keep=False) as server:
        talking = {**environment, **server.environment, "BUBBLES_TOOLS__SANDBOX__BACKEND": "local"}
        works: dict[str, Work] = {
            "python -c pass": lambda: _process(sys.executable, "-c", "pass", environment=environment),
            "bubbles --help": lambda: _process(bubbles, "--help", environment=environment),
            "bubbles status": lambda: _process(bubbles, "status", environment=environment),
            "bubbles agent -m": lambda: _process(bubbles, "agent", "-m", "hi", environment=talking),
            "with deaf servers": lambda: _process(bubbles, "agent", "-m", "hi", environment={**talking, **DEAF}),
        }
        return await in_turn(works, rounds)


class Watch:
    """An observer that notes how long each call of the turn took, from the model's reply to the next request."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self.since = 0.0

    def text(self, piece: str) -> None: ...
    def withdrawn(self) -> None: ...
    def reply_ended(self) -> None: ...
    def tool(self, call: ToolCall, hint: str) -> None: ...
    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        if result.is_error:
            raise RuntimeError(result.text)

    def notice(self, sentence: str) -> None: ...


@asynccontextmanager
async def _opened(home: Path, provider: Provider, watch: Watch) -> AsyncIterator[Assistant]:
    async def send(_: OutboundMessage) -> None:
        return

    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "BUBBLES_AGENTS__DEFAULTS__MAX_TOOL_ITERATIONS": "1000",
    }
    with workshop(load_settings(environment)) as shop:
        async with assistant(
            shop, approver_for=lambda _: None, send=send, observer_for=lambda _: watch, provider=provider
        ) as bubbles:
            yield bubbles


async def tool_calls(home: Path, floor: Work) -> dict[str, float]:
    """Milliseconds of one call in one turn of ``CALLS`` calls, its request, records and history included, and the floor
    sampled between the calls of the same turn.
    """
    watch = Watch()
    floors: list[float] = []

    def script() -> Iterator[Step]:
        for number in range(CALLS + 1):
            if watch.since:
                watch.took_ms.append((time.perf_counter() - watch.since) * 1e3)
            yield calls(("exec", {"script": f"true {number}"}), first=number)
        yield "Done."

    class Measured(ScriptedProvider):
        """Takes the floor's time while the loop waits for the model, so that neither pays for the other."""

        async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
            reply = await super().complete(request, on_text=on_text)
            started = time.perf_counter()
            await floor()
            floors.append((time.perf_counter() - started) * 1e3)
            watch.since = time.perf_counter()
            return reply

    async with _opened(home, Measured(script(), keep_requests=False), watch) as bubbles:
        await bubbles.dispatcher.deliver(
            InboundMessage(address=Address(channel="bench", chat_id="1"), sender="me", text="go", session_key="calls")
        )
        await bubbles.dispatcher.idle()
    took = watch.took_ms[1:]  # the first waits for the sandbox to open
    if len(took) < CALLS - 1:
        raise RuntimeError(f"only {len(took)} calls ran")
    return {
        "call": statistics.median(took),
        "floor": statistics.median(floors),
        "late": statistics.median(took[129:149]) / statistics.median(took[:20]),
    }


async def crowd(home: Path) -> dict[str, float]:
    """``SESSIONS`` sessions of ``TURNS`` turns each in one process: turns a second, growth after the first third in MB.

    Every reply repeats the session's own words; a history that held another's would be seen at once.
    """
    mixed: list[str] = []

    def think(request: ModelRequest) -> Step:
        words = [message.text for message in request.messages if isinstance(message, UserMessage)]
        names = {word.split()[0] for word in words}
        if len(names) != 1:
            mixed.append(f"{names}")
        return f"I hear {names}"

    def forever() -> Iterator[Step]:
        while True:
            yield think

    sizes: list[float] = []
    process = psutil.Process()
    async with _opened(home, ScriptedProvider(forever(), keep_requests=False), Watch()) as bubbles:
        started = time.perf_counter()
        for turn in range(TURNS):
            for number in range(SESSIONS):
                await bubbles.dispatcher.deliver(
                    InboundMessage(
                        address=Address(channel="bench", chat_id=str(number)),
                        sender="me",
                        text=f"session-{number} turn {turn}",
                        session_key=f"crowd-{number}",
                    )
                )
            await bubbles.dispatcher.idle()
            gc.collect()
            sizes.append(process.memory_info().rss / 1e6)
        took = time.perf_counter() - started
    if mixed:
        raise RuntimeError(f"histories were mixed: {mixed[:3]}")
    return {"turns_per_s": SESSIONS * TURNS / took, "growth_mb": sizes[-1] - sizes[TURNS // 3]}
