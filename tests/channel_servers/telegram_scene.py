"""A channel to a Bot API server, with the program's side of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bubbles.bus import Kind
from bubbles.channels.contract import Incoming, Piece
from bubbles.channels.telegram.channel import TelegramChannel
from bubbles.channels.telegram.polling import Pace
from bubbles.config.channels import TelegramSettings
from tests.channel_servers.desk import Desk, Remembered, running
from tests.channel_servers.telegram import ANN, TOKEN, BotApi, bot_api

QUICK = Pace(album_s=0.04, empty_s=0.01)


@dataclass(slots=True)
class Scene:
    server: BotApi
    desk: Desk = field(default_factory=Desk)
    memory: Remembered = field(default_factory=Remembered)
    now: float = 1e9

    def channel(self, **settings: Any) -> TelegramChannel:
        given = {"enabled": True, "token": TOKEN, "base_url": f"{self.server.url}/", **settings}
        return TelegramChannel(TelegramSettings(**given), self.memory, pace=QUICK, clock=lambda: self.now)

    @asynccontextmanager
    async def on(self, **settings: Any) -> AsyncIterator[TelegramChannel]:
        channel = self.channel(**settings)
        async with running(channel, self.desk):
            yield channel

    async def hears(self, text: str | None = None, **more: Any) -> Incoming:
        """What the program gets of a message, which is the next that it gets."""
        before = len(self.desk.taken)
        await self.server.says(text, **more)
        return (await self.desk.got(before + 1))[before]

    async def hears_nothing_of(self, *updates: dict[str, Any]) -> None:
        """They are passed over: what comes after them is what comes next."""
        for update in updates:
            await self.server.update(**update)
        assert (await self.hears("after")).text == "after"


@asynccontextmanager
async def telegram_scene() -> AsyncIterator[Scene]:
    async with bot_api() as server:
        server.private(ANN)
        yield Scene(server)


def piece(text: str = "hi", chat: int | str = ANN["id"], **more: Any) -> Piece:  # type: ignore[assignment]
    return Piece(chat_id=str(chat), text=text, kind=Kind.REPLY, **more)


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"message_id": 9, "date": 1, "from": ANN, "chat": {"id": 1001, "type": "private"}, "text": text} | more


async def fetched(incoming: Incoming, number: int = 0) -> bytes:
    async with incoming.attachments[number].fetch() as pieces:
        return b"".join([part async for part in pieces])
