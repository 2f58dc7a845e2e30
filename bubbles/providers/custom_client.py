"""Any server that speaks OpenAI's chat completions, with a client of its own (PROV-04).

What goes out is one request to ``base_url``, or to the proxy that is given: the environment's proxies and ``~/.netrc``
are not looked at, no redirect is followed, no cookie is kept (SEC-01). aiohttp is imported for the first request.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import bubbles
from bubbles.errors import ConfigError
from bubbles.providers.assembly import Assembly
from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, TextSink
from bubbles.providers.exchange import Exchange, Target
from bubbles.providers.failures import of_exception
from bubbles.providers.wire import Body, RequestWriter

if TYPE_CHECKING:
    from aiohttp import ClientSession

ENDPOINT = "/chat/completions"
_OURS = frozenset({"content-length", "transfer-encoding", "content-type", "accept-encoding", "connection"})
"""Headers that say how a request is sent, which is not for the settings to choose."""
_NEW_LIMIT_NAME = ("openai.com", "openai.azure.com")
"""Where the limit of the output is called ``max_completion_tokens``; nearly all others know the old name only."""


class CustomProvider:
    """One server. Safe for concurrent use inside one event loop; ``aclose`` before another one uses it."""

    def __init__(
        self,
        name: str = "custom",
        *,
        base_url: str,
        api_key: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        request_timeout_s: float = 120.0,
        proxy: str | None = None,
    ) -> None:
        """``base_url`` may end in nothing, in ``/v1`` or the like, or in ``/chat/completions``.

        Without ``api_key`` no ``Authorization`` is sent. ``extra_headers`` win over ours. ``request_timeout_s``:
        seconds without a byte; a whole request may take ten times that. ``proxy``: address of an HTTP proxy, as
        ``proxies.proxy_of`` finds it. Raises ``ConfigError`` for an address that is none.
        """
        self._name = name
        try:
            self._target = _target(base_url, api_key, extra_headers or {}, proxy)
        except ValueError:  # its words may hold a piece of a password
            raise ConfigError(f"providers.{name}.baseUrl is no address of a server: correct it.") from None
        self._timeout_s = request_timeout_s
        self._limit_name = _limit_name(self._target.url)
        self._writer = RequestWriter(name)
        self._asks_usage = True
        self._session: ClientSession | None = None

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """One request on the wire; a second one only to a server that does not know ``stream_options``."""
        usage = self._asks_usage  # by the time it is refused, another request may have found out
        try:
            return await self._asked(request, on_text, usage=usage)
        except ProviderError as error:
            if not (usage and error.category is Category.REJECTED and "stream_options" in str(error)):
                raise
        self._asks_usage = False
        return await self._asked(request, on_text, usage=False)

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _asked(self, request: ModelRequest, on_text: TextSink | None, *, usage: bool) -> ModelReply:
        body = self._body(request, usage=usage)
        session = await self._opened()
        from aiohttp import ClientError
        from aiohttp.http_exceptions import HttpProcessingError

        assembly = Assembly(self._name, request.messages, self._target.secrets)
        try:
            await Exchange(session, self._target, self._timeout_s).run(body, assembly, on_text)
        except ProviderError:
            raise
        except (ClientError, HttpProcessingError, OSError, ValueError) as error:
            if not assembly.finished:
                raise of_exception(error, secrets=self._target.secrets) from None
        except RuntimeError as error:  # closed under the request
            if self._session is session:
                raise
            raise of_exception(error, secrets=self._target.secrets) from None
        return assembly.reply()

    def _body(self, request: ModelRequest, *, usage: bool) -> Body:
        options: dict[str, Any] = {"stream": True}
        if usage:
            options["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_output_tokens is not None:
            options[self._limit_name] = request.max_output_tokens
        try:
            return self._writer.body(request, options)
        except (ValueError, TypeError, RecursionError) as error:
            raise ProviderError(Category.REJECTED, f"the request cannot be written: {type(error).__name__}") from None

    async def _opened(self) -> ClientSession:
        if self._session is None:
            aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")  # a tenth of a second
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the turns are what is limited
                timeout=aiohttp.ClientTimeout(total=None),  # the exchange has its own
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def _target(base_url: str, api_key: str | None, extra: Mapping[str, str], proxy: str | None) -> Target:
    parts = urlsplit(base_url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it names no host")
    user, at, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": f"bubbles/{bubbles.__version__}", "Accept": "text/event-stream, application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    elif at:
        headers["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    chosen = {name.lower() for name in extra}
    headers = {name: value for name, value in headers.items() if name.lower() not in chosen}
    headers |= {name: value for name, value in extra.items() if name.lower() not in _OURS}
    headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    path = parts.path.rstrip("/")
    if not path.endswith(ENDPOINT):
        path = (path or "/v1") + ENDPOINT
    keys = [api_key or "", *(value for _, value in parse_qsl(parts.query)), *user.split(":"), unquote(user)]
    keys += [part for address in (proxy,) if address for part in urlsplit(address).netloc.rpartition("@")[0].split(":")]
    keys += [word for value in [*extra.values(), headers.get("Authorization", "")] for word in (value, *value.split())]
    return Target(
        url=urlunsplit((parts.scheme, host, path, parts.query, "")),
        headers=headers,
        proxy=proxy,
        secrets=tuple(key for key in keys if key not in ("", "Bearer", "Basic")),
    )


def _limit_name(url: str) -> str:
    host = urlsplit(url).hostname or ""
    new = any(host == known or host.endswith(f".{known}") for known in _NEW_LIMIT_NAME)
    return "max_completion_tokens" if new else "max_tokens"
