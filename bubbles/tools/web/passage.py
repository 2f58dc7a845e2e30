"""How requests to the search service travel. Imported for the first search: it brings httpx along."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx

import bubbles
from bubbles.tools.contract import ToolError

MAX_ANSWER_BYTES = 2_000_000


class Passage(httpx.AsyncBaseTransport):
    """Bounds what comes back, and remembers its status. For one search."""

    def __init__(self, proxy: str | None) -> None:
        """``proxy``: as ``proxies.proxy_of`` finds it. Reads the system's certificates, and belongs into a thread."""
        trust = ssl.create_default_context()
        try:
            self._wire = httpx.AsyncHTTPTransport(proxy=proxy, verify=trust, trust_env=False)
        except (httpx.InvalidURL, ValueError):  # its words may hold a piece of a password
            raise ToolError("The proxy that is set for the search service is no address.") from None
        self.status: int | None = None

    def client(self, url: str) -> httpx.AsyncClient:
        """One that goes this way, for requests beneath ``url``."""
        headers = {"User-Agent": f"bubbles/{bubbles.__version__}", "Accept-Encoding": "identity"}
        try:
            return httpx.AsyncClient(
                transport=self, base_url=url, headers=headers, trust_env=False, follow_redirects=False, timeout=None
            )
        except (httpx.InvalidURL, ValueError):
            raise ToolError("tools.web.searchUrl is no address of a search service: correct it.") from None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._wire.handle_async_request(request)
        self.status = response.status_code
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            await response.aclose()
            raise ToolError("The search service packs its answer in a way that was not asked for.")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._wire.aclose()


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise ToolError(f"The search service answers with over {MAX_ANSWER_BYTES:,} bytes: ask for less.")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
