"""Real servers on 127.0.0.1, a running proxy to reach them through, and a watch on what this process dials."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_backends.egress import AllowList, EgressLimits, EgressProxy
from sandbox_backends.network import EGRESS_SOCKET, listen_in

BRIDGE = Path(__file__).parents[2] / "sandbox_backends" / "runner" / "bridge.py"
CONNECTS: list[tuple[str, int]] = []
"""Every internet address that this process has dialled, by Python's own audit of socket.connect."""


def dialled() -> list[tuple[str, int]]:
    """What was dialled since the last proxy was started."""
    return list(CONNECTS)


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        CONNECTS.append(arguments[1][:2])


sys.addaudithook(_watch)


@dataclass
class Server:
    """What arrived at a real HTTP server, and where it listens."""

    port: int = 0
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Page(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            while self.headers.get("Transfer-Encoding") and (size := int(self.rfile.readline(), 16)):
                body += self.rfile.read(size)
                self.rfile.readline()
            server.seen.append((self.command, self.path, dict(self.headers), body))
            away = self.path.startswith("/to/")
            self.send_response(302 if away else 200)
            if away:
                self.send_header("Location", "http://" + self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "5")
            if self.path == "/stay":  # some servers do not close when asked to
                self.send_header("Connection", "keep-alive")
            self.end_headers()
            self.wfile.write(b"hello")

        do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None:
            pass

    return Page


@contextlib.contextmanager
def running(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    real = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    real.handle_error = lambda *_: None  # type: ignore[method-assign]  # tests hang up on it
    if context is not None:
        real.socket = context.wrap_socket(real.socket, server_side=True, do_handshake_on_connect=False)
    server.port = real.server_address[1]
    thread = threading.Thread(target=real.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        real.shutdown()
        real.server_close()
        thread.join()


@dataclass
class Way:
    """A running proxy."""

    path: str
    refusals: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Names that were resolved."""

    async def ask(self, request: str | bytes) -> bytes:
        """Everything that comes back for these bytes."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(request.encode("latin-1") if isinstance(request, str) else request)
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    async def connect(self, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A tunnel that is open."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return reader, writer


@contextlib.asynccontextmanager
async def proxy(
    tmp_path: Path,
    *allow: str,
    names: dict[str, list[list[str]]] | None = None,
    limits: EgressLimits | None = None,
) -> AsyncIterator[Way]:
    """``names``: what each name resolves to the first, second, … time; the last one stays. Others are 127.0.0.1."""
    way = Way(str(tmp_path / EGRESS_SOCKET))

    async def resolve(name: str, port: int) -> Sequence[str]:
        way.asked.append(name)
        answers = (names or {}).get(name, [["127.0.0.1"]])
        if name == "missing.test":
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    CONNECTS.clear()
    egress = EgressProxy(AllowList.parse(allow), way.refusals.append, resolver=resolve, limits=limits)
    Path(way.path).unlink(missing_ok=True)  # of an earlier one
    async with egress.serve(listen_in(tmp_path, EGRESS_SOCKET)):
        yield way


def get(where: str, *headers: str) -> str:
    return "\r\n".join([f"GET http://{where} HTTP/1.1", "Host: x", *headers, "", ""])


@contextlib.asynccontextmanager
async def bridged(way: Way) -> AsyncIterator[str]:
    """The address of the real bridge, which is how programs in a sandbox see the proxy."""
    free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = free.sockets[0].getsockname()[1]
    free.close()
    await free.wait_closed()
    command = [sys.executable, "-ISB", str(BRIDGE), "--listen", str(port), "--unix", way.path, "--ready-fd", "1"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.read(1) == b"1"
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.communicate()


@contextlib.contextmanager
def source(total: int) -> Iterator[tuple[int, str]]:
    """A server that sends so many bytes to whoever connects, from threads that hold none: its port and their digest."""
    block = bytes(range(256)) * 256
    digest = hashlib.sha256()
    for _ in range(total // len(block)):
        digest.update(block)
    accepted: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pour(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for _ in range(total // len(block)):
                sock.sendall(block)
            sock.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept()[0])
                threads.append(threading.Thread(target=pour, args=(accepted[-1],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener.getsockname()[1], digest.hexdigest()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for sock in accepted:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for sock in accepted:
                sock.close()


async def raw_tunnel(way: Way, where: str) -> socket.socket:
    """An open tunnel as a socket, so that nothing on this side reads ahead."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    await loop.sock_connect(sock, way.path)
    await loop.sock_sendall(sock, f"CONNECT {where} HTTP/1.1\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += await loop.sock_recv(sock, 1)
    assert answer.startswith(b"HTTP/1.1 200 ")
    return sock
