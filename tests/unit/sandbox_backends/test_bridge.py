"""The bridge as it runs in a place: its own process, real sockets on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import select
import shutil
import signal
import socket
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.needs import TESTER, need

pytestmark = [pytest.mark.req("SBX-07"), pytest.mark.needs("linux")]

BRIDGE = Path(__file__).parents[3] / "sandbox_backends" / "runner" / "bridge.py"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def command(port: int, path: Path, python: str = sys.executable) -> list[str]:
    return [python, "-ISB", str(BRIDGE), "--listen", str(port), "--unix", str(path)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.asynccontextmanager
async def bridge(path: Path, user: str | None = None) -> AsyncIterator[tuple[int, int]]:
    """A bridge that listens: its port and its process."""
    port = free_port()
    # Another user may not be able to reach the interpreter of the tests.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") if user else None
    process = await asyncio.create_subprocess_exec(
        *command(port, path, python or sys.executable), "--ready-fd", "1", stdout=asyncio.subprocess.PIPE, user=user
    )
    assert process.stdout is not None
    assert await process.stdout.read() == b"1"  # and closed after it
    try:
        yield port, process.pid
        assert process.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def bridged(tmp_path: Path, serve: Serve) -> AsyncIterator[tuple[int, int]]:
    path = tmp_path / "egress.sock"
    async with await asyncio.start_unix_server(serve, path), bridge(path) as running:
        yield running


async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads to the end, and only then answers: what half-closing is for."""
    received = hashlib.sha256()
    while data := await reader.read(1 << 16):
        received.update(data)
    writer.write(received.digest())
    writer.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    _, answer = await asyncio.gather(send(), asyncio.wait_for(reader.read(), 15))
    writer.close()
    return answer


async def test_each_side_may_end_first_and_the_other_still_speaks(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    async with bridged(tmp_path, digest) as (port, _):
        assert await exchange(port, data) == hashlib.sha256(data).digest()
        assert await exchange(port, b"") == hashlib.sha256().digest()


async def test_much_goes_both_ways_at_once_and_arrives_exactly(tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 16
    async with bridged(tmp_path, echo) as (port, _):
        assert await exchange(port, data) == data


async def test_many_connections_at_once_are_served(tmp_path: Path) -> None:
    async with bridged(tmp_path, echo) as (port, _):  # more than it holds at once: the rest wait for their turn
        answers = await asyncio.gather(*(exchange(port, b"%d" % number * 999) for number in range(400)))
    assert answers == [b"%d" % number * 999 for number in range(400)]


async def test_what_nobody_reads_waits_in_the_kernel(tmp_path: Path) -> None:
    sent = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16

    async with bridged(tmp_path, pour) as (port, pid):
        before = _rss_bytes(pid)
        opened = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(20)]
        await asyncio.sleep(0.5)
        stalled = sent
        spent_s = _cpu_s(pid)
        await asyncio.sleep(0.3)
        assert sent - stalled <= 20 * (1 << 20)
        assert _cpu_s(pid) - spent_s < 0.1  # and it does not spin meanwhile
        assert _rss_bytes(pid) - before < 20 * 200_000
        for _, writer in opened:
            writer.transport.abort()


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_when_the_proxy_closes_the_client_is_closed_though_it_keeps_its_end(tmp_path: Path) -> None:
    async def half_then_all(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        await asyncio.sleep(0.1)
        writer.close()

    async with bridged(tmp_path, half_then_all) as (port, pid):
        before = len(os.listdir(f"/proc/{pid}/fd"))
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, _ in clients:
            assert await reader.read() == b"bye"
        await asyncio.sleep(0.4)
        assert len(os.listdir(f"/proc/{pid}/fd")) == before  # no pair is kept for a client that stays
        assert _cpu_s(pid) < 0.3
        for _, writer in clients:
            writer.close()


async def test_an_answer_that_was_sent_before_the_proxy_closed_arrives(tmp_path: Path) -> None:
    held: list[asyncio.StreamWriter] = []
    accepted = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        accepted.set()

    async with bridged(tmp_path, hold) as (port, pid):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await accepted.wait()
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGSTOP)  # so that it finds all of this at once, the request first
        writer.write(b"much")
        await asyncio.sleep(0.05)
        held[0].write(b"refused")
        held[0].close()
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGCONT)
        assert await asyncio.wait_for(reader.read(), 5) == b"refused"
        writer.close()


async def test_a_reset_on_one_side_reaches_the_other(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    async with bridged(tmp_path, wait) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), 5)


async def test_without_a_proxy_the_client_is_told_so(tmp_path: Path) -> None:
    async with bridge(tmp_path / "nothing.sock") as (port, _):
        assert (await exchange(port, b"")).startswith(b"HTTP/1.1 502 ")
        assert (await exchange(port, b"GET http://x/ HTTP/1.1\r\n\r\n")).endswith(b"does not answer.\n")


async def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    async with bridge(tmp_path / "nothing.sock") as (port, _):
        listening = (await asyncio.to_thread(Path("/proc/net/tcp").read_text)).split()
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


async def test_it_cannot_be_looked_into_by_its_own_user(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        need("tester")
    async with bridge(tmp_path / "nothing.sock", user=TESTER if os.geteuid() == 0 else None) as (_, pid):
        mine = pwd.getpwnam(TESTER).pw_uid if os.geteuid() == 0 else os.geteuid()
        assert os.stat(f"/proc/{pid}").st_uid in {0, mine}
        assert os.stat(f"/proc/{pid}/environ").st_uid == 0  # not dumpable: proc(5)


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    program = """
        import subprocess, sys, time
        child = subprocess.Popen(sys.argv[1:] + ["--ready-fd", "1"], stdout=subprocess.PIPE)
        child.stdout.read(1)
        print(child.pid, flush=True)
        time.sleep(60)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(program), *command(free_port(), tmp_path / "nothing.sock")]
    parent = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int(await parent.stdout.readline()))
    try:
        parent.send_signal(signal.SIGKILL)
        await parent.communicate()
        assert await asyncio.to_thread(select.select, [child], [], [], 5) == ([child], [], [])
    finally:
        os.close(child)


async def test_a_port_in_use_and_bad_arguments_are_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(*command(port, tmp_path / "x"), stderr=asyncio.subprocess.PIPE)
        _, error = await process.communicate()
    assert process.returncode == 1
    assert error.startswith(b"The bridge to the egress proxy cannot start: ")


async def test_it_runs_on_every_python_from_3_8_that_is_here(tmp_path: Path) -> None:
    here = (Path(sys.base_prefix).parent).glob("3.*/bin/python3")
    for python in {sys.executable, *(str(path) for path in here if int(path.parts[-3].split(".")[1]) >= 8)}:
        port = free_port()
        arguments = [*command(port, tmp_path / "nothing.sock", python), "--ready-fd", "1"]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.read() == b"1", python
        assert (await exchange(port, b"")).startswith(b"HTTP/1.1 502 ")
        process.kill()
        await process.wait()
