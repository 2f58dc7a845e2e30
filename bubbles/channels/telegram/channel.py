"""The channel: what comes from Telegram goes to the link, what is to be said goes to Telegram."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from bubbles.channels.contract import (
    ChannelError,
    FatalChannelError,
    Link,
    Memory,
    NotSentError,
    Piece,
    RefusedError,
    Roster,
    SendError,
    Traits,
)
from bubbles.channels.telegram import updates
from bubbles.channels.telegram.errors import MovedError, TokenRefusedError
from bubbles.channels.telegram.format import MAX_TEXT, Rendered, render, utf16_length
from bubbles.channels.telegram.members import People
from bubbles.channels.telegram.polling import Pace, Polling
from bubbles.channels.telegram.updates import Json, Me

if TYPE_CHECKING:
    from bubbles.channels.telegram.wire import Wire
    from bubbles.config.channels import TelegramSettings

log = logging.getLogger(__name__)

TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{10,100}")
STALL_S = 60.0
QUICK_S = 5.0
"""For what only looks nicer."""
MAX_PRESSES = 32
"""Presses of buttons that wait to be confirmed. Of more than that the button seems to be at work for a while."""
TRAITS = Traits(
    max_text=MAX_TEXT,
    measure=utf16_length,
    pause_s=1.0,
    group_pause_s=3.0,  # 20 in a minute
    per_second=25.0,  # of the 30 that Telegram takes
    buttons=True,
    edits=True,
    typing_s=5.0,
    max_file_bytes=20_000_000,
    rising_ids=True,
)


def make(settings: TelegramSettings, memory: Memory) -> TelegramChannel:
    return TelegramChannel(settings, memory)


class TelegramChannel:
    """A Channel, by long polling. The library is imported when it is run."""

    name = "telegram"
    traits = TRAITS
    stall_s = STALL_S

    def __init__(
        self,
        settings: TelegramSettings,
        memory: Memory,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` as ``time.time``."""
        self._settings = settings
        self._memory = memory
        self._pace = pace or Pace()
        self._clock = clock
        self._people = People(memory)
        self._wire: Wire | None = None
        self._presses: asyncio.Queue[str] = asyncio.Queue(MAX_PRESSES)

    async def run(self, link: Link) -> None:
        async with await opened(self._settings) as wire:
            me = await signed_in(wire)
            await self._people.load()
            self._wire = wire
            confirming = asyncio.create_task(self._confirm())
            try:
                link.connected(f"@{me.username}")
                link.alive()
                polling = Polling(wire.call, self._memory, me.id, self._pace, self._clock)
                await polling.run(functools.partial(self._take, me, link), link)
            finally:
                confirming.cancel()
                await asyncio.wait({confirming})
                self._wire = None

    async def send(self, piece: Piece) -> str | None:
        reply = None
        if piece.reply_to is not None and piece.reply_to.isdecimal():
            reply = {"message_id": int(piece.reply_to), "allow_sending_without_reply": True}
        sent = await self._put("sendMessage", piece, reply_parameters=reply)
        return str(sent["message_id"]) if isinstance(sent, dict) and "message_id" in sent else None

    async def edit(self, message_id: str, piece: Piece) -> None:
        if not message_id.isdecimal():
            raise RefusedError("there is no such message in Telegram: its id is a number")
        try:
            await self._put("editMessageText", piece, message_id=int(message_id))
        except RefusedError as error:
            if "message is not modified" not in str(error):
                raise

    async def typing(self, chat_id: str) -> None:
        chat, topic = updates.place(chat_id)
        await self._connected().call(
            "sendChatAction", chat_id=chat, message_thread_id=topic, action="typing", answer_s=QUICK_S
        )

    async def members(self, chat_id: str) -> Roster | None:
        """Telegram lists administrators only; the others are those who have been met."""
        chat, _ = updates.place(chat_id)
        if chat > 0:
            return None
        found = await self._connected().call("getChatAdministrators", chat_id=chat)
        try:
            administrators = [updates.person(each["user"]) for each in found]
        except (LookupError, TypeError, ValueError, AttributeError):
            administrators = []
        await self._people.learn(str(chat), filter(None, administrators))
        return Roster(people=self._people.people(str(chat)), complete=False)

    # -- in --

    async def _take(self, me: Me, link: Link, parts: Sequence[Json]) -> None:
        try:
            press = parts[0].get("callback_query")
            if press is not None:
                with suppress(asyncio.QueueFull):
                    self._presses.put_nowait(str(press["id"]))
                incoming = updates.press(press)
            else:
                messages = [part["message"] for part in parts]
                await self._meet(messages)
                usernames = self._people.usernames(str(messages[0]["chat"]["id"]))
                incoming = updates.message(messages, me, usernames, self._fetch)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            log.warning("a message of Telegram is not as it should be, and is passed over (%s)", type(error).__name__)
            return
        if incoming is not None:
            await link.take(incoming)

    async def _confirm(self) -> None:
        """Else a button would seem to be at work for ever, for strangers too. Beside the reading of updates: whoever
        presses without end must not keep the words of others waiting.
        """
        while True:
            press = await self._presses.get()
            with suppress(SendError):
                await self._connected().call("answerCallbackQuery", callback_query_id=press, answer_s=QUICK_S)

    async def _meet(self, messages: Sequence[Json]) -> None:
        for message in messages:
            chat = str(int(message["chat"]["id"]))
            if updates.is_group(message):
                await self._people.learn(chat, updates.met(message))
                if (gone := message.get("left_chat_member")) is not None:
                    await self._people.forget(chat, str(gone["id"]))
            else:
                self._people.meet(chat, updates.met(message))

    @asynccontextmanager
    async def _fetch(self, file_id: str) -> AsyncIterator[AsyncIterator[bytes]]:
        wire = self._connected()
        found = await wire.call("getFile", file_id=file_id)
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str):
            raise ChannelError("Telegram does not say where the file is")
        async with wire.file(path) as pieces, aclosing(_at_most(TRAITS.max_file_bytes, pieces)) as capped:
            yield capped

    # -- out --

    async def _put(self, method: str, piece: Piece, **more: Any) -> Any:
        chat, topic = updates.place(piece.chat_id)
        rendered = render(piece.text, self._people.names(str(chat)))
        if not rendered.plain.strip():
            raise RefusedError("there is nothing to be seen in the text")
        more = {
            **more,
            "message_thread_id": topic if method == "sendMessage" else None,
            "reply_markup": _buttons(piece.card),
            "link_preview_options": {"is_disabled": True},  # a server that a model names is not asked for a picture
        }
        try:
            return await self._said(method, rendered, chat_id=chat, **more)
        except MovedError as error:
            moved = error.chat_id
        return await self._said(method, rendered, chat_id=moved, **more)

    async def _said(self, method: str, rendered: Rendered, **more: Any) -> Any:
        wire = self._connected()
        try:
            return await wire.call(method, text=rendered.html, parse_mode="HTML", **more)
        except MovedError:
            raise
        except RefusedError as error:
            if "can't parse entities" not in str(error).lower():
                raise
        log.warning("Telegram does not take the formatting of a message, which goes out as plain text")
        return await wire.call(method, text=rendered.plain, **more)

    def _connected(self) -> Wire:
        if self._wire is None:
            raise NotSentError("Telegram is not connected")
        return self._wire


async def opened(settings: TelegramSettings) -> Wire:
    """To be entered. Raises FatalChannelError for settings with which it cannot be tried."""
    token = settings.token.get_secret_value() if settings.token is not None else ""
    if not TOKEN.fullmatch(token):
        how = "is not a token of a bot" if token else "is not set"
        raise FatalChannelError(f"channels.telegram.token {how}: set the one that @BotFather shows, 123456:ABC…")

    def wire() -> Wire:  # imports for a third of a second, and reads certificates
        from bubbles.channels.telegram.wire import Wire, trust

        return Wire(token, settings.base_url.rstrip("/"), settings.proxy, trust())

    return await asyncio.to_thread(wire)


async def signed_in(wire: Wire) -> Me:
    """Who the token is of. Raises ChannelError; FatalChannelError if Telegram does not know it."""
    try:
        found = await wire.call("getMe")
    except TokenRefusedError as error:
        refused = error.fatal()
    else:
        if not isinstance(found, dict) or "id" not in found or "username" not in found:
            raise ChannelError("what the server of channels.telegram.baseUrl answers is not what Telegram does")
        return Me(id=str(found["id"]), username=str(found["username"]), name=str(found.get("first_name", "")))
    raise refused


def _buttons(card: str | None) -> Json | None:
    if card is None or not updates.BUTTON.fullmatch(f"approve:{card}"):
        return None
    row = (("Run", f"approve:{card}"), ("Decline", f"deny:{card}"))
    return {"inline_keyboard": [[{"text": text, "callback_data": data} for text, data in row]]}


async def _at_most(limit: int, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    got = 0
    async for piece in pieces:
        got += len(piece)
        if got > limit:
            raise ChannelError(f"the file has more than {limit:,} bytes")
        yield piece
