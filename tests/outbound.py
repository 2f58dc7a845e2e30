"""Run by itself: uses the library with several providers, and fails if anything but their address is called."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

called: list[str] = []
_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def connect(self: socket.socket, address: Any) -> None:
    called.append(f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address))
    _connect(self, address)


def connect_ex(self: socket.socket, address: Any) -> int:
    called.append(f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address))
    return _connect_ex(self, address)


def getaddrinfo(host: Any, *more: Any, **named: Any) -> Any:
    if host not in ("127.0.0.1", b"127.0.0.1"):
        called.append(f"look-up of {host}")
    return _getaddrinfo(host, *more, **named)


async def main() -> None:
    from bubbles.providers.by_litellm.client import LitellmProvider
    from bubbles.providers.contract import ModelRequest, ProviderError, UserMessage
    from bubbles.providers.registry import REGISTRY
    from tests.playback import playing, refusal
    from tests.providers_wire import replies

    models = {
        "groq": "llama-3.3-70b-versatile",
        "ollama": "llama3",
        "vllm": "meta-llama/Llama-3-8B",
        "gemini": "gemini-2.5-pro",
    }
    allowed = set()
    for name in ("groq", "ollama", "vllm", "openai", "deepseek", "anthropic", "gemini"):
        entry = REGISTRY[name]
        async with playing(replies(entry.wire), refusal(500, "Oh.")) as server:
            allowed.add(server.url.removeprefix("http://"))
            provider = LitellmProvider(entry, base_url=server.url, api_key="sk-invented-0123", request_timeout_s=10)
            request = ModelRequest(model=models.get(name, "m"), system="S", messages=(UserMessage(text="Hi"),))
            await provider.complete(request)
            try:
                await provider.complete(request)
            except ProviderError:
                pass
            await provider.aclose()
            if "environment" in f"{[request.headers for request in server.requests]}":
                called.append(f"{name} with what the environment says")
            if len(server.requests) != 2:
                called.append(f"{len(server.requests)} requests to {name}")
    strays = [address for address in called if address not in allowed]
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    print("ok" if not strays and not others else f"{strays} {others}")


if __name__ == "__main__":
    socket.socket.connect = connect  # type: ignore[assignment, method-assign]
    socket.socket.connect_ex = connect_ex  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = getaddrinfo
    asyncio.run(main())
    sys.exit(0)
