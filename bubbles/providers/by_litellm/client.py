"""The providers that go through the library litellm (PROV-04): it knows what each vendor wants and sends.

Only that is left to it. Time, size, failures and the network are ours (``transport``), so are the pieces of a
reply (``assembly``) and asking again (``retry``). The library is imported for the first request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from bubbles.errors import ConfigError
from bubbles.providers.assembly import Assembly
from bubbles.providers.by_litellm.library import library, without_bookkeeping
from bubbles.providers.by_litellm.wire import STAND_IN, messages_of, piece_of, tools_of
from bubbles.providers.contract import ModelReply, ModelRequest, ProviderError, TextSink
from bubbles.providers.exchange import WHOLE_FACTOR
from bubbles.providers.failures import MIN_SECRET, broken, of_exception
from bubbles.providers.registry import Entry, Wire

if TYPE_CHECKING:
    import httpx

    from bubbles.providers.by_litellm.transport import Passage, Route

UNKNOWN_CLAUDE_OUTPUT_TOKENS = 32_000
"""Anthropic demands a limit. The library knows the models' own; of one that it does not know, it would say 4,096."""


class LitellmProvider:
    """One provider. Safe for concurrent use inside one event loop; ``aclose`` before another one uses it."""

    def __init__(
        self,
        entry: Entry,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        request_timeout_s: float = 120.0,
        proxy: str | None = None,
    ) -> None:
        """``base_url`` of None is the registry's. ``request_timeout_s``: seconds without a byte; a whole request may
        take ten times that. ``proxy``: address of an HTTP proxy, as ``proxies.proxy_of`` finds it.
        """
        if entry.litellm is None:
            raise ValueError(f"{entry.name} does not go through litellm")
        self._entry = entry
        self._library_name = entry.litellm
        self._base_url = _address(entry, base_url)
        self._key = api_key or None
        self._extra_headers = dict(extra_headers or {})
        self._silence_s = request_timeout_s
        self._proxy = proxy
        self._pool: httpx.AsyncHTTPTransport | None = None

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def base_url(self) -> str:
        """Where requests go."""
        return self._base_url

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """One request on the wire, never more."""
        assembly = Assembly(self.name, request.messages)
        options = self._options(request)
        async with self._passage() as passage:
            try:
                async with asyncio.timeout(self._silence_s * WHOLE_FACTOR):
                    await self._asked(options, passage, assembly, on_text)
            except TimeoutError:
                if not passage.ended:
                    whole_s = self._silence_s * WHOLE_FACTOR
                    raise passage.failure or broken(f"the reply was not whole within {whole_s:g} s") from None
            if passage.failure is not None:
                raise passage.failure
            if not passage.ended:
                raise broken("the connection ended before the reply did")
        return assembly.reply()

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _asked(
        self, options: dict[str, Any], passage: Passage, assembly: Assembly, on_text: TextSink | None
    ) -> None:
        """Raises ``ProviderError``. The library maps what fails to exceptions of its own, out of all that can go wrong
        in taking a hostile reply apart; what is known better was kept by ``passage``.
        """
        import httpx
        import openai

        litellm = await library()
        try:
            stream = await litellm.acompletion(client=self._client(passage), **self._completed(options, litellm))
            without_bookkeeping(stream)
            async for chunk in stream:
                piece = assembly.piece(piece_of(chunk))
                if piece and on_text is not None:
                    on_text.text(piece)
        except ProviderError as error:
            raise passage.failure or error from None
        except (openai.OpenAIError, httpx.HTTPError, httpx.StreamError, ArithmeticError, AttributeError) as error:
            raise passage.failure or self._failure(error, passage) from None
        except (AssertionError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise passage.failure or self._failure(error, passage) from None

    def _failure(self, error: Exception, passage: Passage) -> ProviderError:
        """What the library cannot read of a reply that had begun may well be readable the next time."""
        if passage.answered:
            return broken(f"{type(error).__name__}: {error}", secrets=self._secrets())
        return of_exception(error, secrets=self._secrets())

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        """``drop_params``: a temperature or the like that a model does not take is left out. Tools never are."""
        options: dict[str, Any] = {
            "model": f"{self._library_name}/{request.model}",
            "messages": messages_of(request, self._entry),
            "api_base": self._base_url,
            "api_key": STAND_IN,
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": self._silence_s * WHOLE_FACTOR,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
            "allowed_openai_params": ["tools"] if request.tools else [],
        }
        if request.tools:
            options["tools"] = tools_of(request.tools)
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_output_tokens is not None:
            options["max_tokens"] = request.max_output_tokens
        return options

    def _completed(self, options: dict[str, Any], litellm: Any) -> dict[str, Any]:
        """With what only the library knows of the model."""
        model = options["model"].partition("/")[2]
        if self._entry.wire is Wire.ANTHROPIC and "max_tokens" not in options and model not in litellm.model_cost:
            options["max_tokens"] = UNKNOWN_CLAUDE_OUTPUT_TOKENS
        if self._library_name == "openai":
            info, _ = litellm.main.responses_api_bridge_check(
                model=model, custom_llm_provider="openai", tools=options.get("tools"), api_base=self._base_url
            )
            if info.get("mode") == "responses":  # OpenAI's newer API keeps what is said, unless told not to
                options["store"] = False
        return options

    def _client(self, passage: Passage) -> Any:
        """For the vendors for which the library uses openai's client. Its own goes by the current passage anyway."""
        import httpx
        import openai

        http_client: Any = httpx.AsyncClient(transport=passage, trust_env=False)
        return openai.AsyncOpenAI(api_key=STAND_IN, base_url=self._base_url, max_retries=0, http_client=http_client)

    @asynccontextmanager
    async def _passage(self) -> AsyncIterator[Passage]:
        await library()
        from bubbles.providers.by_litellm.transport import Passage, current

        if self._pool is None:
            context = await asyncio.to_thread(ssl.create_default_context)
        if self._pool is None:
            self._pool = self._new_pool(context)
        passage = Passage(self._pool, self._route())
        before = current.set(passage)
        try:
            yield passage
        finally:
            current.reset(before)
            await passage.aclose()

    def _new_pool(self, context: ssl.SSLContext) -> httpx.AsyncHTTPTransport:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return httpx.AsyncHTTPTransport(verify=context, limits=limits, proxy=self._proxy)

    def _route(self) -> Route:
        from bubbles.providers.by_litellm.transport import Route

        return Route(
            base_url=self._base_url,
            wire=self._entry.wire,
            silence_s=self._silence_s,
            key=self._key,
            extra_headers=self._extra_headers,
            secrets=self._secrets(),
        )

    def _secrets(self) -> tuple[str, ...]:
        values = [word for value in self._extra_headers.values() for word in (value, *value.split())]
        address = [urlsplit(one).netloc.rpartition("@")[0] for one in (self._base_url, self._proxy) if one]
        known = [self._key or "", *values, *address, *(word for pair in address for word in pair.split(":"))]
        return tuple(secret for secret in known if len(secret) >= MIN_SECRET and secret != "Bearer")


def _address(entry: Entry, base_url: str | None) -> str:
    """``http://nas:11434`` of a server of one's own means its ``/v1``."""
    address = base_url or entry.base_url
    if address is None:
        raise ConfigError(f"The provider {entry.name} has no address: set providers.{entry.name}.baseUrl.")
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:  # its words may hold a piece of a password
        raise ConfigError(f"providers.{entry.name}.baseUrl is no address of a server: correct it.") from None
    if not parts.hostname:
        raise ConfigError(f"providers.{entry.name}.baseUrl is no address of a server (no host): correct it.")
    path = parts.path.rstrip("/")
    if entry.wire is Wire.OPENAI:
        path = path.removesuffix("/chat/completions")
        needs_version = not path and urlsplit(entry.base_url or "").path.rstrip("/").endswith("/v1")
        path = "/v1" if needs_version else path
    if entry.wire is Wire.GEMINI and not path:
        path = "/v1beta"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
