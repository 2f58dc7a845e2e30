"""The egress proxy under a hostile client: slow, huge, many, stalled, and any bytes at all."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import itertools
import logging
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox_backends.egress import AllowList, EgressLimits, EgressProxy
from sandbox_backends.network import listen_in
from tests.security.egress_servers import Server, Way, dialled, get, proxy, raw_tunnel, running, source

pytestmark = [pytest.mark.req("SBX-07", "SEC-01"), pytest.mark.needs("linux")]


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


async def test_a_slow_head_is_cut_off_and_hurts_nobody(tmp_path: Path, server: Server) -> None:
    limits = EgressLimits(head_s=0.4)
    async with proxy(tmp_path, f"127.0.0.1:{server.port}", limits=limits) as way:
        reader, writer = await asyncio.open_unix_connection(way.path)
        answer = asyncio.create_task(reader.read())
        for _ in range(20):
            writer.write(b"G")
            assert b" 200 " in await way.ask(get(f"127.0.0.1:{server.port}/"))
            await asyncio.sleep(0.03)
        assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.parametrize(
    "head", [b"GET " + b"a" * 40_000, b"GET http://good.test/ HTTP/1.1\r\n" + b"X: y\r\n" * 8_000, b"\r\n", b"GET\n\n"]
)
async def test_a_huge_or_broken_head_is_answered_at_once(tmp_path: Path, head: bytes) -> None:
    async with proxy(tmp_path, "good.test") as way:
        answer = await way.ask(head)
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert dialled() == []


async def test_one_connection_too_many_is_told_so_and_the_next_free_place_is_used(
    tmp_path: Path, server: Server
) -> None:
    limits = EgressLimits(connections=4)
    async with proxy(tmp_path, f"127.0.0.1:{server.port}", limits=limits) as way:
        held = [await asyncio.open_unix_connection(way.path) for _ in range(4)]
        assert (await way.ask(b"")).startswith(b"HTTP/1.1 503 ")
        held[0][1].close()
        await held[0][1].wait_closed()
        await asyncio.sleep(0.02)
        assert b" 200 " in await way.ask(get(f"127.0.0.1:{server.port}/"))
        for _, writer in held[1:]:
            writer.close()


async def test_a_client_that_keeps_its_end_open_holds_no_place(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"127.0.0.1:{server.port}", limits=EgressLimits(connections=1)) as way:
        kept = []
        for _ in range(3):
            reader, writer = await asyncio.open_unix_connection(way.path)
            kept.append(writer)
            writer.write(get(f"127.0.0.1:{server.port}/").encode())
            assert b" 200 " in await reader.read()
            await asyncio.sleep(0.02)
        for writer in kept:
            writer.close()


async def test_a_flood_of_connections_is_survived(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"127.0.0.1:{server.port}", limits=EgressLimits(connections=16)) as way:
        for _ in range(10):
            flood = [asyncio.open_unix_connection(way.path) for _ in range(60)]
            for opened in await asyncio.gather(*flood, return_exceptions=True):
                if not isinstance(opened, BaseException):
                    opened[1].write(b"GET http://denied.test/ HTTP/1.1\r\n\r\n")
                    opened[1].close()
        async with asyncio.timeout(5):
            for pause_s in itertools.repeat(0.02):
                answer = await way.ask(get(f"127.0.0.1:{server.port}/"))
                if b" 503 " not in answer:
                    break
                await asyncio.sleep(pause_s)
        assert b" 200 " in answer


async def test_a_tunnel_on_which_nothing_moves_is_closed(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"127.0.0.1:{server.port}", limits=EgressLimits(idle_s=0.3)) as way:
        reader, writer = await way.connect(f"127.0.0.1:{server.port}")
        for _ in range(5):  # while bytes move it stays
            await asyncio.sleep(0.15)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"hello")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_a_long_tunnel_is_exact_and_its_memory_is_bounded(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    with source(50 * 1024 * 1024) as (port, digest):
        async with proxy(tmp_path, f"127.0.0.1:{port}") as way:
            with contextlib.closing(await raw_tunnel(way, f"127.0.0.1:{port}")) as sock:
                tracemalloc.start()
                await asyncio.sleep(0.2)  # nobody reads: what the server sends must wait in the kernel
                received = hashlib.sha256()
                while data := await loop.sock_recv(sock, 64 * 1024):
                    received.update(data)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
    assert received.hexdigest() == digest
    assert peak < 1024 * 1024


async def test_many_stalled_tunnels_hold_one_chunk_each(tmp_path: Path) -> None:
    with source(8 * 1024 * 1024) as (port, _):
        async with proxy(tmp_path, f"127.0.0.1:{port}") as way:
            tracemalloc.start()
            sockets = [await raw_tunnel(way, f"127.0.0.1:{port}") for _ in range(60)]
            await asyncio.sleep(0.3)
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            for sock in sockets:
                sock.close()
    assert held < 60 * 150_000


async def test_a_burst_of_tiny_chunks_does_not_take_the_loop_from_others(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listener:
        where = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with proxy(tmp_path, where) as way:
            _, writer = await asyncio.open_unix_connection(way.path)
            head = f"POST http://{where}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head.encode() + b"1\r\na\r\n" * 40_000)
            longest_s, before, end = 0.0, loop.time(), loop.time() + 0.5
            while before < end:
                await asyncio.sleep(0)
                longest_s, before = max(longest_s, loop.time() - before), loop.time()
            writer.transport.abort()
    assert longest_s < 0.1  # it is 1 ms, and 200 ms without the yields


async def test_leaving_the_proxy_closes_every_connection(tmp_path: Path) -> None:
    with source(8 * 1024 * 1024) as (port, _):
        async with proxy(tmp_path, f"127.0.0.1:{port}") as way:
            stalled = await raw_tunnel(way, f"127.0.0.1:{port}")
            reader, writer = await asyncio.open_unix_connection(way.path)  # and one that has asked for nothing
            await asyncio.sleep(0.05)
        assert await reader.read() == b""
        writer.close()
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(stalled, 1024 * 1024):
            pass
        stalled.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(way.path)
    assert len(asyncio.all_tasks()) == 1


async def test_leaving_right_after_a_connection_came_leaves_no_socket_behind(tmp_path: Path) -> None:
    for turns in range(8):
        with socket.socket(socket.AF_UNIX) as sock:
            async with proxy(tmp_path) as way:
                sock.connect(way.path)
                for _ in range(turns):
                    await asyncio.sleep(0)
            gc.collect()  # what was not closed is told now, as an error
            sock.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""


async def test_a_failure_in_one_connection_does_not_reach_the_others(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(sentence: str) -> None:
        raise RuntimeError(sentence)

    path = tmp_path / "egress.sock"
    with caplog.at_level(logging.ERROR):
        async with EgressProxy(AllowList.parse([f"127.0.0.1:{server.port}"]), fail).serve(
            listen_in(tmp_path, path.name)
        ):
            way = Way(str(path))
            assert await way.ask(get("denied.test/")) == b""
            assert b" 200 " in await way.ask(get(f"127.0.0.1:{server.port}/"))
    assert "a connection failed" in caplog.text


async def test_the_system_resolver_is_asked_for_listed_names_only(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "egress.sock"
    allow = AllowList.parse([f"localhost:{server.port}", f"127.0.0.1:{server.port}", "localhost"])
    refusals: list[str] = []
    async with EgressProxy(allow, refusals.append).serve(listen_in(tmp_path, path.name)):
        way = Way(str(path))
        assert b" 200 " in await way.ask(get(f"localhost:{server.port}/"))
        assert b" 403 " in await way.ask(get("localhost/"))
    assert "resolves to" in refusals[0]


class Failures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Failures]]:
    """A proxy on a loop of its own beside the test, and what it or its loop logs."""
    folder, failures = tmp_path_factory.mktemp("fuzz"), Failures()
    ready, path = threading.Event(), str(folder / "egress.sock")
    loop, done = asyncio.new_event_loop(), asyncio.Event()

    async def run() -> None:
        async with proxy(folder, "good.test", "127.0.0.1:443"):
            ready.set()
            await done.wait()

    for name in ("asyncio", "sandbox_backends"):
        logging.getLogger(name).addHandler(failures)
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(5)
    yield path, failures
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()
    for name in ("asyncio", "sandbox_backends"):
        logging.getLogger(name).removeHandler(failures)


PARTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"GET ",
            b"CONNECT ",
            b"POST ",
            b"http://",
            b"HTTP/1.1",
            b" ",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b":",
            b"/",
            b"@",
            b"#",
        ]
        + [
            b"127.0.0.1",
            b"good.test",
            b"denied.test",
            b"[::1]",
            b"[::ffff:127.0.0.1]",
            b"127.1",
            b"0x7f.1",
            b"2130706433",
        ]
        + [b"Host: ", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"5", b":80", b":443", b"\x16\x03\x01"]
    ),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PARTS, max_size=20).map(b"".join))
@example(b"GET http://127.0.0.1:80/ HTTP/1.1\r\n\r\n")
@example(b"CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n\r\n")
@example(b"GET http://good.test@denied.test/ HTTP/1.1\r\n\r\n")
def test_no_bytes_make_it_fail_or_dial_what_is_not_listed(beside: tuple[str, Failures], data: bytes) -> None:
    path, failures = beside
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(path)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while more := sock.recv(4096):
                answer += more
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert set(dialled()) <= {("127.0.0.1", 443)}
    assert failures.seen == []
