"""``bubbles gateway`` with fifty chats that never stop writing: each is answered in order, and it does not grow."""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.channel_servers.telegram import BotApi, bot_api
from tests.gateway_scene import GatewayScene, telegram_environment
from tests.model_server import Calls, Request, serving

CHATS = 50
WORKING = 5
"""Chats whose every message needs a command."""
RULE = 'prefix_rule(pattern=["uname"])\n'
NUMBER = re.compile(r"#(\d+)")
SUMMARISED = re.compile("Older messages were summarised")
FILLING = " and so on" * 60
"""Histories are summarised again and again: what else grows is then seen."""
SMALL = {
    "BUBBLES_AGENTS__DEFAULTS__CONTEXT_TOKENS": "7000",
    "BUBBLES_AGENTS__DEFAULTS__COMPACTION_RESERVE_TOKENS": "1000",
}
MORE_FILES = 5
RSS, FDS = "process_resident_memory_bytes", "process_open_fds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    warm_s: float
    """Nor is it looked at before each chat has had an answer: chats, sandboxes and connections are opened."""
    lasts_s: float
    """After that."""
    look_s: float
    growth_bytes: float
    """In that time, by the line through all looks."""


SHORT = Size(warm_s=0.0, lasts_s=1.2, look_s=0.1, growth_bytes=8e6)
LONG = Size(warm_s=120.0, lasts_s=480.0, look_s=1.0, growth_bytes=10e6)
"""What it grows by is mostly that each session knows its last 500 messages again."""


def brain(request: Request) -> str | Calls:
    messages = request["messages"]
    if not request.get("tools"):
        return "They write and are answered."
    texts = {who: [str(each["content"]) for each in messages if each["role"] == who] for who in ("user", "assistant")}
    said, answered = ([int(n) for n in NUMBER.findall(" ".join(each))] for each in texts.values())
    if " work" in texts["user"][-1] and messages[-1]["role"] == "user":
        return [("exec", {"script": f"uname # {len(said)} {said[-1]}"})]
    return " ".join(["answer", *(f"#{number}" for number in said if number > max(answered, default=0))])


@dataclass(slots=True)
class Chats:
    """Each writes one to three messages, waits until all are answered, and writes again."""

    server: BotApi
    chance: random.Random
    sent: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int), init=False)
    """By chat, how many messages."""
    heard: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list), init=False)
    """By chat, the numbers of the answers as they came."""
    summaries: list[str] = field(default_factory=list, init=False)
    """What the program said of them."""
    delays_s: list[float] = field(default_factory=list, init=False)
    over: bool = field(default=False, init=False)

    async def listen(self) -> None:
        """What was looked at is taken away, so that the server does not grow either."""
        while True:
            await self.server.until(lambda: self.server.sent, 3_600)
            for message in self.server.sent:
                if message.text.startswith("answer "):
                    self.heard[message.chat] += map(int, NUMBER.findall(message.text))
                else:
                    assert SUMMARISED.match(message.text), message.text
                    self.summaries.append(message.text)
            self.server.sent.clear()
            self.server.requests.clear()
            self.server.acknowledged.clear()

    async def talk(self, chat: int) -> None:
        user: dict[str, Any] = {"id": chat, "is_bot": False, "first_name": f"Person{chat}"}
        work = " work" if chat % CHATS < WORKING else ""
        await asyncio.sleep(self.chance.uniform(0, 0.3))
        while not self.over:
            began = time.monotonic()
            for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
                self.sent[chat] += 1
                await self.server.says(f"message #{self.sent[chat]}{work}{FILLING}", user=user)
            await self.server.until(lambda: len(self.heard.get(chat, ())) >= self.sent[chat], 60)
            self.delays_s.append(time.monotonic() - began)
            await asyncio.sleep(self.chance.uniform(0, 0.5))


async def looks(scene: GatewayScene, size: Size, chats: Chats) -> list[tuple[float, float, float]]:
    """Seconds since the warm-up, bytes, open files."""
    await asyncio.sleep(size.warm_s)
    await chats.server.until(lambda: len(chats.heard) == CHATS, 60)
    began, found = time.monotonic(), []
    while (at := time.monotonic() - began) < size.lasts_s:
        gauges = await scene.gauges()
        found.append((at, gauges[RSS], gauges[FDS]))
        await asyncio.sleep(size.look_s)
    chats.over = True
    return found


def growth(seconds: Sequence[float], values: Sequence[float]) -> float:
    """By the straight line that fits best."""
    return statistics.linear_regression(seconds, values).slope * (seconds[-1] - seconds[0])


async def soak(base: Path, size: Size) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    people = range(CHATS * 10, CHATS * 11)
    async with bot_api() as server, serving(brain, keep=False) as model:
        environment = telegram_environment(server, people) | model.environment | SMALL
        async with GatewayScene(base, environment) as scene:
            (scene.data_dir / "rules").mkdir()
            (scene.data_dir / "rules" / "test.rules").write_text(RULE)
            await scene.starts()
            chats = Chats(server, random.Random(seed))
            found = await watched(scene, size, chats, people)
            assert await scene.waiting() == 0
            assert (await scene.stops())[0] == 0
        model.check()
    seconds, memory, files = zip(*found, strict=True)
    grown, opened = growth(seconds, memory), growth(seconds, files)
    waits = f"{len(chats.delays_s)} waits of {statistics.median(chats.delays_s):.2f} s"
    print(f"{sum(chats.sent.values())} messages, {waits}, {len(chats.summaries)} summaries")
    print(f"{memory[0] / 1e6:.1f} to {memory[-1] / 1e6:.1f} MB ({grown / 1e6:+.2f}), {files[0]} to {files[-1]} files")
    for chat in people:
        assert chats.heard[chat] == list(range(1, chats.sent[chat] + 1))
    assert grown < size.growth_bytes
    assert opened < MORE_FILES


async def watched(
    scene: GatewayScene, size: Size, chats: Chats, people: Iterable[int]
) -> list[tuple[float, float, float]]:
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(chats.listen())
        try:
            async with asyncio.TaskGroup() as talking:
                for chat in people:
                    talking.create_task(chats.talk(chat))
                watching = talking.create_task(looks(scene, size, chats))
        finally:
            listening.cancel()
    return watching.result()


@pytest.mark.req("OPS-02", "CORE-05")
@pytest.mark.timeout(60)
async def test_fifty_chats_are_answered_in_order(tmp_path: Path) -> None:
    await soak(tmp_path, SHORT)


@pytest.mark.soak
@pytest.mark.req("OPS-02")
@pytest.mark.timeout(900)
async def test_fifty_chats_for_ten_minutes_make_it_no_larger(tmp_path: Path) -> None:
    await soak(tmp_path, LONG)
