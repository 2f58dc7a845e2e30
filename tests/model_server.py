"""A model on 127.0.0.1 that thinks with a function of the test's: an OpenAI-compatible server over real sockets.

``Brain`` gets the parsed request and returns the text of a reply, or the calls that it wants. Every request is kept,
and looked at first: one that no vendor would take (CTX-03) fails the test that asks ``server.check()``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Request = Mapping[str, Any]
Calls = Sequence[tuple[str, Mapping[str, Any]]]
"""Tool names and arguments."""
Brain = Callable[[Request], "str | Calls"]
KEY = "sk-test-key-of-the-model-server"
MAX_REQUEST_BYTES = 64 << 20


@dataclass(slots=True)
class ModelServer:
    brain: Brain
    url: str = ""
    delay_s: float = 0.0
    """Before each answer."""
    keep: bool = True
    requests: list[Request] = field(default_factory=list, init=False)
    faults: list[str] = field(default_factory=list, init=False)
    _count: int = field(default=0, init=False)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a ``bubbles`` process talk to this model."""
        return {
            "BUBBLES_PROVIDERS__CUSTOM__BASE_URL": f"{self.url}/v1",
            "BUBBLES_PROVIDERS__CUSTOM__API_KEY": KEY,
            "BUBBLES_AGENTS__DEFAULTS__PROVIDER": "custom",
            "BUBBLES_AGENTS__DEFAULTS__MODEL": "thinker",
        }

    def check(self) -> None:
        assert not self.faults, "\n".join(self.faults)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.keep:
            self.requests.append(body)
        self.faults += faults_of(body["messages"])
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        wanted = self.brain(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta, stop in self._deltas(wanted):
            chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        usage = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
        await response.write(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")
        return response

    def _deltas(self, wanted: str | Calls) -> list[tuple[dict[str, Any], str | None]]:
        if isinstance(wanted, str):
            return [({"role": "assistant", "content": wanted}, None), ({}, "stop")]
        made = []
        for index, (name, arguments) in enumerate(wanted):
            self._count += 1
            function = {"name": name, "arguments": json.dumps(arguments)}
            made.append({"index": index, "id": f"call_{self._count}", "type": "function", "function": function})
        return [({"role": "assistant", "content": None, "tool_calls": made}, None), ({}, "tool_calls")]


def faults_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the order of calls and results."""
    found: list[str] = []
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                found.append(f"message {number} is a result of no open call")
            continue
        if open_calls:
            found.append(f"message {number} comes before the results of {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    return found + ([f"no result of {open_calls}"] if open_calls else [])


@asynccontextmanager
async def serving(brain: Brain, *, delay_s: float = 0.0, keep: bool = True) -> AsyncIterator[ModelServer]:
    server = ModelServer(brain, delay_s=delay_s, keep=keep)
    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
