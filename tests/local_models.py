"""Look-alikes of the servers that a first run may meet on this machine: an Ollama, a vLLM, and something else.

All that they are asked is kept. The model behind them is that of ``model_server``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.model_server import ModelServer

Answer = Mapping[str, Any] | bytes | int
"""JSON, bytes as they are, or a status."""


@dataclass(slots=True)
class LocalServer:
    """``paths`` says what is answered to GET and POST of each; all others are a 404."""

    paths: Mapping[str, Answer]
    model: ModelServer = field(default_factory=lambda: ModelServer(lambda _: "OK"))
    refusal: tuple[int, str] | None = None
    """Status and text of what chat completions get instead of an answer."""
    holds: bool = False
    """Whether they get no answer at all."""
    held: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """One of them waits for its answer."""
    asked: list[str] = field(default_factory=list, init=False)
    """Method and path of every request."""
    headers: list[Mapping[str, str]] = field(default_factory=list, init=False)
    host: str = field(default="", init=False)
    """With its port."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        self.headers.append(dict(request.headers))
        if request.path.endswith(("/chat/completions", "/v1/messages")):
            if self.holds:
                self.held.set()
                await asyncio.Event().wait()
            if self.refusal is not None:
                return web.json_response({"error": {"message": self.refusal[1]}}, status=self.refusal[0])
            return await self.model.answer(request)
        answer = self.paths.get(request.path, 404)
        if request.path == "/api/show" and isinstance(answer, Mapping):
            answer = answer.get((await request.json())["model"], 404)
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.Response(body=answer) if isinstance(answer, bytes) else web.json_response(answer)


@asynccontextmanager
async def local_server(
    paths: Mapping[str, Answer], *, at: str = "127.0.0.1", **more: Any
) -> AsyncIterator[LocalServer]:
    server = LocalServer(paths, **more)
    app = web.Application(client_max_size=1 << 20)
    app.router.add_route("*", "/{tail:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, at, 0).start()
    server.host = f"{at}:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def ollama(*models: str, tools: tuple[str, ...] = (), context: int | None = None) -> dict[str, Any]:
    """The answers of an Ollama that has these models."""
    paths: dict[str, Any] = {
        "/api/tags": {"models": [{"name": name, "model": name} for name in models]},
        "/api/show": {name: {"capabilities": ["completion", *(["tools"] if name in tools else [])]} for name in models},
        "/api/ps": {"models": [{"name": name, "context_length": context} for name in models] if context else []},
    }
    return paths
