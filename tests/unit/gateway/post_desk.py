"""A post over a real ledger, a platform that does what it is told, and time that passes when it is told to."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage
from bubbles.channels.contract import ChannelError, Link, Piece, RefusedError, Roster, Traits
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.pacing import Timing
from bubbles.gateway.post import Post

PAUSE_S = 2.0
GROUP_PAUSE_S = 3.0
START = 1_000_000.0


class WoundTime:
    def __init__(self) -> None:
        self.now = START
        self._waits: dict[int, tuple[float, asyncio.Event]] = {}

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        passed = asyncio.Event()
        self._waits[id(passed)] = (self.now + seconds, passed)
        tasks = {asyncio.create_task(each.wait()) for each in (event, passed)}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waits[id(passed)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def next(self) -> float:
        """The first moment that somebody waits for."""
        return min((moment for moment, _ in self._waits.values()), default=math.inf)

    def turn_to(self, moment: float) -> None:
        self.now = max(self.now, moment)
        for due, passed in self._waits.values():
            if due <= self.now:
                passed.set()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a platform was given."""

    at: float
    chat: str
    text: str
    kind: Kind
    reply_to: str | None
    card: str | None
    edits: str | None = None


class ScriptedChannel:
    """``plans`` say what becomes of the next tries in a chat; without one, they go well."""

    def __init__(self, time: WoundTime, name: str = "fake", **traits: object) -> None:
        self.name = name
        self.stall_s = 60.0
        fields = {"max_text": 1_000, "pause_s": PAUSE_S, "group_pause_s": GROUP_PAUSE_S, "per_second": 1e6, **traits}
        self.traits = Traits(**fields)  # type: ignore[arg-type]
        self.plans: defaultdict[str, deque[Exception | None]] = defaultdict(deque)
        self.seen: list[Seen] = []
        """What has arrived."""
        self.tries: list[tuple[float, str]] = []
        self.typed: list[tuple[float, str]] = []
        self.stuck: dict[str, asyncio.Event] = {}
        """In these chats nothing is answered until the event is set."""
        self.nameless = False
        """It gives messages no ids."""
        self._time = time

    def texts(self, chat: str = "7") -> list[str]:
        return [each.text for each in self.seen if each.chat == chat]

    def moments(self, chat: str = "7") -> list[float]:
        """Since the start, of all tries."""
        return [round(at - START, 3) for at, where in self.tries if where == chat]

    async def run(self, link: Link) -> None:
        raise NotImplementedError

    async def members(self, chat_id: str) -> Roster | None:
        raise NotImplementedError

    async def typing(self, chat_id: str) -> None:
        self.typed.append((self._time.now, chat_id))
        if self.plans["typing"]:
            raise self.plans["typing"].popleft() or ChannelError("no")

    async def send(self, piece: Piece) -> str | None:
        await self._take(piece, None)
        return None if self.nameless else f"m{len(self.seen)}"

    async def edit(self, message_id: str, piece: Piece) -> None:
        await self._take(piece, message_id)

    async def _take(self, piece: Piece, edits: str | None) -> None:
        self.tries.append((self._time.now, piece.chat_id))
        if piece.chat_id in self.stuck:
            await self.stuck[piece.chat_id].wait()
        plans = self.plans[piece.chat_id]
        if plans and (error := plans.popleft()) is not None:
            raise error
        if not piece.text.strip() or self.traits.measure(piece.text) > self.traits.max_text:
            raise RefusedError(f"{self.traits.measure(piece.text)} characters")
        seen = Seen(
            at=self._time.now,
            chat=piece.chat_id,
            text=piece.text,
            kind=piece.kind,
            reply_to=piece.reply_to,
            card=piece.card,
            edits=edits,
        )
        self.seen.append(seen)


class Desk:
    """All that a test of the post needs."""

    def __init__(self, ledger: Ledger, time: WoundTime, channel: ScriptedChannel) -> None:
        self.ledger = ledger
        self.time = time
        self.channel = channel
        self.metrics = Metrics()
        self.send_timeout_s = 60.0
        """Of real time."""
        self._number = 0

    @asynccontextmanager
    async def post(self, *more: ScriptedChannel) -> AsyncIterator[Post]:
        timing = Timing(
            clock=lambda: self.time.now,
            ticks=lambda: self.time.now,
            wait=self.time.wait,
            chance=lambda: 0.0,
            send_timeout_s=self.send_timeout_s,
        )
        channels = {each.name: each for each in (self.channel, *more)}
        async with AsyncExitStack() as leaving:
            post = await leaving.enter_async_context(Post(self.ledger, channels, self.metrics, timing))
            try:
                yield post
            finally:
                passing = asyncio.create_task(self._keep_passing())
                try:
                    await leaving.aclose()
                finally:
                    passing.cancel()
                    await asyncio.gather(passing, return_exceptions=True)

    async def _keep_passing(self) -> None:
        while True:
            await self.passes(0.5)

    async def quiet(self) -> None:
        """Nothing happens any more unless time passes: the ledger's jobs are done one after another."""
        for _ in range(8):
            await self.ledger.load("", "")
            for _ in range(8):
                await asyncio.sleep(0)

    async def passes(self, seconds: float) -> None:
        end = self.time.now + seconds
        await self.quiet()
        while (moment := self.time.next) <= end:
            self.time.turn_to(moment)
            await self.quiet()
        self.time.turn_to(end)

    async def asked(self, chat: str = "7", *, is_group: bool = False) -> str:
        """The ticket of a message that was taken; its platform's id is ``q1``, ``q2`` …"""
        self._number += 1
        message = InboundMessage(
            address=address(chat), sender="ann", text="?", message_id=f"q{self._number}", is_group=is_group
        )
        return str(await self.ledger.take(message))

    async def rows(self) -> list[tuple[str, bool]]:
        return [(row.parcel.piece.text, row.sending) for row in await self.ledger.parcels()]

    def counted(self, name: str, channel: str = "fake") -> int:
        line = f'bubbles_{name}_total{{channel="{channel}"}} '
        found = [each for each in self.metrics.render().splitlines() if each.startswith(line)]
        return int(found[0].removeprefix(line)) if found else 0


def address(chat: str = "7", channel: str = "fake") -> Address:
    return Address(channel=channel, chat_id=chat)


def said(text: str, chat: str = "7", kind: Kind = Kind.REPLY, *settles: str, channel: str = "fake") -> OutboundMessage:
    return OutboundMessage(address=address(chat, channel), text=text, kind=kind, settles=settles)


@asynccontextmanager
async def desk_at(path: Path, make: Callable[[WoundTime], ScriptedChannel] = ScriptedChannel) -> AsyncIterator[Desk]:
    time = WoundTime()
    async with Ledger(path / "ledger.db", lambda: time.now) as ledger:
        yield Desk(ledger, time, make(time))
