"""The connections of a client, opened for its first request. aiohttp is imported then: it takes a tenth of a second.

The environment's proxies and ``~/.netrc`` are not looked at, no redirect is followed, no cookie is kept (SEC-01).
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from bubbles.providers.contract import ModelReply, ProviderError, TextSink
from bubbles.providers.exchange import Exchange, Reading, Target
from bubbles.providers.failures import of_exception
from bubbles.providers.wire import Body

if TYPE_CHECKING:
    from aiohttp import ClientSession


class Connection:
    """Safe for concurrent use inside one event loop; ``aclose`` before another one uses it."""

    def __init__(self, silence_s: float) -> None:
        """``silence_s``: seconds without a byte after which a request has failed; all of it may take ten times that."""
        self._silence_s = silence_s
        self._session: ClientSession | None = None

    async def ask(self, target: Target, body: Body, reading: Reading, on_text: TextSink | None) -> ModelReply:
        """One request on the wire. Raises ``ProviderError``."""
        session = await self._opened()
        from aiohttp import ClientError
        from aiohttp.http_exceptions import HttpProcessingError

        try:
            await Exchange(session, target, self._silence_s).run(body, reading, on_text)
        except ProviderError:
            raise
        except (ClientError, HttpProcessingError, OSError, ValueError) as error:
            if not reading.finished:
                raise of_exception(error, secrets=target.secrets) from None
        except RuntimeError as error:  # closed under the request
            if self._session is session:
                raise
            raise of_exception(error, secrets=target.secrets) from None
        return reading.reply()

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self) -> ClientSession:
        if self._session is None:
            aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the turns are what is limited
                timeout=aiohttp.ClientTimeout(total=None),  # the exchange has its own
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session
