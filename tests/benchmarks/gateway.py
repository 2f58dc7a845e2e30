"""What the gateway costs: an idle process, its start, and turns a second through all of it, against the same turns
through the dispatcher alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.app.assistant import assistant
from bubbles.app.gateway import Channels, gateway
from bubbles.app.workshop import Workshop, workshop
from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage
from bubbles.channels.contract import Incoming, Piece
from bubbles.channels.fake import FakeChannel
from bubbles.channels.registry import manifests
from bubbles.config.channels import ChannelSettings
from bubbles.config.load import load_settings
from bubbles.gateway.ledger import Ledger
from bubbles.providers.scripted import ScriptedProvider
from tests.gateway_scene import SILENT_MODEL, GatewayScene

STARTS = 5
IDLE_S = 5.0
ROUNDS = 5
SESSIONS = (1, 10, 50)
TURNS = 100
"""Of all sessions together, in one round."""
IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\w+)", re.MULTILINE)
LIBRARIES = frozenset({"litellm", "openai", "anthropic"})
"""Of models; those of channels are in their manifests."""


async def idle(base: Path) -> dict[str, float]:
    """Of whole processes without a channel: seconds until it is healthy, MB, percent of a core, libraries imported."""
    healthy_s, sizes = [], []
    busy = 0.0
    for number in range(STARTS):
        home = base / f"idle{number}"
        home.mkdir(parents=True)
        async with GatewayScene(home, SILENT_MODEL) as scene:
            began = time.perf_counter()
            await scene.begins()
            await scene.answers("/healthz")
            healthy_s.append(time.perf_counter() - began)
            await scene.is_ready()
            await asyncio.sleep(1)
            sizes.append(scene.process.memory_info().rss / 1e6)
            if number == 0:
                busy = await _busy(scene)
            await scene.stops()
    return {
        "healthy_s": statistics.median(healthy_s),
        "mb": statistics.median(sizes),
        "cpu_percent": busy,
        "libraries": await libraries(base),
    }


async def _busy(scene: GatewayScene) -> float:
    """Percent of a core that it takes while nothing happens, what it has begun included."""

    def worked_s() -> float:  # in nanoseconds there: what psutil tells comes in hundredths of a second
        threads = Path(f"/proc/{scene.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    before = worked_s()
    await asyncio.sleep(IDLE_S)
    return (worked_s() - before) / IDLE_S * 100


async def libraries(base: Path) -> int:
    """How many libraries of platforms and models a gateway without a channel has imported once it is up."""
    home = base / "imports"
    home.mkdir()
    async with GatewayScene(home, SILENT_MODEL | {"PYTHONPROFILEIMPORTTIME": "1"}) as scene:
        await scene.starts()
        await scene.stops()
    found = set(IMPORTED.findall(scene.said.read_text()))
    if "bubbles" not in found:
        raise RuntimeError("nothing is known of what was imported")
    return len(found & {*LIBRARIES, *(name for manifest in manifests() for name in manifest.requires)})


Replies = defaultdict[str, asyncio.Queue[str]]


@dataclass(slots=True, kw_only=True)
class Wire(FakeChannel):
    """A platform that has answers fetched by whoever waits for them, and keeps none."""

    replies: Replies = field(default_factory=lambda: defaultdict(asyncio.Queue), init=False)
    """By chat."""

    async def send(self, piece: Piece) -> str | None:
        if piece.kind is Kind.REPLY:
            self.replies[piece.chat_id].put_nowait(piece.text)
        return None


Ask = Callable[[str, int], Awaitable[None]]
"""Says something in a chat, and returns once it is answered."""


@asynccontextmanager
async def through_the_gateway(home: Path) -> AsyncIterator[Ask]:
    """Platform, access, ledger on the disk, dispatcher, turn, ledger, platform."""
    wire = Wire()
    channels = Channels(made={"fake": wire}, access={"fake": ChannelSettings(enabled=True, allow_from=("*",))})
    async with AsyncExitStack() as stack:
        shop = stack.enter_context(_shop(home))
        ledger = await stack.enter_async_context(Ledger(shop.settings.data_dir / "gateway" / "ledger.db"))
        await stack.enter_async_context(gateway(shop, ledger, channels, provider=_provider()))

        async def ask(chat: str, number: int) -> None:
            wire.offer(Incoming(chat_id=chat, message_id=str(number), sender="ann", text=f"Message {number}."))
            await wire.replies[chat].get()

        yield ask


@asynccontextmanager
async def through_the_dispatcher(home: Path) -> AsyncIterator[Ask]:
    """The same turns; nothing is kept but the histories."""
    heard: Replies = defaultdict(asyncio.Queue)

    async def send(message: OutboundMessage) -> None:
        if message.kind is Kind.REPLY:
            heard[message.address.chat_id].put_nowait(message.text)

    with _shop(home) as shop:
        async with assistant(shop, approver_for=lambda _: None, send=send, provider=_provider()) as bubbles:

            async def ask(chat: str, number: int) -> None:
                address = Address(channel="fake", chat_id=chat)
                await bubbles.dispatcher.deliver(
                    InboundMessage(address=address, sender="ann", text=f"Message {number}.", message_id=str(number))
                )
                await heard[chat].get()

            yield ask


def _shop(home: Path) -> AbstractContextManager[Workshop]:
    home.mkdir(parents=True)
    return workshop(load_settings({"PATH": os.environ["PATH"], "HOME": str(home), "BUBBLES_GATEWAY__PORT": "0"}))


def _provider() -> ScriptedProvider:
    return ScriptedProvider(itertools.repeat("Here is an answer of a sentence."), keep_requests=False)


async def turns(base: Path) -> dict[int, tuple[float, float]]:
    """By how many sessions there are: turns a second through the gateway, and its part of what the dispatcher does."""
    numbers = itertools.count(1)
    found = {}
    async with AsyncExitStack() as stack:
        whole = await stack.enter_async_context(through_the_gateway(base / "gateway"))
        bare = await stack.enter_async_context(through_the_dispatcher(base / "dispatcher"))
        for sessions in SESSIONS:
            speeds: list[tuple[float, float]] = []
            for round_ in range(ROUNDS + 1):
                chats = [f"{sessions}-{round_}-{number}" for number in range(sessions)]
                speeds.append((await _speed(whole, chats, numbers), await _speed(bare, chats, numbers)))
            del speeds[0]  # warms up
            found[sessions] = (
                statistics.median(ours for ours, _ in speeds),
                statistics.median(ours / theirs for ours, theirs in speeds),
            )
    return found


async def _speed(ask: Ask, chats: Sequence[str], numbers: itertools.count[int]) -> float:
    """Turns a second. Each chat is open already: its first message does not count."""

    async def talk(chat: str, count: int) -> None:
        for _ in range(count):
            await ask(chat, next(numbers))

    await asyncio.gather(*(talk(chat, 1) for chat in chats))
    began = time.perf_counter()
    await asyncio.gather(*(talk(chat, TURNS // len(chats)) for chat in chats))
    return TURNS // len(chats) * len(chats) / (time.perf_counter() - began)
