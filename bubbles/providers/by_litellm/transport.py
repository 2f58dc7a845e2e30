"""The way of one of litellm's requests over the network, which is ours: to one address, once, bounded in time and size.

Whatever the library would like to call besides is refused here. What an answer that is no reply means is found out here
too, from the answer itself; of what the library makes of it nothing is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

import httpx

from bubbles.providers.by_litellm.wire import STAND_IN
from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.endings import StreamWitness
from bubbles.providers.exchange import END_WAIT_S, MAX_ERROR_BYTES, MAX_REPLY_BYTES, USAGE_WAIT_S
from bubbles.providers.failures import broken, of_exception, of_response, scrubbed
from bubbles.providers.registry import Wire
from bubbles.providers.targets import USER_AGENT
from bubbles.providers.wire import BLOCK_BYTES

_OF_THE_LIBRARY = frozenset(
    {"accept", "host", "content-length", "transfer-encoding", "content-type"}
    | {"authorization", "x-api-key", "x-goog-api-key", "api-key"}
    | {"anthropic-version", "anthropic-beta", "openai-beta"}
)
"""Headers that may come from the library, in small letters, as httpx gives them. Others tell about itself or the
machine, or are taken from the environment (``OPENAI_CUSTOM_HEADERS``), for whatever vendor."""
_OURS = frozenset({"host", "content-length", "transfer-encoding", "content-type", "accept-encoding", "connection"})
"""Headers that say how a request is sent, which is not for the settings to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where requests may go."""

    base_url: str
    wire: Wire
    silence_s: float
    key: str | None = field(repr=False)
    """Takes the place of ``STAND_IN`` in headers; without one, these headers are left out."""
    extra_headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False, default=())


class Passage(httpx.AsyncBaseTransport):
    """Used for one request. ``failure``: why there is no reply, if that is known."""

    def __init__(self, pool: httpx.AsyncBaseTransport, route: Route) -> None:
        self.failure: ProviderError | None = None
        self.begun = False
        self._pool = pool
        self._route = route
        self._home = urlsplit(route.base_url)
        self._witness = StreamWitness(route.wire, route.secrets)
        self._answer: httpx.Response | None = None
        self._blocks: AsyncIterator[bytes] | None = None

    @property
    def answered(self) -> bool:
        """A reply has begun."""
        return self._blocks is not None

    @property
    def ended(self) -> bool:
        """The server has said why the reply ended."""
        return self._witness.ended

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises ``ProviderError`` for all but the beginning of a reply."""
        if self.failure is not None:
            raise self.failure  # the library asks again by itself when a connection fails
        if self.begun or not _same_server(self._home, request.url):
            raise self._failed(ProviderError(Category.REJECTED, "litellm wanted to call what nobody asked it to"))
        self.begun = True
        try:
            async with asyncio.timeout(self._route.silence_s) as silence:
                answer = await self._pool.handle_async_request(self._sent(request, silence))
                self._answer = answer
                await self._demand_reply(answer)
        except ProviderError as error:
            raise self._failed(error) from None
        except TimeoutError:
            raise self._failed(self._silent()) from None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._failed(of_exception(_plain(error), secrets=self._route.secrets)) from None
        self._blocks = self._received(answer)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=_Incoming(self._blocks))

    async def aclose(self) -> None:
        """Ends the request, if it goes on. After a whole reply, the connection can be used again."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        try:
            if self._witness.over and self._blocks is not None:
                async for _ in self._blocks:
                    pass
        except ProviderError:
            pass  # the reply was whole before
        finally:
            await answer.aclose()

    def _failed(self, error: ProviderError) -> ProviderError:
        self.failure = self.failure or error
        return self.failure

    def _silent(self) -> ProviderError:
        return broken(f"nothing came within {self._route.silence_s:g} s")

    def _sent(self, request: httpx.Request, silence: asyncio.Timeout) -> httpx.Request:
        body = _Outgoing(request.content, silence, self._route.silence_s)
        return httpx.Request(request.method, request.url, headers=self._headers(request.headers), stream=body)

    def _headers(self, wanted: httpx.Headers) -> httpx.Headers:
        headers = httpx.Headers({"User-Agent": USER_AGENT})
        for name, value in wanted.items():
            if name not in _OF_THE_LIBRARY or (STAND_IN in value and self._route.key is None):
                continue
            headers[name] = value.replace(STAND_IN, self._route.key or "")
        for name, value in self._route.extra_headers.items():
            if name.lower() not in _OURS:
                headers[name] = value
        headers["Accept-Encoding"] = "identity"  # a few bytes can be gigabytes, packed
        return headers

    async def _demand_reply(self, answer: httpx.Response) -> None:
        status, secrets = answer.status_code, self._route.secrets
        if 300 <= status < 400:
            where = scrubbed(answer.headers.get("Location", "nowhere"), secrets, 200)
            detail = f"it redirects to {where}: set baseUrl to the address that is meant"
            raise ProviderError(Category.REJECTED, detail)
        if not 200 <= status < 300:
            text = await _beginning(answer)
            raise of_response(status, dict(answer.headers), text, secrets=secrets)
        if answer.headers.get("Content-Type", "").startswith("text/html"):
            raise ProviderError(Category.REJECTED, "it answers with a page for people: baseUrl is not an API's address")
        if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise broken("the answer is packed, though that was not asked for")

    async def _received(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        blocks = aiter(_stream(answer))
        size = 0
        try:
            while True:
                async with asyncio.timeout(self._wait_s()):
                    block = await anext(blocks, None)
                if block is None:
                    break
                size += len(block)
                if size > MAX_REPLY_BYTES:
                    raise broken(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
                self._witness.see(block)
                yield block
                await asyncio.sleep(0)  # what follows may be there already, and others want to go on too
            self._witness.finish()
        except ProviderError as error:
            raise self._failed(error) from None
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            if self.ended:
                return
            silent = isinstance(error, TimeoutError)
            raise self._failed(self._silent() if silent else broken(str(error), secrets=self._route.secrets)) from None

    def _wait_s(self) -> float:
        if self._witness.over:
            return END_WAIT_S
        return min(USAGE_WAIT_S, self._route.silence_s) if self.ended else self._route.silence_s


class CurrentPassage(httpx.AsyncBaseTransport):
    """What the library's own clients are given: the passage of the request that runs in this task, or none."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        passage = current.get()
        if passage is None:
            raise ProviderError(Category.REJECTED, "litellm wanted to call what nobody asked it to")
        return await passage.handle_async_request(request)


class OneClient:
    """Stands for the library's cache of clients, so that it makes none of its own."""

    def __init__(self, client: object) -> None:
        self._client = client

    def get_cache(self, key: object, *_: object, **__: object) -> object:
        return self._client if str(key).startswith("async_httpx_client") else None

    def set_cache(self, *_: object, **__: object) -> None:
        return


current: ContextVar[Passage | None] = ContextVar("current", default=None)


class _Incoming(httpx.AsyncByteStream):
    def __init__(self, blocks: AsyncIterator[bytes]) -> None:
        self._blocks = blocks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._blocks


class _Outgoing(httpx.AsyncByteStream):
    """The body of a request in blocks: each that goes out is a sign of life."""

    def __init__(self, body: bytes, silence: asyncio.Timeout, silence_s: float) -> None:
        self._body = memoryview(body)
        self._silence = silence
        self._silence_s = silence_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        for start in range(0, len(self._body), BLOCK_BYTES):
            yield bytes(self._body[start : start + BLOCK_BYTES])
            if not self._silence.expired():
                self._silence.reschedule(loop.time() + self._silence_s)


async def _beginning(answer: httpx.Response) -> str:
    """Of an answer that is no reply; what cannot be read of it does not matter."""
    text = bytearray()
    try:
        async with asyncio.timeout(USAGE_WAIT_S):
            async for block in _stream(answer):
                text += block
                if len(text) >= MAX_ERROR_BYTES:
                    break
    except (httpx.HTTPError, OSError):  # a TimeoutError is one
        pass
    return text[:MAX_ERROR_BYTES].decode("utf-8", "replace")


def _stream(answer: httpx.Response) -> httpx.AsyncByteStream:
    stream = answer.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    return stream


def _plain(error: Exception) -> BaseException:
    """What lies under httpx's own exceptions, such as a certificate that does not hold."""
    inner: BaseException = error
    while (under := inner.__cause__ or inner.__context__) is not None:
        inner = under
    return inner if isinstance(inner, OSError) else error


def _same_server(home: SplitResult, url: httpx.URL) -> bool:
    usual = {"http": 80, "https": 443}
    return (home.scheme, home.hostname, home.port or usual.get(home.scheme)) == (
        url.scheme,
        url.host,
        url.port or usual.get(url.scheme),
    )
