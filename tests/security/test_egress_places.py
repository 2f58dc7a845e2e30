"""The allow-list from inside a real place: bridge, socket and proxy together (SBX-07)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox_backends.contract import ExecRequest, ExecResult, Network, SandboxSession
from sandbox_backends.errors import InvalidSpecError
from tests.places import HARD, Bench, make_bench

pytestmark = [pytest.mark.req("SBX-07"), pytest.mark.timeout(60)]
hard_place = pytest.mark.parametrize("name", HARD)

FETCH = """
import json, sys, urllib.error, urllib.request
out = []
for url in sys.argv[1:]:
    try:
        out.append(urllib.request.urlopen(url, timeout=10).read().decode())
    except urllib.error.HTTPError as error:
        out.append(error.code)
    except OSError as error:
        out.append(type(error).__name__)
print(json.dumps(out))
"""
DIRECT = """
import socket, sys
for host, port in (("127.0.0.1", int(sys.argv[1])), ("192.0.2.1", 80), ("169.254.169.254", 80)):
    try:
        socket.create_connection((host, port), 3)
    except OSError as error:
        print("refused")
    else:
        print("open")
try:
    socket.getaddrinfo("example.org", 80)
except OSError:
    print("no DNS")
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


@asynccontextmanager
async def web_server(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def python(session: SandboxSession, script: str, *argv: str) -> ExecResult:
    return await session.exec(ExecRequest(argv=("python3", "-c", script, *argv), timeout_s=30))


@hard_place
async def test_listed_hosts_are_reached_and_no_others(bench: Bench, name: str) -> None:
    async with web_server(b"welcome") as port, web_server(b"secret") as other:
        spec = bench.spec(network=Network.ALLOWLIST, allow=(f"127.0.0.1:{port}",))
        async with bench.open(name, spec) as session:
            urls = (f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{other}/", "http://denied.example/")
            # The environment's NO_PROXY keeps a sandbox's own loopback to itself; the server outside is asked by proxy.
            env = {key: value for key, value in session.env.items() if key.lower() != "no_proxy"}
            request = ExecRequest(argv=("python3", "-c", FETCH, *urls), env=env, timeout_s=30)
            result = await session.exec(request)
            assert json.loads(result.stdout) == ["welcome", 403, 403], result
            direct = await python(session, DIRECT, str(port))
            assert direct.stdout.decode().split("\n")[:4] == ["refused", "refused", "refused", "no DNS"]
    assert any("denied.example" in sentence for sentence in bench.refusals)
    assert any(str(other) in sentence for sentence in bench.refusals)


@hard_place
async def test_killed_bridge_comes_back_and_nothing_else_does(bench: Bench, name: str) -> None:
    async with web_server(b"welcome") as port:
        spec = bench.spec(network=Network.ALLOWLIST, allow=(f"127.0.0.1:{port}",))
        async with bench.open(name, spec) as session:
            kill = await session.exec(ExecRequest(argv=("sh", "-c", "kill -9 -1"), timeout_s=10))
            assert kill.exit_code in (-9, 0, 137)
            env = {key: value for key, value in session.env.items() if key.lower() != "no_proxy"}
            fetch = ExecRequest(argv=("python3", "-c", FETCH, f"http://127.0.0.1:{port}/"), env=env, timeout_s=30)
            for _ in range(50):
                result = await session.exec(fetch)
                if json.loads(result.stdout) == ["welcome"]:
                    return
                await asyncio.sleep(0.1)
    pytest.fail("the bridge did not come back")


@hard_place
async def test_allow_list_that_cannot_be_read_is_refused_before_anything_opens(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidSpecError, match="exa mple"):
        async with bench.open(name, bench.spec(network=Network.ALLOWLIST, allow=("exa mple",))):
            pass


@hard_place
async def test_full_network_is_the_hosts_or_the_engines(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(network=Network.FULL)) as session:
        routes = await session.exec(ExecRequest(argv=("cat", "/proc/net/route"), timeout_s=10))
        assert len(routes.stdout.splitlines()) > 1
