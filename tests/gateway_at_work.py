"""A gateway at work in this process: a real workshop, its ledger on the disk, everything between platform and model.

    disk = Disk(tmp_path)
    async with at_work(disk, ["Hello."]) as here:
        await disk.telegram.say("hi", chat="7")
        (reply,) = await disk.telegram.heard(1, chat="7", kinds={Kind.REPLY})

A second ``at_work`` on the same disk is the next start of the program: platforms live on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import repeat
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import bubbles.agent
import bubbles.controller
import bubbles.cron
import bubbles.dispatch
import bubbles.sessions
import bubbles.tools
from bubbles.app.gateway import LEDGER, Channels, Gateway, gateway
from bubbles.app.workshop import Workshop, workshop
from bubbles.bus import Address, Kind
from bubbles.channels.contract import Traits
from bubbles.channels.fake import FakeChannel
from bubbles.config.channels import ChannelSettings
from bubbles.config.load import load_settings
from bubbles.config.schema import Settings
from bubbles.cron.contract import Job, JobDraft, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.gateway.ledger import Ledger
from bubbles.providers.contract import ModelReply, ModelRequest, TextSink, ToolMessage, UserMessage
from bubbles.providers.scripted import ScriptedProvider, Step

OPEN = ChannelSettings(allow_from=("ann", "bob"))
PLAIN = Traits(max_text=4_096, pause_s=0.0, group_pause_s=0.0, per_second=1e6)
"""What the simplest platform has."""
RICH = replace(PLAIN, buttons=True, edits=True, typing_s=4.0)
SAID = frozenset({Kind.REPLY, Kind.NOTICE})
LONG_AGO = timedelta(seconds=2)
HURRY_S = 0.02
Think = Callable[[ModelRequest], Step]

for layer in (bubbles.agent, bubbles.controller, bubbles.cron, bubbles.dispatch, bubbles.sessions, bubbles.tools):
    for module in walk_packages(layer.__path__, f"{layer.__name__}."):
        import_module(module.name)  # a start imports them before it takes anything, and that blocks


class Model:
    """The provider: plays a script, or thinks of each request. What is ``held`` is asked for and not answered yet."""

    name = "scripted"

    def __init__(self, script: Iterable[Step] | Think = ()) -> None:
        self._script = ScriptedProvider(repeat(script) if callable(script) else script)
        self.requests: list[ModelRequest] = []
        self.held: Callable[[ModelRequest], bool] = lambda _: False
        self._news = asyncio.Event()

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        self.requests.append(replace(request, messages=tuple(request.messages)))  # the history goes on
        self._news.set()
        while self.held(request):
            self._news.clear()
            await self._news.wait()
        return await self._script.complete(request, on_text=on_text)

    async def aclose(self) -> None:
        return

    def hold(self, text: str = "") -> None:
        """Requests whose newest message of a person holds ``text``."""
        self.held = lambda request: text in "".join(texts(request)[-1:])

    def release(self) -> None:
        self.held = lambda _: False
        self._news.set()

    async def asked(self, count: int = 1) -> ModelRequest:
        """The request of this number, from 1, once it is there."""
        async with asyncio.timeout(10):
            while len(self.requests) < count:
                self._news.clear()
                await self._news.wait()
        return self.requests[count - 1]


def texts(request: ModelRequest) -> list[str]:
    """What the model is told by people and by the program."""
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


def results(request: ModelRequest) -> list[str]:
    """What it sees of its calls."""
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


def offered(request: ModelRequest) -> set[str]:
    return {tool.name for tool in request.tools}


@dataclass(slots=True)
class Disk:
    """What outlives the program: a home, and the platforms."""

    base: Path
    config: dict[str, Any] = field(default_factory=dict)
    access: dict[str, ChannelSettings] = field(default_factory=dict)
    """Who is let in; ``OPEN`` for a channel that is not here."""
    telegram: FakeChannel = field(default_factory=lambda: FakeChannel(name="telegram", traits=RICH))
    other: FakeChannel = field(default_factory=lambda: FakeChannel(name="other", traits=PLAIN))
    more: tuple[FakeChannel, ...] = ()

    @property
    def data_dir(self) -> Path:
        return self.base / "data"

    @property
    def channels(self) -> dict[str, FakeChannel]:
        return {channel.name: channel for channel in (self.telegram, self.other, *self.more)}

    @property
    def environment(self) -> dict[str, str]:
        home = self.base / "home"
        return {"PATH": "/usr/bin:/bin", "HOME": str(home), "BUBBLES_HOME": str(self.data_dir)}

    def prepare(self) -> None:
        (self.base / "home").mkdir(exist_ok=True)
        self.data_dir.mkdir(mode=0o700, exist_ok=True)
        for place in [self.base, *list(self.base.parents)[:3]]:
            if place == self.base or place.name.startswith("pytest-"):
                place.chmod(0o755)  # under root, sandboxes run as somebody else
        file = self.data_dir / "config.json"
        file.write_text(json.dumps({"gateway": {"port": 0}, **self.config}))
        file.chmod(0o600)

    def desk(self, key: str) -> Path:
        return self.data_dir / "sessions" / key

    def rule(self, text: str) -> None:
        (self.data_dir / "rules").mkdir(parents=True, exist_ok=True)
        (self.data_dir / "rules" / "test.rules").write_text(text)

    def sessions(self) -> list[str]:
        place = self.data_dir / "session_state"
        return sorted(path.name for path in place.iterdir()) if place.exists() else []

    def history(self, key: str) -> list[dict[str, Any]]:
        path = self.data_dir / "session_state" / key / "session.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    @property
    def timeline(self) -> list[dict[str, Any]]:
        files = sorted((self.data_dir / "timeline").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    async def job(self, message: str, session: str, to: Address | None = None, **more: Any) -> Job:
        """One that is due now, since two seconds: it runs as soon as somebody looks."""
        store = JobStore(self.data_dir, lambda: datetime.now(UTC) - 2 * LONG_AGO)
        at = (datetime.now(UTC) - LONG_AGO).isoformat(timespec="microseconds")
        schedule = Schedule(kind=ScheduleKind.AT, text=at)
        return await store.add(
            JobDraft(name="a job", message=message, schedule=schedule, deliver_to=to, **more), session
        )

    async def jobs(self) -> list[Job]:
        return list((await JobStore(self.data_dir).listing()).jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    gateway: Gateway
    ledger: Ledger
    model: Model

    async def settled(self) -> None:
        """Everything that was taken is dealt with, and all that was to be said has arrived."""
        async with asyncio.timeout(10):
            while self.ledger.undone or await self.ledger.parcels():  # noqa: ASYNC110 - the disk tells nobody
                await asyncio.sleep(0.005)


async def until(is_so: Callable[[], object], within_s: float = 10.0) -> None:
    """For what tells nobody that it changes."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.005)


async def said(channel: FakeChannel, chat: str, count: int = 1) -> list[str]:
    """The replies and notices in a chat, cards among them, once there are so many."""
    return [piece.text for piece in await channel.heard(count, chat=chat, kinds=SAID)]


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Workshop]:
    """It is opened before there is an event loop, where it may block."""
    opening = workshop(settings)
    shop = await asyncio.to_thread(opening.__enter__)
    try:
        yield shop
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


@asynccontextmanager
async def at_work(disk: Disk, script: Iterable[Step] | Think = (), *, hurry: bool = False) -> AsyncIterator[AtWork]:
    """``hurry``: it is not let end what it is at when the context is left, as by a second Ctrl-C."""
    model = Model(script)
    await asyncio.to_thread(disk.prepare)
    settings = await asyncio.to_thread(load_settings, disk.environment)
    access = {name: disk.access.get(name, OPEN) for name in disk.channels}
    try:
        async with asyncio.timeout(None) as limit:
            async with (
                _opened(settings) as shop,
                Ledger(settings.data_dir / "gateway" / LEDGER) as ledger,
                gateway(shop, ledger, Channels(made=disk.channels, access=access), provider=model) as opened,
            ):
                yield AtWork(gateway=opened, ledger=ledger, model=model)
                if hurry:
                    limit.reschedule(asyncio.get_running_loop().time() + HURRY_S)
    except TimeoutError:
        if not limit.expired():
            raise
