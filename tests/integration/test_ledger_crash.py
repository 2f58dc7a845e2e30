"""A gateway without a model, killed at random instants while it takes, answers, sends: nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles.bus import Address
from bubbles.channels.contract import Link, Piece, Roster, Traits
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.outgoing import AGAIN
from bubbles.gateway.post import Post

ROOT = Path(__file__).parents[2]
PARTS = 3
CHATS = 3
TRAITS = Traits(max_text=160, pause_s=0.001, per_second=1e6)

GATEWAY = """
import asyncio, os, sys
from pathlib import Path
from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from tests.integration.test_ledger_crash import CHATS, PARTS, Platform, told

async def answer(post, message):
    text = "\\n\\n".join(f"<{message.message_id}.{part}> ".ljust(90, "x") for part in range(PARTS))
    await post.put(OutboundMessage(address=message.address, text=text, settles=(message.ticket,)))
    told("settled", message.message_id)

async def chat(ledger, post, run, number):
    address = Address(channel="fake", chat_id=str(number))
    for count in range(10_000):
        ident = f"{run}-{number}-{count}"
        fields = dict(address=address, sender="ann", text="?" * 500, message_id=ident)
        ticket = await ledger.take(InboundMessage(**fields))
        told("took", ident)
        await ledger.begun(ticket)
        await answer(post, InboundMessage(**fields, ticket=ticket))
        while post.waiting > 20:
            await asyncio.sleep(0.001)

async def live(path, run):
    async with Ledger(path) as ledger:
        left = await ledger.waiting()
        async with Post(ledger, {"fake": Platform()}, Metrics()) as post, asyncio.TaskGroup() as tasks:
            for kept in left:
                await ledger.begun(kept.message.ticket)
                await answer(post, kept.message)
            for number in range(CHATS):
                tasks.create_task(chat(ledger, post, run, number))

for line in sys.stdin:  # all is imported already: a new process takes a moment only
    pid = os.fork()
    if pid == 0:
        asyncio.run(live(Path(sys.argv[1]), line.strip()))
    told("pid", str(pid))
    os.waitpid(pid, 0)
    told("dead", "")
"""


def told(what: str, ident: str) -> None:
    """In one piece: a kill comes before it or after it."""
    os.write(1, json.dumps([what, ident]).encode() + b"\n")


class Platform:
    """What it is given, it has, whatever becomes of the program."""

    name = "fake"
    traits = TRAITS
    stall_s = 60.0

    async def run(self, link: Link) -> None:
        raise NotImplementedError

    async def send(self, piece: Piece) -> str | None:
        told("got", piece.text)
        return None

    async def edit(self, message_id: str, piece: Piece) -> None:
        raise NotImplementedError

    async def typing(self, chat_id: str) -> None:
        raise NotImplementedError

    async def members(self, chat_id: str) -> Roster | None:
        raise NotImplementedError


class HerePlatform(Platform):
    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, piece: Piece) -> str | None:
        self._world.hear("got", piece.text)
        return None


class World:
    """What everybody outside the program knows."""

    def __init__(self) -> None:
        self.took: set[str] = set()
        self.settled: set[str] = set()
        self.got: defaultdict[str, list[bool]] = defaultdict(list)
        """For each part of an answer that arrived, each time: whether it said that it was sent again."""
        self.order: list[str] = []

    def hear(self, what: str, text: str) -> None:
        if what == "got":
            match = re.search(r"<(.*)>", text)
            assert match is not None
            if match[1] not in self.got:
                self.order.append(match[1])
            self.got[match[1]].append(text.startswith(AGAIN))
        elif what == "took":
            self.took.add(text)
        elif what == "settled":
            self.settled.add(text)


@contextmanager
def gateways(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", GATEWAY, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0


def one_life(process: subprocess.Popen[bytes], run: int, world: World, after_s: float) -> None:
    """Of a gateway, from its start to its kill."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{run}\n".encode())
    process.stdin.flush()
    pid, alive = 0, False
    for line in process.stdout:
        what, text = json.loads(line)
        world.hear(what, text)
        if what == "pid":
            pid = int(text)
        elif what == "dead":
            return
        alive = alive or what in ("took", "settled", "got")
        if pid and alive:
            time.sleep(after_s)  # the instant is the matter of the test
            os.kill(pid, signal.SIGKILL)
            pid = 0


async def check_after_a_kill(path: Path, world: World, run: int) -> None:
    async with Ledger(path) as ledger:
        assert ledger.warnings == []
        waiting = [kept.message.message_id for kept in await ledger.waiting()]
        rows = await ledger.parcels()
        for ident in (each for each in world.took if each.startswith(f"{run}-")):
            (number,) = re.findall(r"-(\d+)-", ident)
            assert await ledger.known(Address(channel="fake", chat_id=number), ident)
    assert len(waiting) == len(set(waiting))
    assert world.settled.isdisjoint(waiting)
    left = {match: row.sending for row in rows for match in re.findall(r"<(.*)>", row.parcel.piece.text)}
    assert len(left) == len(rows)
    for ident in world.settled:
        parts = {f"{ident}.{part}" for part in range(PARTS)}
        assert parts <= left.keys() | world.got.keys(), "a part is lost"
    assert all(sending or part not in world.got for part, sending in left.items())


@pytest.mark.req("OPS-02", "CHAN-07")
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(120)])])
async def test_each_message_gets_its_whole_answer_once_whenever_the_program_is_killed(
    tmp_path: Path, count: int
) -> None:
    path, world, chance = tmp_path / "ledger.db", World(), random.Random(count)
    with gateways(path) as process:
        for run in range(count):
            one_life(process, run, world, chance.uniform(0, 0.08))
            await check_after_a_kill(path, world, run)
    async with Ledger(path) as ledger:
        unanswered = [kept.message.message_id for kept in await ledger.waiting()]
        while await ledger.parcels():
            async with Post(ledger, {"fake": HerePlatform(world)}, Metrics()):
                pass  # leaving gives what is left some time
    answered = {part.rpartition(".")[0] for part in world.got}
    assert world.took <= answered | set(unanswered)
    assert answered.isdisjoint(unanswered)
    for ident in answered:
        for part in range(PARTS):
            first, *again = world.got[f"{ident}.{part}"]
            del first  # it may be the second try of one of which nobody knew
            assert all(again), f"{ident}.{part} came twice and did not say so"
    for chat in range(CHATS):
        mine = [part for part in world.order if f"-{chat}-" in part]
        assert mine == sorted(mine, key=lambda part: [int(number) for number in re.findall(r"\d+", part)])
    assert len(answered) >= count
    assert any(len(times) > 1 for times in world.got.values()) or count < 100
