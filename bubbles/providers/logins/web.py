"""Requests to a vendor's login servers: no redirect, no cookie, bounded in time and size, certificates checked.

Nothing of a request is in any error, and of an answer only what the vendor says of a failure, tokens taken out.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.failures import broken, of_exception, of_response, scrubbed
from bubbles.providers.proxies import proxy_of
from bubbles.providers.targets import USER_AGENT

if TYPE_CHECKING:
    from aiohttp import ClientSession

TIMEOUT_S = 30.0
"""For one request with its answer."""
MAX_ANSWER_BYTES = 256 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_CODE = re.compile(r"[a-z_]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: str = field(repr=False)
    fields: Mapping[str, Any] = field(repr=False)
    """Of the JSON object that it is; empty if it is none."""
    secrets: Sequence[str] = field(repr=False, default=())
    """What the request held."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def code(self) -> str:
        """Of an error, as RFC 6749 5.2 or OpenAI names it; empty if there is none."""
        error = self.fields.get("error")
        if isinstance(error, Mapping):
            error = error.get("code")
        return error if isinstance(error, str) and _CODE.fullmatch(error) else ""

    def failure(self) -> ProviderError:
        """What a status that is not 2xx means: for a log, or the person at the terminal."""
        return of_response(self.status, self.headers, self.body, secrets=self.secrets)

    def token(self, name: str) -> str:
        """Empty if there is none. Raises ``ProviderError`` for what no header could hold."""
        value = self.fields.get(name)
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            raise broken(f"{name} in the answer is no token")
        return value

    def text(self, name: str, limit: int = 500) -> str:
        """One line; empty if there is none, or what is there is none."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and len(value) <= limit and value.isprintable() else ""

    def seconds(self, name: str, usual: float, low: float, high: float) -> float:
        """A number between ``low`` and ``high``; ``usual`` if there is none."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            return usual
        return float(min(max(value, low), high))


class Web:
    """A context manager, for a few requests in a row."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """``environment``: where the proxy is named, as in ``proxies.proxy_of``."""
        self._environment = environment
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, url: str, *, headers: Mapping[str, str], secrets: Sequence[str] = ()) -> Answer:
        return await self._asked("GET", url, secrets, headers=headers)

    async def post(
        self,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        body: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
    ) -> Answer:
        """``form`` or ``body`` (JSON). Raises ``ProviderError`` if no answer comes, or one that leads elsewhere."""
        return await self._asked("POST", url, secrets, data=form, json=body)

    async def _asked(self, method: str, url: str, secrets: Sequence[str], **request: Any) -> Answer:
        import aiohttp
        from aiohttp.http_exceptions import HttpProcessingError

        assert self._session is not None
        proxy = proxy_of(url, self._environment)
        hidden = (*secrets, *(urlsplit(proxy).netloc.rpartition("@")[0].split(":") if proxy else ()))
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._session.request(method, url, proxy=proxy, allow_redirects=False, **request) as response,
            ):
                body = await _read(response.content)
        except TimeoutError:
            raise broken(f"{urlsplit(url).netloc} did not answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            meant = of_exception(error, secrets=hidden)
            words = str(meant).partition(": ")[2]  # without its type, which means nothing to a person
            said = f"{urlsplit(url).netloc} cannot be reached: {words}"
            raise ProviderError(meant.category, said, retryable=meant.retryable) from None
        if 300 <= response.status < 400:
            where = scrubbed(response.headers.get("Location", "nowhere"), hidden, 200)
            raise ProviderError(
                Category.REJECTED, f"{urlsplit(url).netloc} redirects to {where}, which is not followed"
            )
        return Answer(
            status=response.status,
            headers=dict(response.headers),
            body=body,
            fields=_object(body),
            secrets=hidden,
        )


async def _read(content: Any) -> str:
    received = bytearray()
    while chunk := await content.readany():
        received += chunk
        if len(received) > MAX_ANSWER_BYTES:
            raise broken(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return received.decode("utf-8", "replace")


def _object(body: str) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
