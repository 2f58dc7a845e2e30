"""An MCP server over streamable HTTP that does what no server should, on a port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ECHO = {"name": "echo", "description": "Says what it is told.", "inputSchema": {"type": "object", "properties": {}}}
SESSION = "Mcp-Session-Id"


@dataclass(slots=True)
class HostileHttp:
    mode: str
    """What it does when a tool is called, or, for some, at once."""
    url: str = ""
    elsewhere: str = ""
    """Where it redirects to."""
    seen: list[tuple[str, Mapping[str, str]]] = field(default_factory=list, init=False)
    """Methods with their headers."""
    session: str = "s1"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, dict(request.headers)))
        if self.mode == "hang":
            await asyncio.sleep(1_000)
        if self.mode == "redirect":
            raise web.HTTPTemporaryRedirect(self.elsewhere or "/other")
        if request.method == "GET":
            return await self._stream(request)
        if request.method == "DELETE":
            await asyncio.sleep(1_000)
        message = await request.json()
        if "id" not in message:
            if self.mode == "slow-notices":
                await asyncio.sleep(1_000)
            return web.Response(status=202)
        if message["method"] == "initialize":
            return self._initialized(message)
        if request.headers.get(SESSION) != self.session:
            return web.Response(status=404)
        return await self._asked(request, message)

    def _initialized(self, message: Mapping[str, Any]) -> web.StreamResponse:
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
        return _json(message, result, {SESSION: self.session})

    async def _asked(self, request: web.Request, message: Mapping[str, Any]) -> web.StreamResponse:
        if message["method"] == "tools/list":
            return _json(message, {"tools": [ECHO]})
        if message["method"] != "tools/call":
            return _json(message, {})
        wanted = message["params"]["arguments"].get("do", self.mode)
        if wanted == "silent":
            await asyncio.sleep(1_000)
        if wanted == "error":
            return web.Response(status=500, text="it broke")
        if wanted == "refuse":
            body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "no"}}
            return web.json_response(body, status=400)
        if wanted == "packed":
            return _packed(message)
        if wanted == "type":
            return web.Response(text="hello", content_type="text/html")
        if wanted == "accepted":
            return web.Response(status=202)
        if wanted in ("large", "large-event", "crowd", "flood", "half", "slow-body", "comments"):
            return await self._streamed(request, message, wanted)
        return _json(message, _text("hello"))

    async def _streamed(self, request: web.Request, message: Mapping[str, Any], wanted: str) -> web.StreamResponse:
        kind = "application/json" if wanted in ("large", "crowd", "slow-body") else "text/event-stream"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        if wanted == "slow-body":
            await response.write(b"{")
            await asyncio.sleep(1_000)
        if wanted == "half":
            await response.write(b'event: message\ndata: {"jsonrpc"')
            return response
        if wanted == "flood":
            notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            while True:
                await response.write(b"event: message\ndata: " + json.dumps(notice).encode() + b"\n\n")
        if wanted == "comments":
            while True:
                await response.write(b": nothing to say\n" * 5_000)
        if wanted == "crowd":
            await response.write(b"[" + b"[]," * 4_000_000 + b"1]")
            return response
        await response.write(b'{"x": "' if wanted == "large" else b"event: message\ndata: ")
        while True:
            await response.write(b"x" * (1 << 20))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """What the server says by itself: it ends at once, and would have it opened again at once."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while self.mode == "comments":
            await response.write(b": nothing to say\n" * 5_000)
        await response.write(b"retry: 0\nid: 1\ndata:\n\n")
        return response


def _text(text: str) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _json(message: Mapping[str, Any], result: Mapping[str, Any], headers: Mapping[str, str] = {}) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


def _packed(message: Mapping[str, Any]) -> web.Response:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": _text("x" * 1_000)}).encode()
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=gzip.compress(body), headers=headers)


@asynccontextmanager
async def hostile_http(mode: str = "plain") -> AsyncIterator[HostileHttp]:
    server = HostileHttp(mode)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
