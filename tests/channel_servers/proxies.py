"""Two small proxies on 127.0.0.1: HTTP (forwarding, and CONNECT) and SOCKS 5 (RFC 1928, RFC 1929)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Serve = Callable[["Proxy", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Proxy:
    scheme: str
    user: str = ""
    password: str = ""
    port: int = 0
    reached: list[str] = field(default_factory=list)
    """``host:port`` of each connection that was made for somebody."""

    @property
    def url(self) -> str:
        login = f"{self.user}:{self.password}@" if self.user else ""
        return f"{self.scheme}://{login}127.0.0.1:{self.port}"


@asynccontextmanager
async def http_proxy(user: str = "", password: str = "") -> AsyncIterator[Proxy]:
    async with _proxy(Proxy("http", user, password), _http) as proxy:
        yield proxy


@asynccontextmanager
async def socks_proxy(user: str = "", password: str = "") -> AsyncIterator[Proxy]:
    async with _proxy(Proxy("socks5", user, password), _socks) as proxy:
        yield proxy


@asynccontextmanager
async def _proxy(proxy: Proxy, serve: Serve) -> AsyncIterator[Proxy]:
    tasks: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await serve(proxy, reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        tasks.discard(task)

    listening = await asyncio.start_server(served, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(set(tasks))
        await listening.wait_closed()


async def _http(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *headers = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    login = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
    if proxy.user and f"proxy-authorization: basic {login}".lower() not in [each.lower() for each in headers]:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    proxy.reached.append(f"{parts.hostname}:{parts.port}")
    there, back = await asyncio.open_connection(parts.hostname, parts.port)
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    else:  # one request a connection is enough here
        path = target.split(parts.netloc, 1)[1] or "/"
        kept = [each for each in headers if not each.lower().startswith(("proxy-", "connection:"))]
        back.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1"))
    await _joined(reader, writer, there, back)


async def _socks(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _, count = await reader.readexactly(2)
    methods = await reader.readexactly(count)
    wanted = 2 if proxy.user else 0
    if wanted not in methods:
        writer.write(b"\x05\xff")
        return
    writer.write(bytes([5, wanted]))
    if proxy.user:
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        right = (user.decode(), password.decode()) == (proxy.user, proxy.password)
        writer.write(b"\x01\x00" if right else b"\x01\x01")
        if not right:
            return
    _, _, _, kind = await reader.readexactly(4)
    if kind == 1:
        host = ".".join(map(str, await reader.readexactly(4)))
    else:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    port = int.from_bytes(await reader.readexactly(2), "big")
    proxy.reached.append(f"{host}:{port}")
    there, back = await asyncio.open_connection(host, port)
    writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
    await _joined(reader, writer, there, back)


async def _joined(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader, back: asyncio.StreamWriter
) -> None:
    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        finally:
            target.close()
            with suppress(OSError):
                await target.wait_closed()

    await asyncio.gather(copy(reader, back), copy(there, writer))
