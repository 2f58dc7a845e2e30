"""Any server that speaks OpenAI's chat completions, with a client of its own (PROV-04).

What goes out is one request to ``base_url``, or to the proxy that is given, as ``connection`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from bubbles.errors import ConfigError
from bubbles.providers.chat_client import ENDPOINT, ChatClient
from bubbles.providers.connection import Connection
from bubbles.providers.contract import ModelReply, ModelRequest, TextSink
from bubbles.providers.exchange import Target
from bubbles.providers.targets import target_of

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
        limit_name = _limit_name(self._target.url)
        self._connection = Connection(request_timeout_s)
        self._client = ChatClient(name, self._connection, lambda _: limit_name)

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        return await self._client.complete(request, self._target, on_text)

    async def aclose(self) -> None:
        await self._connection.aclose()


def _target(base_url: str, api_key: str | None, extra: Mapping[str, str], proxy: str | None) -> Target:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    endpoint = ENDPOINT if urlsplit(base_url).path.rstrip("/") else f"/v1{ENDPOINT}"
    return target_of(base_url, endpoint, headers=headers, extra=extra, proxy=proxy, secrets=(api_key or "",))


def _limit_name(url: str) -> str:
    host = urlsplit(url).hostname or ""
    new = any(host == known or host.endswith(f".{known}") for known in _NEW_LIMIT_NAME)
    return "max_completion_tokens" if new else "max_tokens"
