"""The intake between a fake platform and a dispatcher that only writes down what it gets; all else is real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.bus import Address, InboundMessage
from bubbles.channels.contract import Incoming
from bubbles.channels.fake import FakeChannel
from bubbles.config.channels import ChannelSettings
from bubbles.gateway.intake import Intake, Neighbours
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.media import FOLDER, Files
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from bubbles.sessions.key import chat_key
from bubbles.sessions.session import Sessions

HERE = Address(channel="fake", chat_id="7")
OPEN = ChannelSettings(allow_from=("ann", "bob"), group_policy="all")
Deliver = Callable[[InboundMessage], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Scene:
    intake: Intake
    ledger: Ledger
    post: Post
    metrics: Metrics
    data_dir: Path
    delivered: list[InboundMessage] = field(default_factory=list)

    async def take(self, text: str = "hello", sender: str = "ann", message_id: str = "m1", **rest: Any) -> None:
        await self.intake.take("fake", heard(text, sender, message_id, **rest))

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.delivered]

    async def notices(self) -> list[str]:
        """What is on its way to a chat."""
        return [row.parcel.piece.text for row in await self.ledger.parcels()]

    def received(self) -> list[bytes]:
        place = self.data_dir / "sessions" / chat_key("fake", "7") / FOLDER
        return [path.read_bytes() for path in place.iterdir()] if place.is_dir() else []

    def count(self, name: str) -> str:
        lines = [line for line in self.metrics.render().splitlines() if line.startswith(f"bubbles_{name}_total{{")]
        return " ".join(lines).removeprefix(f'bubbles_{name}_total{{channel="fake"}} ')


def heard(text: str = "hello", sender: str = "ann", message_id: str = "m1", **rest: Any) -> Incoming:
    return Incoming(**{"chat_id": "7", "message_id": message_id, "sender": sender, "text": text, **rest})


@dataclass(slots=True)
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def scene(
    root: Path,
    access: ChannelSettings = OPEN,
    *,
    deliver: Deliver | None = None,
    ledger: Ledger | None = None,
    clock: Callable[[], float] = Clock(),
    asked: tuple[Address, ...] = (),
    on: bool = True,
) -> AsyncIterator[Scene]:
    """``asked``: chats in which a question waits. ``on``: whether the fake is."""
    metrics, channels = Metrics(), {"fake": FakeChannel()} if on else {}
    data_dir = root / "home"
    async with ledger or Ledger(data_dir / "gateway" / "ledger.db") as kept, Post(kept, channels, metrics) as post:
        delivered: list[InboundMessage] = []

        async def note(message: InboundMessage) -> None:
            delivered.append(message)

        near = Neighbours(
            channels=channels,
            access={"fake": access} if on else {},
            ledger=kept,
            post=post,
            files=Files(data_dir, Sessions(data_dir, skills=root / "none"), 1_000_000),
            metrics=metrics,
            key_of=lambda message: chat_key(message.address.channel, message.address.chat_id),
            deliver=deliver or note,
            is_command=lambda text: text.split()[:1] in (["/status"], ["/stop"]),
            asked=lambda address: address in asked,
        )
        yield Scene(
            intake=Intake(near, clock), ledger=kept, post=post, metrics=metrics, data_dir=data_dir, delivered=delivered
        )


def group(**rest: Any) -> dict[str, Any]:
    return {"is_group": True, **rest}


async def nothing() -> AsyncIterator[bytes]:
    """A file of no bytes."""
    return
    yield b""
