"""The gateway: channels, the assistant, jobs, and how it all is, brought together (SPEC 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bubbles.app.assistant import Assistant, assistant
from bubbles.app.jobs import JobRuns
from bubbles.app.parts import Chats, keys
from bubbles.app.readiness import Watched, readiness
from bubbles.app.workshop import Workshop, enforced
from bubbles.bus import OutboundMessage
from bubbles.channels import registry
from bubbles.channels.contract import Channel, FatalChannelError, Incoming
from bubbles.channels.supervisor import Phase, Supervisor
from bubbles.config.channels import ChannelSettings
from bubbles.config.schema import Settings
from bubbles.cron.service import CronService
from bubbles.errors import ConfigError
from bubbles.gateway import media
from bubbles.gateway.cards import chat_approvers
from bubbles.gateway.health import Health
from bubbles.gateway.intake import Intake, Neighbours
from bubbles.gateway.ledger import Ledger, Memory
from bubbles.gateway.listening import is_loopback, refuse_open
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from bubbles.gateway.services import ChatCourier, ChatMembers, is_put_out
from sandbox_backends.contract import Enforces

if TYPE_CHECKING:
    from bubbles.dispatch.contract import Send
    from bubbles.providers.contract import Provider

LEDGER = "ledger.db"
PROGRAM = "bubbles gateway"
GRACE_S = 5.0
"""What turns get to end by themselves when the gateway is stopped; those that are cut off are taken up again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """Those that are on, by name."""

    made: Mapping[str, Channel] = field(default_factory=dict)
    access: Mapping[str, ChannelSettings] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    """Those that cannot be, and a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The gateway at work."""

    assistant: Assistant
    intake: Intake
    post: Post
    cron: CronService
    watched: Watched
    health: Health


async def run_gateway(
    shop: Workshop, *, on_ready: Callable[[str], None], on_secret: Callable[[str], None] = lambda _: None
) -> None:
    """Until it is cancelled; it then ends within ten seconds. ``on_ready`` is told once, in a few words, what is up."""
    settings = shop.settings
    if not is_loopback(settings.gateway.host):
        refuse_open(settings, await asyncio.to_thread(_holds_files, settings))
    await asyncio.to_thread(media.clear, settings.data_dir)
    async with Ledger(settings.data_dir / "gateway" / LEDGER) as ledger:
        for warning in ledger.warnings:
            _log.warning("%s", warning)
        channels = made_channels(settings, ledger)
        async with gateway(shop, ledger, channels, on_secret=on_secret) as opened:
            on_ready(opened.watched.summary(opened.health.url))
            await asyncio.Event().wait()


def made_channels(settings: Settings, ledger: Ledger) -> Channels:
    """Those that the settings turn on. One that cannot be made does not hinder the others."""
    made: dict[str, Channel] = {}
    access: dict[str, ChannelSettings] = {}
    broken: dict[str, str] = {}
    for manifest in registry.enabled(settings.channels):
        own = registry.settings_of(settings.channels, manifest.name)
        try:
            made[manifest.name] = registry.make(manifest.name, own, Memory(ledger, manifest.name))
            access[manifest.name] = own
        except FatalChannelError as error:
            broken[manifest.name] = str(error)
            _log.error("channel %s is off: %s", manifest.name, error)
    return Channels(made=made, access=access, broken=broken)


@asynccontextmanager
async def gateway(
    shop: Workshop,
    ledger: Ledger,
    channels: Channels,
    *,
    provider: Provider | None = None,
    on_secret: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Gateway]:
    """All of it at work while the context lasts. Leaving it takes nothing new, and gives turns ``GRACE_S`` to end."""
    metrics = Metrics()
    runs = JobRuns(metrics, lambda address: is_put_out(address, ledger, channels.access))
    taking = asyncio.Event()
    async with asyncio.TaskGroup() as up:  # what still has to be said goes out while the channels are up
        supervised: list[asyncio.Task[None]] = []
        async with Post(ledger, channels.made, metrics) as post:
            outlet = Outlet(post.put, runs)
            async with assistant(
                shop,
                approver_for=chat_approvers(post, channels.made, ledger.is_group),
                send=outlet.send,
                provider=provider,
                on_warning=lambda warning: _log.warning("%s", warning),
                program=PROGRAM,
                on_secret=on_secret,
                chats=Chats(
                    courier=ChatCourier(post, ledger, channels.access),
                    members=ChatMembers(channels.made),
                    begun=ledger.begun,
                ),
            ) as bubbles:
                intake = Intake(_neighbours(bubbles, ledger, post, channels, metrics))
                outlet.on_settled = intake.eased
                cron = CronService(bubbles.jobs, partial(runs.run, bubbles.dispatcher.deliver))
                watched = _watched(
                    channels, intake, cron, (ledger, post, metrics), taking, _problem(shop.settings, provider)
                )
                where = shop.settings.gateway
                token = None if where.token is None else where.token.get_secret_value()
                async with Health(where.host, where.port, token, lambda: readiness(watched), metrics) as health:
                    await intake.resume()
                    supervised += [up.create_task(each.run()) for each in watched.supervisors.values()]
                    beats = up.create_task(cron.run())
                    taking.set()
                    try:
                        yield Gateway(
                            assistant=bubbles, intake=intake, post=post, cron=cron, watched=watched, health=health
                        )
                    finally:
                        taking.clear()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(GRACE_S):
                                await cron.leave()
                                await bubbles.dispatcher.idle()
                        beats.cancel()
        for task in supervised:
            task.cancel()


class Outlet:
    """The dispatcher's way to the chats; what waits for the end of a message or a job learns of it here."""

    def __init__(self, put: Send, runs: JobRuns) -> None:
        self._put = put
        self._runs = runs
        self.on_settled: Callable[[], None] = lambda: None

    async def send(self, message: OutboundMessage) -> None:
        try:
            await self._put(message)
        finally:  # a job whose end nobody hears of would never run again
            self._runs.sent(message)
            if message.settles:
                self.on_settled()


def _neighbours(bubbles: Assistant, ledger: Ledger, post: Post, channels: Channels, metrics: Metrics) -> Neighbours:
    settings = bubbles.settings
    return Neighbours(
        channels=channels.made,
        access=channels.access,
        ledger=ledger,
        post=post,
        files=media.Files(settings.data_dir, bubbles.sessions, settings.channels.max_file_bytes),
        metrics=metrics,
        key_of=keys(settings),
        deliver=bubbles.dispatcher.deliver,
        is_command=bubbles.is_command,
        asked=bubbles.asked,
    )


def _watched(
    channels: Channels,
    intake: Intake,
    cron: CronService,
    near: tuple[Ledger, Post, Metrics],
    taking: asyncio.Event,
    problem: str,
) -> Watched:
    ledger, post, metrics = near

    def take(name: str) -> Callable[[Incoming], Awaitable[None]]:
        async def taken(message: Incoming) -> None:
            if not taking.is_set():  # it is stopped: the platform keeps the message for the next start
                await asyncio.Event().wait()
            await intake.take(name, message)

        return taken

    supervisors = {
        name: Supervisor(channel, take(name), on_phase=_heard(name, post, metrics))
        for name, channel in channels.made.items()
    }
    metrics.watch("bubbles_parcels_waiting", "Messages that have not arrived yet.", lambda: [({}, post.waiting)])
    return Watched(
        supervisors=supervisors,
        broken=channels.broken,
        intake=intake,
        cron=cron,
        ledger=ledger,
        taking=taking,
        problem=problem,
    )


def _heard(name: str, post: Post, metrics: Metrics) -> Callable[[Phase], None]:
    """What is done when a channel comes back, or goes."""

    def heard(phase: Phase) -> None:
        if phase is Phase.STARTING:
            metrics.count("bubbles_channel_restarts_total", channel=name)
        elif phase is Phase.UP:
            post.connected(name)

    return heard


def _problem(settings: Settings, provider: Provider | None) -> str:
    """Why no turn can run, if the settings are that far from being whole."""
    from bubbles.providers.select import choose

    if provider is not None:
        return ""
    try:
        choose(settings)
    except ConfigError as error:
        _log.warning("no turn can run: %s", error)
        return str(error)
    return ""


def _holds_files(settings: Settings) -> bool:
    return Enforces.FILESYSTEM in enforced(settings, settings.tools.sandbox.backend)
