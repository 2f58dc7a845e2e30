"""A call of a tool: it waits for its answer as long as it may, and says what became of it if there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bubbles.mcp.client.answers import answer_of
from bubbles.mcp.client.endpoint import GoneError, RefusedError
from bubbles.mcp.contract import McpError, ServerAnswer, ServerTool

if TYPE_CHECKING:
    from bubbles.mcp.client.connection import Connection
    from bubbles.mcp.client.session import McpSession

MAX_SAID = 300
"""Characters of a server's own words in an error."""
PERHAPS_DONE = "The call may have been carried out all the same."


async def call(connection: Connection, tool: ServerTool, arguments: Mapping[str, Any]) -> ServerAnswer:
    """Raises ``McpError``. A server that failed is tried again at once; a call is repeated only if it was not read."""
    _check(arguments)
    name = connection.endpoint.name
    talk = await connection.reached()
    try:
        try:
            result = await _answer(connection, talk, tool, arguments)
        except GoneError as error:
            talk.closing.end(talk.closing.hint or "the connection ended")
            if not error.unheard:
                raise
            talk = await connection.reached()
            result = await _answer(connection, talk, tool, arguments)
    except GoneError as error:
        why = talk.closing.reason or talk.closing.hint or "the connection ended"
        raise McpError(f"The MCP server {name} went away before it answered: {why}. {PERHAPS_DONE}") from error
    except RefusedError as error:
        said = connection.endpoint.redact(str(error)[: 4 * MAX_SAID])[:MAX_SAID]
        raise McpError(f"The MCP server {name} answered with an error:", said or "(without words)") from error
    return await asyncio.to_thread(answer_of, result)


async def _answer(
    connection: Connection, talk: McpSession, tool: ServerTool, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    within_s = connection.endpoint.settings.call_timeout_s
    try:
        async with asyncio.timeout(within_s), connection.slots:
            return await talk.call(tool.name, arguments, tool.schema)
    except TimeoutError:
        connection.doubt()
        name = connection.endpoint.name
        raise McpError(
            f"The MCP server {name} did not answer within {within_s:g} s, and the call was given up. {PERHAPS_DONE}"
        ) from None


def _check(arguments: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise McpError("The arguments cannot be sent: they hold half a character, or a number that is none.") from None
