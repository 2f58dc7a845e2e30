"""The streamable HTTP transport: the SDK's, over a client that is bounded in every direction (SEC-03).

It goes to the one address that the owner wrote, and nowhere else: no redirect is followed, nothing of the environment
counts but the proxy. Answers are cut off at a size and at a time. No error says more of the address than its host.
Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
import httpcore2  # noqa: F401 - httpx2 would import it on the event loop, with the first client
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from bubbles.config.schema import McpServerSettings
from bubbles.mcp.client.bucket import Bucket
from bubbles.mcp.client.closing import Closing
from bubbles.mcp.client.filter import MAX_MESSAGE_BYTES, MessageFilter, TooMuchError
from bubbles.mcp.client.streams import Outbox
from bubbles.mcp.client.weight import MAX_WEIGHT, Scale
from bubbles.providers.proxies import proxy_of

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.client._transport import ReadStream, TransportStreams

Incoming = SessionMessage | Exception

CONNECT_S = 10.0
NOTICE_S = 5.0
"""For a message that wants no answer: those behind it wait."""
FAREWELL_S = 1.0
GRACE_S = 5.0
"""How much longer than a call a request may take: what is given up here is not awaited any more there."""
GET_PAUSE_S = 1.0
"""Between two times that the stream of what the server says by itself is opened: the server chooses no shorter one."""
ANSWER_BURST, ANSWER_PER_S = MAX_WEIGHT, 1 << 20
"""Of events: the weight that may come at once with an answer, and in each second from then on."""
UNASKED_BURST, UNASKED_PER_S = 4 << 20, 256 << 10
"""And of those that nothing was asked for: they may come for as long as the program runs."""
PER_PIECE = 256
"""Bytes that each piece counts besides: what comes byte by byte costs as much to be read."""
AT_A_STRETCH = 100
"""Pieces that are taken before others have their turn: thousands may have come at once."""
MAX_CONNECTIONS = 32
SESSION = "mcp-session-id"


@asynccontextmanager
async def over_http(
    settings: McpServerSettings, env: Mapping[str, str], messages: MessageFilter, closing: Closing
) -> AsyncIterator[TransportStreams]:
    """The streams to the server at ``settings.url``. Raises what httpx2 does, in an ExceptionGroup; ConfigError."""
    url, headers = _address(settings)
    proxy = proxy_of(url, env)
    tls = await asyncio.to_thread(ssl.create_default_context)
    patience_s = max(settings.call_timeout_s, settings.start_timeout_s) + GRACE_S
    inner = httpx2.AsyncHTTPTransport(
        verify=tls, trust_env=False, proxy=proxy, limits=httpx2.Limits(max_connections=MAX_CONNECTIONS)
    )
    client = httpx2.AsyncClient(
        transport=Bounded(inner, url, patience_s, closing),
        headers=headers,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(patience_s, connect=CONNECT_S, read=None),  # a quiet stream is none that broke
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (reading, writing),
    ):
        outbox = Outbox(lambda message, _: writing.send(message), messages, closing)
        pump = asyncio.create_task(_pumped(outbox, closing))
        try:
            yield Filtered(reading, messages, closing), outbox
        finally:
            pump.cancel()
            await asyncio.wait({pump})


async def _pumped(outbox: Outbox, closing: Closing) -> None:
    try:
        await outbox.pump()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        closing.end("the connection ended")


def _address(settings: McpServerSettings) -> tuple[str, dict[str, str]]:
    """Where to, without the user and password, and the headers, which hold them instead."""
    parts = urlsplit(settings.url or "")
    login, at, host = parts.netloc.rpartition("@")
    headers = {name: held.get_secret_value() for name, held in settings.headers.items()}
    if at and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = "Basic " + b64encode(unquote(login).encode()).decode()
    return urlunsplit((parts.scheme, host, parts.path, parts.query, "")), headers


class Filtered:
    """A read stream of the SDK's, with less in it."""

    def __init__(self, reading: ReadStream[Incoming], messages: MessageFilter, closing: Closing) -> None:
        self._reading = reading
        self._messages = messages
        self._fate = closing

    async def receive(self) -> Incoming:
        try:
            while True:
                item = await self._reading.receive()
                if isinstance(item, Exception):  # what the SDK could not read
                    self._messages.charge(0)
                elif self._messages.admits(item.message, _size(item)):
                    return item
        except TooMuchError as error:
            self._fate.end(str(error))
            raise anyio.EndOfStream from error
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._fate.end("the connection ended")
            raise

    async def aclose(self) -> None:
        await self._reading.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Bounded(httpx2.AsyncBaseTransport):
    """Sends requests to one origin, each with its time, and gives back what may be read of the answers."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str, patience_s: float, closing: Closing) -> None:
        self._inner = inner
        self._origin = _origin(httpx2.URL(url))
        self._patience_s = patience_s
        self._fate = closing
        self._unasked = Bucket(UNASKED_BURST, UNASKED_PER_S)
        self._next_get = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != self._origin:
            raise httpx2.UnsupportedProtocol("a request that was to go somewhere else")
        request.headers["Accept-Encoding"] = "identity"  # what is packed may be of any size
        asked = _asked(request)
        within_s = await self._time_for(request, asked)
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                response = await self._inner.handle_async_request(request)
        except TimeoutError:
            self._fate.hint = f"it did not answer a request within {within_s:g} s"
            return httpx2.Response(504)
        except httpx2.TransportError as error:
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                self._fate.unheard.add(asked)
            self._fate.hint = reason_of(error)
            raise
        why = self._refusal(request, response, asked)
        if why is not None:
            self._fate.hint = why
            await response.aclose()
            return httpx2.Response(response.status_code if response.status_code >= 400 else 502)
        streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        unasked = request.method == "GET"
        response.stream = Cut(
            response.stream, self._measure(streamed, unasked), None if unasked else began + self._patience_s
        )
        return response

    def _measure(self, streamed: bool, unasked: bool) -> Callable[[bytes], None]:
        """Raises StreamError once a body is larger than may be; told of each piece of it."""
        if not streamed:
            return _Whole().take
        bucket, scale = self._unasked if unasked else Bucket(ANSWER_BURST, ANSWER_PER_S), Scale()

        def take(piece: bytes) -> None:
            if not bucket.take(scale.weigh(piece) + PER_PIECE):
                self._fate.end("it sends events without end")
                raise httpx2.StreamError("events without end")

        return take

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _time_for(self, request: httpx2.Request, asked: object) -> float:
        if request.method == "POST":
            return NOTICE_S if asked is None else self._patience_s
        if request.method == "GET":
            now = time.monotonic()
            wait_s, self._next_get = max(0.0, self._next_get - now), max(now, self._next_get) + GET_PAUSE_S
            await asyncio.sleep(wait_s)
            return self._patience_s
        return FAREWELL_S

    def _refusal(self, request: httpx2.Request, response: httpx2.Response, asked: object) -> str | None:
        """Why nothing of the answer is read."""
        status = response.status_code
        if 300 <= status < 400:
            return "it redirects to another address, which is not followed: write that one into url"
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            return "its answers are packed, which it was asked not to do"
        if request.method != "POST":
            return None  # not every server has more than that
        if status in (401, 403):
            return f"it answers with HTTP status {status}: it wants a key or login that is not in headers, or is wrong"
        if status == 404 and SESSION in request.headers:
            self._fate.unheard.add(asked)
            self._fate.end("it does not know this connection any more")
        if status >= 400:
            self._fate.hint = f"it answers with HTTP status {status}"  # and perhaps says more
        return None


class _Whole:
    """A body that is one message."""

    def __init__(self) -> None:
        self._size = self._weight = 0
        self._scale = Scale()

    def take(self, piece: bytes) -> None:
        self._size += len(piece)
        self._weight += self._scale.weigh(piece)
        if self._size > MAX_MESSAGE_BYTES or self._weight > MAX_WEIGHT:
            raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE_BYTES >> 20} MiB, or of too many parts")


class Cut(httpx2.AsyncByteStream):
    """A body that ends with an error once it is too large, as ``measure`` says, or takes too long; None is no bound."""

    def __init__(self, inner: httpx2.AsyncByteStream, measure: Callable[[bytes], None], until: float | None) -> None:
        self._inner = inner
        self._measure = measure
        self._until = until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._inner)
        for number in itertools.count(1):
            if number % AT_A_STRETCH == 0:
                await asyncio.sleep(0)
            left_s = None if self._until is None else max(0.0, self._until - time.monotonic())
            try:
                async with asyncio.timeout(left_s):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise httpx2.StreamError("the answer takes too long") from None
            self._measure(piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _size(item: SessionMessage) -> int:
    """Bytes, about; 0 for answers, which are not counted."""
    return 0 if isinstance(item.message, JSONRPCResponse) else len(item.message.model_dump_json())


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _asked(request: httpx2.Request) -> object:
    """The id of the JSON-RPC request in it, or None if it wants no answer; the SDK writes one message a POST."""
    if request.method != "POST":
        return None
    message = json.loads(request.content)
    return message.get("id") if isinstance(message, dict) and "method" in message else None


def reason_of(error: httpx2.TransportError) -> str:
    """As a part of a sentence, without the address."""
    if isinstance(error, httpx2.ProxyError):
        return "the proxy does not let it be reached"
    if isinstance(error, httpx2.ConnectTimeout):
        return "no connection can be made: it does not answer"
    if not isinstance(error, httpx2.ConnectError):
        return "the connection broke off"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            plain = isinstance(cause, ssl.SSLError | socket.gaierror) or not cause.errno
            return f"no connection can be made: {cause.strerror if plain else os.strerror(cause.errno or 0)}"
        cause = cause.__cause__ or cause.__context__
    return "no connection can be made"
