"""Servers on 127.0.0.1 for the web tools: one that says any bytes, one with a certificate, a proxy that tunnels; names
that a test makes up; and a watch on what this process looks up and dials.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.bus import Address, Origin
from bubbles.config.schema import WebSettings
from bubbles.controller.addresses import AllowList
from bubbles.tools.contract import ToolError, ToolResult
from bubbles.tools.web.fetch import WebFetch, WebFetchArgs
from bubbles.tools.web.reach import Reach

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")
_WATCHED = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_opened: list[str] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event in _WATCHED:
        _opened.append(f"{event} {arguments[1] if event == 'socket.connect' else arguments[0]}")


sys.addaudithook(_watch)


@contextmanager
def watching() -> Iterator[list[str]]:
    """What this process looks up and dials meanwhile, by Python's own audit."""
    _opened.clear()
    yield _opened


@dataclass(slots=True)
class Names:
    """A resolver: what each name leads to, one answer after the other; the last one stays."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del port
        self.asked.append(host)
        answers = self.answers.get(host)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def names(**answers: str) -> Names:
    """Each name (with _ for .) and its addresses, apart by blanks."""
    return Names({name.replace("_", "."): [found.split()] for name, found in answers.items()})


@dataclass(slots=True, kw_only=True)
class Fetching:
    """A web_fetch, and what it is made of."""

    tool: WebFetch
    names: Names

    async def result(self, url: str, *, links: bool = False) -> ToolResult:
        return await self.tool.run(WebFetchArgs(url=url, links=links), HERE)

    async def ok(self, url: str, *, links: bool = False) -> str:
        result = await self.result(url, links=links)
        assert not result.is_error, result.text
        return result.text

    async def refused(self, url: str) -> str:
        try:
            result = await self.result(url)
        except ToolError as error:
            return str(error)
        assert result.is_error, result.text
        return result.text


def fetching(
    *allow: str,
    resolver: Names | None = None,
    env: Mapping[str, str] | None = None,
    mask: Callable[[str], str] = str,
    trust: ssl.SSLContext | None = None,
    **settings: Any,
) -> Fetching:
    resolver = resolver or Names()
    reach = Reach(AllowList.parse(allow), resolver)
    return Fetching(tool=WebFetch(reach, WebSettings(**settings), env or {}, mask, trust=trust), names=resolver)


Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Raw:
    """A server that says what a test wants, whatever it is asked."""

    answer: Answer
    port: int = 0
    heads: list[str] = field(default_factory=list)
    server_names: list[str] = field(default_factory=list)
    """What TLS was begun for."""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head.decode("latin-1"))
            await self.answer(head, writer)
            await writer.drain()
        writer.close()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def raw(answer: bytes | Answer, certificate: Path | None = None) -> AsyncIterator[Raw]:
    async def say(_: bytes, writer: asyncio.StreamWriter) -> None:
        assert isinstance(answer, bytes)
        writer.write(answer)

    server = Raw(say if isinstance(answer, bytes) else answer)
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        await asyncio.to_thread(context.load_cert_chain, certificate)
        context.sni_callback = lambda _socket, name, _context: server.server_names.append(name)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        server.stop()
        await listening.wait_closed()


def page(body: bytes | str, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """An answer, as bytes; HTML unless a header says otherwise."""
    data = body.encode() if isinstance(body, str) else body
    if not any(header.lower().startswith("content-type:") for header in headers):
        headers = ("Content-Type: text/html; charset=utf-8", *headers)
    size = len(data) if length is None else length
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, f"Content-Length: {size}", "", "")).encode("latin-1") + data


@asynccontextmanager
async def tunnelling(port: int, *, refuses: Sequence[str] = ()) -> AsyncIterator[Raw]:
    """A proxy: whatever it is asked for, it leads to ``port``; CONNECT to the hosts in ``refuses`` gets a 502."""

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        method, where, _ = head.decode("latin-1").split(" ", 2)
        if any(where.startswith(f"{host}:") for host in refuses):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        there, back = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            reader = readers.pop(writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, back))
                group.create_task(pump(there, writer))
        else:
            back.write(head)
            await pump(there, writer)
        back.close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
            writer.close()

    readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}
    proxy = Raw(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        readers[writer] = reader
        await proxy.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        proxy.stop()
        await listening.wait_closed()


def make_certificate(path: Path, name: str) -> Path:
    """Of ``name``, signed by itself, with its key in the same file."""
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
    subprocess.run(
        [*command.split(), "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(path), "-out", str(path)],
        check=True,
        capture_output=True,
    )
    return path
