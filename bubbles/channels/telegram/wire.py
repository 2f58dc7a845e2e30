"""Requests to the Bot API by python-telegram-bot, and what their failures mean. Imports the library: see ``opened``.

Answers stay as JSON: of a batch of updates the library's classes lose all for one that they cannot read. The token is a
part of every address; so no error of the library goes on as it is, and none of its loggers says anything.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpcore
import httpx
import telegram
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from bubbles.channels.contract import (
    ChannelError,
    FatalChannelError,
    MaybeSentError,
    NotSentError,
    RefusedError,
    SendError,
    SlowDownError,
)
from bubbles.channels.telegram.errors import ConflictError, MovedError, TokenRefusedError

CONNECT_S = 10.0
ANSWER_S = 20.0
"""Until Telegram must have said something."""
FILE_S = 30.0
"""Between two pieces of a file."""
CALLS = 32
"""Requests at a time, beside the one that waits for updates; more wait for each other."""
FILES = 8
MAX_REASON = 200

_SILENT = ("telegram", "httpx", "httpcore")
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.WriteError,  # not all of the request went out, so that nobody can have understood it
    httpx.WriteTimeout,
)


class _AnswerError(TelegramError):
    """Any answer but 200."""

    def __init__(self, status: int, payload: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.payload = payload


class _Pool(HTTPXRequest):
    @property
    def client(self) -> httpx.AsyncClient:
        return self._client

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        status, payload = await super().do_request(*args, **kwargs)
        if status != 200:
            raise _AnswerError(status, payload)
        return status, payload


class _Bot(telegram.Bot):
    async def call(self, method: str, parameters: dict[str, Any], answer_s: float) -> Any:
        return await self._post(method, parameters, read_timeout=answer_s)


class _Sockets(httpcore.AsyncNetworkBackend):
    """httpcore forgets to close a connection to a SOCKS proxy that then refuses: a descriptor lost with each try."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend, opened: list[httpcore.AsyncNetworkStream]) -> None:
        self._inner = inner
        self._opened = opened

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(*args, **kwargs)
        self._opened[:] = [*filter(_is_open, self._opened), stream]
        return stream

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _is_open(stream: httpcore.AsyncNetworkStream) -> bool:
    socket = stream.get_extra_info("socket")
    return socket is not None and socket.fileno() != -1


class Wire:
    """A context manager; all calls belong into it. ``base`` is without a slash at its end."""

    def __init__(self, token: str, base: str, proxy: str | None, tls: ssl.SSLContext) -> None:
        """Raises FatalChannelError for an address that is none."""
        for name in _SILENT:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._token = token
        self._proxy = proxy
        self._host = urlsplit(base).hostname or base
        self._files_at = f"{base}/file/bot{token}"
        own: dict[str, Any] = {"verify": tls}
        if proxy is None and self._host in ("127.0.0.1", "localhost", "::1"):
            own["mounts"] = {"all://": None}  # what the environment says of proxies is for servers elsewhere
        waits: dict[str, Any] = {"connect_timeout": CONNECT_S, "read_timeout": ANSWER_S, "write_timeout": ANSWER_S}
        more = {**waits, "pool_timeout": ANSWER_S, "proxy": proxy, "httpx_kwargs": own}
        usable = True
        try:
            _ = [urlsplit(address).port for address in (base, proxy or "")]
            self._polls = _Pool(1, **more)
            self._calls = _Pool(CALLS, **more)
            self._files = httpx.AsyncClient(
                proxy=proxy,
                timeout=httpx.Timeout(FILE_S, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=FILES),
                follow_redirects=False,  # the address has the token in it
                **own,
            )
            self._bot = _Bot(
                token,
                lambda token: f"{base}/bot{token}",
                self._files_at,
                request=self._calls,
                get_updates_request=self._polls,
            )
        except (ValueError, RuntimeError, ImportError, httpx.InvalidURL, TelegramError):
            usable = False
        if not usable:
            setting = "baseUrl" if proxy is None else "proxy"
            raise FatalChannelError(f"channels.telegram.{setting} is no address that can be used: correct it.")
        self._opened: list[httpcore.AsyncNetworkStream] = []
        for client in (self._polls.client, self._calls.client, self._files):
            for transport in (client._transport, *client._mounts.values()):
                if (pool := getattr(transport, "_pool", None)) is not None:
                    pool._network_backend = _Sockets(pool._network_backend, self._opened)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._close_sockets)
        for pool in (self._polls, self._calls):
            self._stack.push_async_callback(pool.shutdown)
        self._stack.push_async_callback(self._files.aclose)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _close_sockets(self) -> None:
        for stream in filter(_is_open, self._opened):
            await stream.aclose()

    async def call(self, method: str, *, answer_s: float = ANSWER_S, **parameters: Any) -> Any:
        """The result, as JSON has it. Raises SendError, of which some kinds are above."""
        try:
            return await self._bot.call(method, parameters, answer_s)
        except _AnswerError as error:
            failure = self._meant(error)
        except TelegramError as error:
            failure = self._lost(error)
        except (LookupError, TypeError, ValueError, RecursionError):
            failure = self._strange()
        raise failure

    @asynccontextmanager
    async def file(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens what ``getFile`` has named. Raises ChannelError."""
        if path.startswith("/") or ":" in path or "\\" in path or {"", ".", ".."} & set(path.split("/")):
            raise ChannelError(
                "the Bot API server of channels.telegram.baseUrl names a file on its own disk: start it without --local"
            )
        request = self._files.build_request(
            "GET", f"{self._files_at}/{quote(path)}", headers={"Accept-Encoding": "identity"}
        )
        answer: httpx.Response | None
        try:
            answer = await self._files.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            answer, why = None, self._reason(str(error)) or "no answer"
        if answer is None:
            raise ChannelError(f"the file cannot be fetched: {why}")
        try:
            if answer.status_code != 200:
                raise ChannelError(f"the file cannot be fetched: the answer is {answer.status_code}")
            async with aclosing(_pieces(answer)) as pieces:
                yield pieces
        finally:
            await answer.aclose()

    def _meant(self, error: _AnswerError) -> SendError:
        said = _object(error.payload)
        status = error.status
        if said is None:
            what = f"{self._host} is not reached: something on the way answers {status}"
            return NotSentError(what) if 300 <= status < 500 else MaybeSentError(what)
        reason = self._reason(str(said.get("description") or f"the answer is {status}"))
        more = said.get("parameters")
        more = more if isinstance(more, Mapping) else {}
        if isinstance(wait_s := more.get("retry_after"), int | float) and wait_s >= 0:
            return SlowDownError(float(wait_s))
        if isinstance(moved := more.get("migrate_to_chat_id"), int):
            return MovedError(moved)
        if status in (401, 404):
            return TokenRefusedError(reason)
        if status == 429:
            return SlowDownError(5.0)
        if status == 409:
            return ConflictError(reason)
        return RefusedError(reason) if 400 <= status < 500 else NotSentError(f"Telegram has a fault: {reason}")

    def _lost(self, error: TelegramError) -> SendError:
        cause = error.__cause__
        through = " through channels.telegram.proxy" if self._proxy else ""
        if isinstance(cause, httpx.HTTPError):
            why = self._reason(str(cause)) or "no answer"
            if isinstance(cause, _NOT_SENT):
                return NotSentError(f"{self._host} is not reached{through}: {why}")
            return MaybeSentError(f"the connection to {self._host}{through} was lost: {why}")
        if type(error) is TelegramError:
            return self._strange()
        return MaybeSentError(f"the connection to {self._host}{through} was lost")

    def _strange(self) -> SendError:
        return MaybeSentError(f"what {self._host} answers is not what Telegram does")

    def _reason(self, text: str) -> str:
        """One short line without a secret."""
        secrets = [self._token, self._token.partition(":")[2], urlsplit(self._proxy or "").password or ""]
        for secret in filter(None, secrets):
            text = text.replace(secret, "…")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_REASON]


async def _pieces(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    broke = False
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except (httpx.HTTPError, httpx.StreamError, OSError):
        broke = True
    if broke:
        raise ChannelError("the file broke off")


def _object(payload: bytes) -> Mapping[str, Any] | None:
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and said.get("ok") is False else None


def trust() -> ssl.SSLContext:
    """What certificates are held against. Reads files."""
    return httpx.create_ssl_context()
