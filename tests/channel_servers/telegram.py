"""A Bot API server on 127.0.0.1: it holds the limits of the real one, and what a person does there is done by a test.

https://core.telegram.org/bots/api. State is the server's and outlives ``stop`` and ``start``, which keeps the port.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.channel_servers.telegram_html import Markup, MarkupError, parsed, units

TOKEN = "7000000001:AAF-canary_0123456789abcdefghijklmn"
ME = {"id": 7000000001, "is_bot": True, "first_name": "Bubbles", "username": "bubbles_bot"}
ANN = {"id": 1001, "is_bot": False, "first_name": "Ann", "last_name": "Ash", "username": "ann_ash"}
BOB = {"id": 1002, "is_bot": False, "first_name": "Bob"}
ROBOT = {"id": 1003, "is_bot": True, "first_name": "Robot", "username": "robot_bot"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Friends"}
FORUM = {"id": -1002, "type": "supergroup", "title": "Topics", "is_forum": True}
TOPIC = 77
_TAGGED = re.compile(r"(?<![\w@/])@([A-Za-z]\w{4,31})(?!\w)|(?<![\w/])/[A-Za-z0-9_]{1,32}(?:@\w+)?|`([^`]+)`")
_MAIL = re.compile(r"[\w.]+@[\w.]+\.\w+")

Parameters = Mapping[str, Any]


class RefusalError(Exception):
    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.answer = {"ok": False, "error_code": code, "description": description}
        if parameters:
            self.answer["parameters"] = parameters


@dataclass(slots=True)
class Sent:
    """A message of the bot as people see it."""

    id: int
    chat: int
    markup: Markup
    given: Parameters
    edits: int = 0

    @property
    def text(self) -> str:
        return self.markup.text

    @property
    def buttons(self) -> list[str]:
        rows = json.loads(self.given.get("reply_markup") or "{}").get("inline_keyboard", ())
        return [button["callback_data"] for row in rows for button in row]

    @property
    def reply_to(self) -> int | None:
        found: int | None = json.loads(self.given.get("reply_parameters") or "{}").get("message_id")
        return found


Fault = Callable[[web.Request], Any]
"""Instead of an answer: None goes on to the usual one."""


def refuses(code: int, description: str, **parameters: int) -> Fault:
    def fault(_: web.Request) -> web.Response:
        return web.json_response(RefusalError(code, description, **parameters).answer, status=code)

    return fault


def slow_down(seconds: int) -> Fault:
    return refuses(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)


def page(status: int) -> Fault:
    """What a gateway on the way says; it shows the address that was asked for."""
    return lambda request: web.Response(status=status, text=f"<h1>{status}</h1>{request.url}", content_type="text/html")


def cut(request: web.Request) -> web.Response:
    """The connection breaks before the server does anything."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class BotApi:
    def __init__(self) -> None:
        self.port = 0
        self.chats: dict[int, dict[str, Any]] = {GROUP["id"]: GROUP, FORUM["id"]: FORUM}  # type: ignore[dict-item]
        self.administrators: dict[int, list[dict[str, Any]]] = {}
        self.updates: list[dict[str, Any]] = []
        """Not acknowledged."""
        self.acknowledged: list[int] = []
        self.requests: list[tuple[str, Parameters]] = []
        self.sent: list[Sent] = []
        self.answered: list[str] = []
        """Presses of buttons."""
        self.files: dict[str, tuple[str, bytes]] = {}
        self.file_requests: list[str] = []
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        """By method: what becomes of the next requests. ``after:METHOD`` happens once it was done."""
        self.webhook = ""
        self._ids = itertools.count(500)
        self._update_ids = itertools.count(90_001)
        self._news = asyncio.Condition()
        self._polls = 0
        self._runner: web.AppRunner | None = None
        self._presses: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 20)
        app.router.add_route("*", "/bot{token}/{method}", self._called)
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
        self._runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            self._polls += 1
            async with self._news:
                self._news.notify_all()
            await self._runner.cleanup()
            self._runner = None

    # -- what people do --

    async def says(
        self,
        text: str | None = None,
        *,
        user: Mapping[str, Any] = ANN,
        chat: Mapping[str, Any] | None = None,
        topic: int | None = None,
        **more: Any,
    ) -> int:
        """A message; its id. Entities as Telegram finds them, and a mention for each ``<user>`` in ``more``."""
        number = next(self._ids)
        message = {"message_id": number, "date": 1, "from": user, "chat": chat or self.private(user), **more}
        if text is not None:
            message |= {"text": text, "entities": entities(text)} | more
        if topic is not None:
            message |= {"message_thread_id": topic, "is_topic_message": True}
        self.chats.setdefault(message["chat"]["id"], message["chat"])
        await self.update(message=message)
        return number

    async def album(self, *captions: str, chat: Mapping[str, Any] | None = None, user: Mapping[str, Any] = ANN) -> int:
        """A picture for each caption; the first one's id."""
        numbers = []
        for n, caption in enumerate(captions):
            more: dict[str, Any] = {"media_group_id": "13", "photo": [self.photo(f"p{n}".encode())]}
            if caption:
                more |= {"caption": caption, "caption_entities": entities(caption)}
            numbers.append(await self.says(user=user, chat=chat, **more))
        return numbers[0]

    async def presses(
        self, data: str, *, message: Mapping[str, Any] | None = None, user: Mapping[str, Any] = ANN
    ) -> str:
        ident = str(4_400_000_000_000_000 + next(self._ids))
        self._presses.add(ident)
        message = message or {"message_id": 1, "date": 1, "chat": self.private(user)}
        await self.update(callback_query={"id": ident, "from": user, "message": message, "data": data})
        return ident

    async def update(self, **what: Any) -> int:
        number = next(self._update_ids)
        self.updates.append({"update_id": number, **what})
        async with self._news:
            self._news.notify_all()
        return number

    def private(self, user: Mapping[str, Any]) -> dict[str, Any]:
        chat = {"id": user["id"], "type": "private", "first_name": user["first_name"]}
        return self.chats.setdefault(user["id"], chat)

    def file(self, data: bytes, path: str | None = None, **more: Any) -> dict[str, Any]:
        ident = f"file{next(self._ids)}"
        self.files[ident] = (f"documents/{ident}.bin" if path is None else path, data)
        return {"file_id": ident, "file_unique_id": ident, "file_size": len(data), **more}

    def photo(self, data: bytes) -> dict[str, Any]:
        return self.file(data, width=90, height=90)

    # -- what the bot does --

    async def _called(self, request: web.Request) -> web.StreamResponse:
        token, method = request.match_info["token"], request.match_info["method"]
        parameters: dict[str, Any] = dict(await request.post())
        self.requests.append((method, parameters))
        if self.faults[method] and (answer := self.faults[method].popleft()(request)) is not None:
            found: web.StreamResponse = await answer if asyncio.iscoroutine(answer) else answer
            return found
        try:
            if token != TOKEN:
                raise RefusalError(401 if re.fullmatch(r"\d+:[\w-]{20,}", token) else 404, "Unauthorized")
            result = await getattr(self, f"_do_{method}")(parameters)
        except RefusalError as error:
            return web.json_response(error.answer, status=error.answer["error_code"])  # type: ignore[arg-type]
        if self.faults[f"after:{method}"]:
            self.faults[f"after:{method}"].popleft()(request)
        return web.json_response({"ok": True, "result": result})

    async def _do_getMe(self, _: Parameters) -> Any:  # noqa: N802
        return ME

    async def _do_deleteWebhook(self, _: Parameters) -> bool:  # noqa: N802
        self.webhook = ""
        return True

    async def _do_getUpdates(self, given: Parameters) -> list[dict[str, Any]]:  # noqa: N802
        if self.webhook:
            raise RefusalError(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook")
        self._polls += 1
        mine = self._polls
        async with self._news:
            self._news.notify_all()
        offset, kinds = int(given.get("offset") or 0), json.loads(given.get("allowed_updates") or "[]")
        self.acknowledged += [each["update_id"] for each in self.updates if each["update_id"] < offset]
        self.updates = [each for each in self.updates if each["update_id"] >= offset]

        def waiting() -> list[dict[str, Any]]:
            return [each for each in self.updates if not kinds or each.keys() & set(kinds)]

        with suppress(TimeoutError):
            async with asyncio.timeout(float(given.get("timeout") or 0)), self._news:
                await self._news.wait_for(lambda: waiting() or mine != self._polls)
        if mine != self._polls:
            raise RefusalError(
                409,
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
            )
        return waiting()[: int(given.get("limit") or 100)]

    async def _do_sendMessage(self, given: Parameters) -> dict[str, Any]:  # noqa: N802
        chat, markup = self._chat(given), self._markup(given)
        reply = json.loads(given.get("reply_parameters") or "{}")
        if reply and not reply.get("allow_sending_without_reply"):
            raise RefusalError(400, "Bad Request: message to be replied not found")
        message = Sent(next(self._ids), chat["id"], markup, given)
        self.sent.append(message)
        async with self._news:
            self._news.notify_all()
        return {"message_id": message.id, "date": 1, "chat": chat, "text": markup.text, "entities": markup.entities}

    async def _do_editMessageText(self, given: Parameters) -> dict[str, Any]:  # noqa: N802
        chat, markup = self._chat(given), self._markup(given)
        old = next(
            (each for each in self.sent if each.id == int(given["message_id"]) and each.chat == chat["id"]), None
        )
        if old is None:
            raise RefusalError(400, "Bad Request: message to edit not found")
        if old.markup == markup and old.given.get("reply_markup") == given.get("reply_markup"):
            raise RefusalError(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message",
            )
        old.markup, old.given, old.edits = markup, given, old.edits + 1
        return {"message_id": old.id, "date": 1, "chat": chat, "text": markup.text}

    async def _do_sendChatAction(self, given: Parameters) -> bool:  # noqa: N802
        self._chat(given)
        return True

    async def _do_answerCallbackQuery(self, given: Parameters) -> bool:  # noqa: N802
        ident = given["callback_query_id"]
        if ident not in self._presses or ident in self.answered:
            raise RefusalError(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.answered.append(ident)
        return True

    async def _do_getChatAdministrators(self, given: Parameters) -> list[dict[str, Any]]:  # noqa: N802
        people = self.administrators.get(self._chat(given)["id"], [])
        return [{"status": "administrator", "user": user} for user in people]

    async def _do_getFile(self, given: Parameters) -> dict[str, Any]:  # noqa: N802
        path, data = self.files[given["file_id"]]
        if len(data) > 20 * 1024 * 1024:
            raise RefusalError(400, "Bad Request: file is too big")
        return {"file_id": given["file_id"], "file_size": len(data), "file_path": path}

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.file_requests.append(request.path)
        if self.faults["file"] and (answer := self.faults["file"].popleft()(request)) is not None:
            found: web.StreamResponse = await answer if asyncio.iscoroutine(answer) else answer
            return found
        data = next((data for path, data in self.files.values() if path == request.match_info["path"]), None)
        if request.match_info["token"] != TOKEN or data is None:
            return web.json_response(RefusalError(404, "Not Found").answer, status=404)
        return web.Response(body=data, content_type="application/octet-stream")

    def _chat(self, given: Parameters) -> dict[str, Any]:
        chat = self.chats.get(int(given["chat_id"]))
        if chat is None:
            raise RefusalError(400, "Bad Request: chat not found")
        if (topic := given.get("message_thread_id")) is not None and not (chat.get("is_forum") and int(topic) == TOPIC):
            raise RefusalError(400, "Bad Request: message thread not found")
        if "moved_to" in chat:
            description = "Bad Request: group chat was upgraded to a supergroup chat"
            raise RefusalError(400, description, migrate_to_chat_id=chat["moved_to"])
        return chat

    def _markup(self, given: Parameters) -> Markup:
        try:
            markup = parsed(given["text"]) if given.get("parse_mode") == "HTML" else Markup(given["text"])
        except MarkupError as error:
            raise RefusalError(400, f"Bad Request: can't parse entities: {error}") from None
        if not markup.text.strip():
            raise RefusalError(400, "Bad Request: message text is empty")
        if units(markup.text) > 4096:
            raise RefusalError(400, "Bad Request: message is too long")
        for row in json.loads(given.get("reply_markup") or "{}").get("inline_keyboard", ()):
            if not all(1 <= len(button["callback_data"].encode()) <= 64 for button in row):
                raise RefusalError(400, "Bad Request: BUTTON_DATA_INVALID")
        return markup

    # -- what a test waits for --

    def asked(self, method: str) -> list[Parameters]:
        return [given for name, given in self.requests if name == method]

    async def until(self, is_so: Callable[[], object], within_s: float = 8.0) -> None:
        async with asyncio.timeout(within_s):
            while not is_so():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.01), self._news:
                        await self._news.wait()


def entities(text: str) -> list[dict[str, Any]]:
    """As Telegram marks a text: mentions, commands, mail addresses, code in backticks (which a client takes away)."""
    mails = [found.span() for found in _MAIL.finditer(text)]
    found = []
    for match in _TAGGED.finditer(text):
        if any(begin <= match.start() < end for begin, end in mails):
            continue
        kind = "mention" if match[1] else "code" if match[2] else "bot_command"
        found.append({"type": kind, "offset": units(text[: match.start()]), "length": units(match[0])})
    return found


@asynccontextmanager
async def bot_api() -> AsyncIterator[BotApi]:
    server = BotApi()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
