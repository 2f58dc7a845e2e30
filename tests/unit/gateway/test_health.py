"""The gateway tells how it is: to programs of this machine, and to nobody's browser."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from bubbles.channels.access import Refusal
from bubbles.config.load import load_settings
from bubbles.config.schema import Settings
from bubbles.errors import BubblesError, ConfigError
from bubbles.gateway.health import MAX_AT_ONCE, ChannelHealth, Health, Readiness
from bubbles.gateway.listening import is_loopback, listening_on, refuse_open
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.turned_away import Visitor

pytestmark = pytest.mark.req("OPS-02")

TOKEN = "tulips-at-noon-0123456789abcdefghi"
UP = ChannelHealth(name="telegram", phase="up", up=True, who="@bubbles_bot", since=1_900_000_000.0)
DOWN = ChannelHealth(
    name="fake",
    phase="off",
    up=False,
    why="channels.fake.token is not known to the platform.",
    since=1_900_000_000.0,
    restarts=4,
    turned_away=(Visitor(id="4711", name="Eve", at=1_900_000_060.0, why=Refusal.STRANGER),),
)
READY = Readiness(ready=True, channels=(UP,), jobs=2, waiting=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    status: int
    headers: dict[str, str]
    body: str


def own_place() -> tuple[str, int]:
    """An address of this machine that nothing else in the tests uses, and a port that is free there."""
    host = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
    with socket.socket() as found:
        found.bind((host, 0))
        return host, int(found.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    host: str
    port: int
    health: Health

    async def send(self, data: bytes) -> Said:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(8):
                head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Said(status=int(first.split()[1]), headers=headers, body=body)

    async def ask(self, path: str, *, method: str = "GET", host: str | None = None, **headers: str) -> Said:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'{self.host}:{self.port}'}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join((*lines, "", "")).encode())


@asynccontextmanager
async def serving(
    look: Callable[[], Readiness] = lambda: READY,
    *,
    token: str | None = None,
    metrics: Metrics | None = None,
    patience_s: float = 5.0,
) -> AsyncIterator[Served]:
    host, port = own_place()
    async with Health(host, port, token, look, metrics or Metrics(), patience_s) as health:
        assert health.url == f"http://{host}:{port}"
        yield Served(host=host, port=port, health=health)


async def test_it_lives_as_long_as_it_answers() -> None:
    async with serving() as served:
        said = await served.ask("/healthz")
        assert (said.status, said.body) == (200, "ok\n")
        assert (await served.ask("/healthz?probe=1")).status == 200
        head = await served.ask("/healthz", method="HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, "", "3")
    with pytest.raises(ConnectionRefusedError):
        await served.ask("/healthz")


async def test_it_is_ready_once_all_is_up_and_says_else_what_is_not() -> None:
    now = READY
    async with serving(lambda: now) as served:
        said = await served.ask("/readyz")
        assert (said.status, said.headers["content-type"]) == (200, "application/json")
        found = json.loads(said.body)
        assert found["ready"] is True
        assert (found["jobs"], found["waiting"]) == ({"count": 2, "problems": []}, 1)
        assert found["uptime_s"] >= 0
        assert "version" in found
        now = Readiness(ready=False, why="fake is off.", channels=(UP, DOWN), job_problems=("line 3",))
        said = await served.ask("/readyz")
        found = json.loads(said.body)
        assert (said.status, found["ready"], found["why"]) == (503, False, "fake is off.")
        assert found["channels"][0]["who"] == "@bubbles_bot"
        assert found["channels"][1] == {
            "name": "fake",
            "phase": "off",
            "up": False,
            "who": None,
            "why": "channels.fake.token is not known to the platform.",
            "since": "2030-03-17T17:46:40+00:00",
            "restarts": 4,
            "turned_away": [{"id": "4711", "name": "Eve", "at": "2030-03-17T17:47:40+00:00", "why": "stranger"}],
        }
        assert found["jobs"]["problems"] == ["line 3"]


async def test_prometheus_gets_counts_and_what_the_process_takes() -> None:
    metrics = Metrics()
    metrics.count("bubbles_messages_total", channel="telegram")
    ready = Readiness(ready=False, channels=(UP, DOWN), waiting=3)
    async with serving(lambda: ready, metrics=metrics) as served:
        said = await served.ask("/metrics")
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = said.body.splitlines()
    assert 'bubbles_messages_total{channel="telegram"} 1' in lines
    assert {'bubbles_channel_up{channel="telegram"} 1', 'bubbles_channel_up{channel="fake"} 0'} <= set(lines)
    assert {"bubbles_messages_waiting 3", "bubbles_ready 0"} <= set(lines)
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert any(line.startswith("bubbles_uptime_seconds ") for line in lines)


async def test_other_paths_methods_and_bodies_are_refused() -> None:
    async with serving() as served:
        assert (await served.ask("/")).status == 404
        assert (await served.ask("/healthz/..")).status == 404
        posted = await served.ask("/healthz", method="POST")
        assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
        assert (await served.ask("/healthz", Content_Length="1")).status == 400
        assert (await served.ask("/healthz", Transfer_Encoding="chunked")).status == 400
        assert (await served.ask("/healthz", Content_Length="0")).status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 100_000, 431),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_proper_request_gets_a_status(data: bytes, status: int) -> None:
    async with serving() as served:
        assert (await served.send(data)).status == status
        assert (await served.ask("/healthz")).status == 200


@pytest.mark.req("SEC-02")
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:18790", "127.0.0.1.evil.example", "10.0.0.5:18790", "[fe80::1]", ":1", ""]
)
async def test_a_name_that_was_rebound_to_this_machine_gets_nothing(host: str) -> None:
    async with serving() as served:
        said = await served.ask("/readyz", host=host or " ")
        assert said.status == 403
        assert "telegram" not in said.body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:18790", "127.0.0.1:1", "[::1]:18790", "[::1]"])
async def test_every_name_of_this_machine_is_right(host: str) -> None:
    async with serving() as served:
        assert (await served.ask("/healthz", host=host)).status == 200


@pytest.mark.req("SEC-02")
async def test_no_page_of_a_browser_gets_anything() -> None:
    async with serving() as served:
        assert (await served.ask("/readyz", Origin="https://evil.example")).status == 403
        assert (await served.ask("/readyz", Origin="null")).status == 403
        assert (await served.ask("/readyz", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")).status == 403
        assert (await served.ask("/readyz", Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate")).status == 200


@pytest.mark.req("SEC-02")
async def test_with_a_token_nobody_else_gets_anything() -> None:
    async with serving(token=TOKEN) as served:
        for given in (
            None,
            "",
            TOKEN,
            f"Basic {TOKEN}",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}x",
            "Bearer",
            "Bearer ä",
        ):
            said = await served.ask("/healthz", **({} if given is None else {"Authorization": given}))
            assert said.status == 401, given
            assert said.headers["www-authenticate"].startswith("Bearer")
        assert (await served.ask("/healthz", Authorization=f"bearer {TOKEN}")).status == 200
        assert (await served.ask("/nowhere")).status == 401


async def test_whoever_is_slow_is_left_and_hinders_nobody() -> None:
    async with serving(patience_s=0.2) as served:
        assert (await served.send(b"GET /healthz HTTP/1.1\r\nHost: ")).status == 408
        _, writer = await asyncio.open_connection(served.host, served.port)
        writer.close()  # says nothing, and goes
        assert (await served.ask("/healthz")).status == 200


async def test_too_many_at_once_are_turned_away_until_others_have_gone() -> None:
    async with serving() as served, AsyncExitStack() as stack:
        silent = [await asyncio.open_connection(served.host, served.port) for _ in range(MAX_AT_ONCE)]
        for _, writer in silent:
            stack.callback(writer.close)
        await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(served.host, served.port)
        stack.callback(writer.close)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        silent[0][1].close()
        await silent[0][1].wait_closed()
        async with asyncio.timeout(5):
            while True:
                try:
                    assert (await served.ask("/healthz")).status == 200
                    break
                except (OSError, IndexError):  # the place of the one that left is not free yet
                    await asyncio.sleep(0.01)


async def test_leaving_waits_for_nobody_who_is_still_connected() -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"GET /healthz")
        assert (await served.ask("/healthz")).status == 200
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_a_look_that_breaks_costs_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    broken = True

    def look() -> Readiness:
        if broken:
            raise RuntimeError("no")
        return READY

    async with serving(look) as served:
        assert (await served.ask("/readyz")).status == 500
        broken = False
        assert (await served.ask("/readyz")).status == 200
    assert "how the gateway is broke off" in caplog.text


async def test_port_zero_listens_nowhere() -> None:
    async with Health("127.0.0.1", 0, None, lambda: READY, Metrics()) as health:
        assert health.url is None


async def test_a_port_in_use_is_a_sentence_and_leaves_nothing_open() -> None:
    async with serving() as served:
        with pytest.raises(BubblesError, match=rf"gateway\.port {served.port} is in use on {served.host}"):
            async with Health(served.host, served.port, None, lambda: READY, Metrics()):
                pass
        assert (await served.ask("/healthz")).status == 200


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "x" * 64, "2001:db8::1"])
async def test_an_address_that_this_machine_has_not_is_a_sentence(host: str) -> None:
    with pytest.raises(BubblesError, match=rf"gateway\.host '{host}' is no address of this machine"):
        await listening_on(host, 18790)


async def test_ipv6_and_the_name_localhost_are_served() -> None:
    sockets = await listening_on("localhost", 0)
    assert {each.getsockname()[0] for each in sockets} <= {"127.0.0.1", "::1"}
    for each in sockets:
        each.close()
    with socket.socket(socket.AF_INET6) as found:
        found.bind(("::1", 0))
        port = int(found.getsockname()[1])
    async with Health("[::1]", port, None, lambda: READY, Metrics()) as health:
        assert health.url == f"http://[::1]:{port}"
        served = Served(host="::1", port=port, health=health)
        assert (await served.ask("/healthz", host=f"[::1]:{port}")).status == 200


def configured(**gateway: object) -> Settings:
    environment = {f"BUBBLES_GATEWAY__{name.upper()}": str(value) for name, value in gateway.items()}
    return load_settings({"HOME": "/nonexistent", **environment})


@pytest.mark.req("SEC-02")
def test_other_machines_need_a_token_and_a_sandbox_that_cannot_read_it() -> None:
    refuse_open(configured(), False)
    refuse_open(configured(host="::1"), False)
    refuse_open(configured(host="0.0.0.0", port=0), False)
    refuse_open(configured(host="0.0.0.0", token=TOKEN), True)
    with pytest.raises(ConfigError, match=r"gateway\.host '0\.0\.0\.0' can be reached .*gateway\.token is not set"):
        refuse_open(configured(host="0.0.0.0"), True)
    with pytest.raises(ConfigError, match=r"the sandbox 'local' could read gateway\.token"):
        refuse_open(configured(host="my-nas.lan", token=TOKEN), False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("localhost.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("localhost.evil.example", False),
        ("127.1", False),
        ("0x7f.1", False),
        ("::ffff:10.0.0.1", False),
        ("192.168.1.2", False),
    ],
)
def test_only_what_surely_is_this_machine_counts_as_it(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
