"""A platform and the channel to it, as the conformance suite needs them: what people do there, and what they see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from bubbles.channels.contract import (
    Channel,
    Incoming,
    MaybeSentError,
    NotSentError,
    RefusedError,
    SendError,
    SlowDownError,
)
from bubbles.channels.fake import FakeChannel, attached
from bubbles.channels.telegram.channel import TelegramChannel
from bubbles.channels.telegram.polling import Pace
from bubbles.config.channels import TelegramSettings
from tests.channel_servers import telegram
from tests.channel_servers.desk import Remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message of the assistant's, as people see it."""

    id: str
    text: str
    mentions: tuple[str, ...] = ()
    """Ids of those whom it calls."""
    reply_to: str | None = None
    buttons: tuple[str, ...] = ()


class Rig(Protocol):
    """Two people: ``ann``, and ``stranger``, whom nobody knows. ``group`` is a chat with both of them in it."""

    ann: str
    stranger: str
    group: str
    secret: str
    """The credential; it may be told to nobody."""
    has: frozenset[str]
    """What can be tried here: mentions, edits, typing, buttons, files, credentials, network."""

    def channel(self) -> Channel:
        """Another one over the same memory, as after a restart, where there can be another."""
        ...

    def with_wrong_credentials(self) -> Channel: ...
    async def say(
        self,
        text: str,
        *,
        who: str | None = None,
        in_group: bool = False,
        to_us: bool = False,
        mention: str | None = None,
        reply_to: str | None = None,
        file: bytes | None = None,
    ) -> None:
        """A person writes: ``to_us`` begins it with a mention of the assistant, ``mention`` ends it with one."""
        ...

    def shown(self) -> list[Shown]: ...
    def next_send(self, becomes: type[SendError]) -> None: ...
    async def down(self) -> None:
        """No connection holds, and none can be made, until ``up``."""
        ...

    async def up(self) -> None: ...
    def connections(self) -> int:
        """Sockets that the platform has open with us."""
        ...

    def send_files_elsewhere(self, url: str) -> None:
        """Who asks for the next file is sent to another host."""
        ...


@dataclass(slots=True)
class TelegramRig:
    server: telegram.BotApi
    memory: Remembered = field(default_factory=Remembered)

    ann = str(telegram.ANN["id"])
    stranger = str(telegram.BOB["id"])
    group = str(telegram.GROUP["id"])
    secret = telegram.TOKEN
    has = frozenset({"mentions", "edits", "typing", "buttons", "files", "credentials", "network"})

    def channel(self) -> TelegramChannel:
        return self._channel(self.secret)

    def with_wrong_credentials(self) -> TelegramChannel:
        return self._channel(self.secret.replace("canary", "madeup"))

    def _channel(self, token: str) -> TelegramChannel:
        settings = TelegramSettings.model_validate({"enabled": True, "token": token, "base_url": self.server.url})
        return TelegramChannel(settings, self.memory, pace=Pace(album_s=0.02, empty_s=0.01))

    async def say(
        self,
        text: str,
        *,
        who: str | None = None,
        in_group: bool = False,
        to_us: bool = False,
        mention: str | None = None,
        reply_to: str | None = None,
        file: bytes | None = None,
    ) -> None:
        more: dict[str, Any] = {}
        text = f"@bubbles_bot {text}" if to_us else text
        if mention is not None:
            tag = {"type": "text_mention", "offset": len(text) + 1, "length": 4, "user": {"id": int(mention)}}
            text = f"{text} them"
            more["entities"] = [*telegram.entities(text), tag]
        if reply_to is not None:
            more["reply_to_message"] = {"message_id": int(reply_to), "from": telegram.ME, "date": 1}
        if file is not None:
            more["document"] = self.server.file(file, file_name="notes.txt", mime_type="text/plain")
        await self.server.says(
            text if file is None else None,
            user=telegram.BOB if who == self.stranger else telegram.ANN,
            chat=telegram.GROUP if in_group else None,
            **more,
        )

    def shown(self) -> list[Shown]:
        return [
            Shown(
                id=str(sent.id),
                text=sent.text,
                mentions=tuple(str(each["user"]["id"]) for each in sent.markup.entities if "user" in each),  # type: ignore[index]
                reply_to=None if sent.reply_to is None else str(sent.reply_to),
                buttons=tuple(sent.buttons),
            )
            for sent in self.server.sent
        ]

    def next_send(self, becomes: type[SendError]) -> None:
        faults: dict[type[SendError], tuple[str, telegram.Fault]] = {
            SlowDownError: ("sendMessage", telegram.slow_down(7)),
            RefusedError: ("sendMessage", telegram.refuses(403, "Forbidden: bot was blocked by the user")),
            MaybeSentError: ("after:sendMessage", telegram.cut),
            NotSentError: ("sendMessage", telegram.refuses(500, "Internal Server Error")),
        }
        method, fault = faults[becomes]
        self.server.faults[method].append(fault)

    async def down(self) -> None:
        await self.server.stop()

    async def up(self) -> None:
        await self.server.start()

    def connections(self) -> int:
        return self.server.connections

    def send_files_elsewhere(self, url: str) -> None:
        def moved(_: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": f"{url}/bot{self.secret}"})

        self.server.faults["file"].append(moved)


@dataclass(slots=True)
class FakeRig:
    """The platform in memory: there is one channel to it."""

    platform: FakeChannel = field(default_factory=FakeChannel)

    ann, stranger, group = "ann", "eve", "g"
    secret = ""
    has = frozenset({"edits", "typing", "files"})

    def channel(self) -> FakeChannel:
        return self.platform

    def with_wrong_credentials(self) -> FakeChannel:
        self.platform.fail()
        return self.platform

    async def say(
        self,
        text: str,
        *,
        who: str | None = None,
        in_group: bool = False,
        to_us: bool = False,
        mention: str | None = None,
        reply_to: str | None = None,
        file: bytes | None = None,
    ) -> None:
        sender = who or self.ann
        files = () if file is None else (attached("notes.txt", file, mime="text/plain", size=len(file)),)
        self.numbers += 1
        self.platform.offer(
            Incoming(
                chat_id=self.group if in_group else sender,
                message_id=f"m{self.numbers}",
                sender=sender,
                name=sender.title(),
                text=f"{text} <@{mention}>" if mention else text,
                is_group=in_group,
                addressed=not in_group or to_us or reply_to is not None,
                reply_to=reply_to,
                attachments=files,
            )
        )

    numbers: int = 0

    def shown(self) -> list[Shown]:
        edits = {ident: piece.text for ident, piece in self.platform.edited}
        return [
            Shown(id=ident, text=edits.get(ident, piece.text), reply_to=piece.reply_to)
            for ident, piece in self.platform.sent
        ]

    def next_send(self, becomes: type[SendError]) -> None:
        self.platform.fail_sends(SlowDownError(7) if becomes is SlowDownError else becomes("on purpose"))

    async def down(self) -> None:
        self.platform.down()

    async def up(self) -> None:
        self.platform.up()

    def connections(self) -> int:
        return 0

    def send_files_elsewhere(self, url: str) -> None:
        raise NotImplementedError(url)


@asynccontextmanager
async def telegram_rig() -> AsyncIterator[TelegramRig]:
    async with telegram.bot_api() as server:
        server.private(telegram.ANN)
        yield TelegramRig(server)


@asynccontextmanager
async def fake_rig() -> AsyncIterator[FakeRig]:
    yield FakeRig()


RIGS: dict[str, Callable[[], Any]] = {"telegram": telegram_rig, "fake": fake_rig}
HAS = {"telegram": TelegramRig.has, "fake": FakeRig.has}


def with_(*features: str) -> Sequence[str]:
    """The rigs where all of these can be tried."""
    return [name for name, has in HAS.items() if has.issuperset(features)]


@asynccontextmanager
async def elsewhere() -> AsyncIterator[tuple[str, list[str]]]:
    """Another host, by name, and what it is told by whoever comes there."""
    told: list[str] = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append((await reader.read(65536)).decode("latin-1"))
        writer.close()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}", told
    finally:
        server.close()
        await server.wait_closed()
