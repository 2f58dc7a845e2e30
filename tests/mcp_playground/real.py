"""A server made from the official SDK: over stdio, or over streamable HTTP on a port that it prints.

``real.py stdio``, ``real.py http [json]``. Over HTTP it wants the header ``X-Key`` with what KEY says, if that is set.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6260f8cf500f00038601805a34757d0000000049454e44ae426082"
)

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

server = MCPServer("real", log_level="ERROR")
given_up: list[str] = []


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool()
def echo(text: str) -> str:
    """Says what it is told."""
    return text


@server.tool()
def weather(city: str) -> Weather:
    """A structure, with an output schema."""
    return Weather(city=city, degrees=21.5)


@server.tool()
def picture() -> Image:
    """One pixel."""
    return Image(data=PNG, format="png")


@server.tool()
def fail(text: str) -> str:
    """Never works."""
    raise ToolError(f"no {text}")


@server.tool()
async def slow(name: str) -> str:
    """Takes for ever, and remembers that it was given up."""
    try:
        await asyncio.sleep(1_000)
    except BaseException:
        given_up.append(name)
        raise
    return "never"


@server.tool()
def given() -> str:
    """Which of the slow ones were given up."""
    return ",".join(given_up)


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """From then on there is one more."""

    def grown() -> str:
        """It came later."""
        return "grown"

    server.add_tool(grown)
    await ctx.session.send_tool_list_changed()
    return "there is more"


@server.tool()
def large() -> str:
    """300 kB."""
    return "l" * 300_000


def guarded(app: App) -> App:
    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        held = dict(scope.get("headers", ())).get(b"x-key", b"").decode()
        if scope["type"] == "http" and held != os.environ.get("KEY", ""):
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await app(scope, receive, send)

    return answer


async def over_http(json_response: bool) -> None:
    app = guarded(server.streamable_http_app(json_response=json_response))
    config = uvicorn.Config(
        app, host="127.0.0.1", port=int(os.environ.get("PORT", "0")), log_level="error", lifespan="on"
    )
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110 - it has no other way to say so
        await asyncio.sleep(0.01)
    print(running.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(over_http("json" in sys.argv))
    else:
        server.run("stdio")
