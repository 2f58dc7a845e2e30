"""One GET on the wire, to an address that was checked. Imported for the first request: it brings aiohttp along.

Nothing of ours goes with it: no cookie, no referer, no credentials, no proxy of the environment's but the one that is
given. No redirect is followed here, and nothing is unpacked.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

import bubbles
from bubbles.controller.addresses import IPAddress
from bubbles.tools.contract import ToolError
from bubbles.tools.web.address import WebAddress

MAX_HEADER_BYTES = 16_384
"""Of one header; aiohttp takes at most 128 of them."""
MAX_TRIED = 3
"""Addresses that a proxy is asked for, one after the other. Without one, aiohttp tries all (RFC 8305)."""
HEADERS = {
    "User-Agent": f"bubbles/{bubbles.__version__}",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
WIRE_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What a request fails with; ``TimeoutError`` is an ``OSError``, and the caller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a page is reached."""

    addresses: Sequence[IPAddress]
    """What is dialled. Empty: the proxy looks the name up itself."""
    proxy: str | None = None
    trust: ssl.SSLContext | None = None
    """None: the certificates that the system trusts."""


class Pinned(AbstractResolver):
    """Answers for one name what was found and checked; all other names have no address."""

    def __init__(self, address: WebAddress, addresses: Sequence[IPAddress]) -> None:
        self._address = address
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if (host, port) != (self._address.host, self._address.port):
            raise OSError("this name was not looked up")
        return [
            ResolveResult(
                hostname=host,
                host=str(one),
                port=port,
                family=socket.AF_INET if one.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for one in self._addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET if one.version == 4 else socket.AF_INET6)
        ]

    async def close(self) -> None:
        return None


@asynccontextmanager
async def answered(address: WebAddress, way: Way) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a GET, whose body is yet to be read. Raises ``ToolError`` for a request that failed."""
    resolver = Pinned(address, way.addresses) if way.proxy is None else None
    connector = aiohttp.TCPConnector(
        resolver=resolver, use_dns_cache=False, force_close=True, ssl=True if way.trust is None else way.trust
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=HEADERS,
        timeout=aiohttp.ClientTimeout(total=None),  # the caller has one for all of it
        auto_decompress=False,
        trust_env=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    ) as session:
        try:
            response = await _sent(session, address, way)
        except TimeoutError:
            raise
        except WIRE_ERRORS as error:
            raise ToolError(f"{address.origin} was not reached: {reason(error)}.") from None
        async with response:
            yield response


async def _sent(session: aiohttp.ClientSession, address: WebAddress, way: Way) -> aiohttp.ClientResponse:
    if way.proxy is None or not way.addresses or not isinstance(address.host, str):
        return await session.get(URL(address.text, encoded=True), allow_redirects=False, proxy=way.proxy)
    # The tunnel leads to the address, and what is said in it is meant for the name.
    headers = {"Host": address.origin.partition("://")[2]}
    for position, one in enumerate(tried := way.addresses[:MAX_TRIED], 1):
        try:
            return await session.get(
                URL(address.at(one), encoded=True),
                allow_redirects=False,
                proxy=way.proxy,
                headers=headers,
                server_hostname=address.host,
            )
        except aiohttp.ClientHttpProxyError:
            if position == len(tried):
                raise
    raise OSError("there is no address to try")


def reason(error: Exception) -> str:
    """In our own words: what the other side says may be meant to lead a model astray, and addresses may hold keys."""
    match error:
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refuses with status {error.status}"
        case aiohttp.ClientProxyConnectionError():
            return "there is no connection to the proxy"
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or "it is for another name"
            return f"its certificate does not hold ({why})"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return "no secure connection comes about"
        case aiohttp.ClientConnectorError():
            return f"there is no connection ({error.os_error.strerror or 'refused'})"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError():
            return "it hangs up without an answer"
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return "its answer is no HTTP that can be read, or its headers are too large"
    return "the connection broke"
