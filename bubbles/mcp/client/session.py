"""Speaking with one server that is there, by the official SDK: its handshake, its tools, calls of them.

Results are taken as they came, not as the SDK's models: one tool or one picture that those do not take would cost all
the others, and checking a result against the schema that came with it lets a server choose how long that takes.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bubbles import __version__
from bubbles.errors import BubblesError
from bubbles.mcp.client.closing import Closing
from bubbles.mcp.client.endpoint import Endpoint, GoneError, RefusedError
from bubbles.mcp.client.filter import MessageFilter
from bubbles.mcp.client.http import over_http, reason_of
from bubbles.mcp.client.stderr import StderrLog
from bubbles.mcp.client.stdio import Ear, program_of, spoken_with

CLOSED = (CONNECTION_CLOSED, "Connection closed")
"""What the SDK says then; servers have other uses for that number."""
US = Implementation(name="bubbles", version=__version__)
FIRST_NUMBER = 1_000
"""Of our own requests; the SDK counts its own from 1."""
MAX_CURSOR = 10_000
"""Characters of what a server calls the place of the next page."""


class McpSession:
    """With a server that has said what it can. Any call may raise ``GoneError``."""

    def __init__(self, session: ClientSession, dispatcher: JSONRPCDispatcher, closing: Closing) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self.closing = closing
        self._numbers = itertools.count(FIRST_NUMBER)

    @classmethod
    @asynccontextmanager
    async def begun(
        cls, endpoint: Endpoint, closing: Closing, on_change: Callable[[], None], stderr: StderrLog
    ) -> AsyncIterator[McpSession]:
        """It lasts until the context is left, in the task that entered it. Raises what ``explained`` explains."""
        messages = MessageFilter(on_change)
        if endpoint.settings.url is not None:
            transport = over_http(endpoint.settings, endpoint.env, messages, closing)
        else:
            transport = spoken_with(
                endpoint.starter, program_of(endpoint), endpoint.origin, Ear(messages, closing, stderr)
            )
        async with transport as (reading, writing):
            dispatcher = JSONRPCDispatcher(reading, writing)
            async with ClientSession(dispatcher=dispatcher, client_info=US) as session:
                await _shake_hands(session)
                yield cls(session, dispatcher, closing)

    @staticmethod
    def explained(error: BaseException) -> str:
        """Why a server cannot be spoken with, as a part of a sentence."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BubblesError):
            return str(error).rstrip(".")
        if isinstance(error, MCPError):
            return f"it refused the connection: {error.message}"
        if isinstance(error, RefusedError):
            return f"it does not say what tools it has: {error}"
        if isinstance(error, TimeoutError):
            return "it takes too long to say what tools it has"
        if isinstance(error, httpx2.TransportError):
            return reason_of(error)
        if isinstance(error, RuntimeError):
            return "it speaks no version of the protocol that is known here"
        return f"it does not speak as it should ({type(error).__name__})"

    async def pages(self) -> AsyncIterator[object]:
        """What it says that its tools are, list by list, perhaps without end. Raises ``RefusedError``."""
        told = self._session.server_capabilities
        if told is not None and told.tools is None:
            return
        cursor: str | None = None
        known: set[str] = set()
        while True:
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            yield page.get("tools")
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or len(cursor) > MAX_CURSOR or cursor in known:
                return
            known.add(cursor)

    async def call(self, tool: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result as it came. Raises ``RefusedError``. Cancelled, the server is told."""
        return await self._ask("tools/call", {"name": tool, "arguments": dict(arguments)}, schema)

    async def ping(self) -> None:
        """Returns once it has said anything to it."""
        if self._session.protocol_version not in MODERN_PROTOCOL_VERSIONS:  # there is none in those
            try:
                await self._ask("ping", {})
            except RefusedError:
                return

    async def _ask(
        self, method: str, params: dict[str, Any], schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        number = next(self._numbers)
        options: CallOptions = {"request_id": number}
        version = self._session.protocol_version or ""
        if version in MODERN_PROTOCOL_VERSIONS:
            params = {**params, "_meta": _envelope(version)}
            options["headers"] = _headers(version, method, params, schema)
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            if (error.code, error.message) == CLOSED or number in self.closing.unheard:
                raise GoneError(unheard=number in self.closing.unheard) from error
            raise RefusedError(error.message) from error


async def _shake_hands(session: ClientSession) -> None:
    """As nearly every server does it; else as those do that know only the newest versions."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        await session.discover()


def _envelope(version: str) -> dict[str, Any]:
    """Source: https://modelcontextprotocol.io/specification/2026-07-28/basic"""
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: US.model_dump(by_alias=True, mode="json", exclude_none=True),
        CLIENT_CAPABILITIES_META_KEY: {},
    }


def _headers(version: str, method: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, str]:
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
    if "name" in params:
        headers[MCP_NAME_HEADER] = encode_header_value(params["name"])
    if schema is not None and find_invalid_x_mcp_header(schema) is None:
        headers.update(mcp_param_headers(x_mcp_header_map(schema), params["arguments"]))
    return headers
