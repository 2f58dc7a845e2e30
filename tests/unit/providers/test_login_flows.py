"""The parts of a login: who may call back, what may be pasted, where one logs in, what a token says of itself."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbles.config.load import load_settings
from bubbles.config.schema import Settings
from bubbles.errors import ConfigError
from bubbles.providers.logins import callback
from bubbles.providers.logins.callback import RefusedReturnError, callback_server
from bubbles.providers.logins.claims import claims, lifetime, text_of
from bubbles.providers.logins.codex import CodexVendor, Grant, read_pasted
from bubbles.providers.logins.contract import LoginError
from bubbles.providers.logins.copilot import CopilotVendor
from bubbles.providers.logins.issuers import CodexIssuer, CopilotIssuer, codex_issuer, copilot_issuer
from bubbles.providers.logins.web import Web
from bubbles.providers.registry import REGISTRY, Kind
from tests.login_server import LoginServer, failing, logins_served

pytestmark = pytest.mark.req("PROV-03", "SEC-03")

STATE = "s" * 43
NOW = datetime(2026, 12, 1, tzinfo=UTC)


async def sent(port: int, data: bytes) -> bytes:
    """What comes back for these bytes, until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def request(port: int, query: str = f"code=c1&state={STATE}", host: str | None = None) -> bytes:
    return f"GET /auth/callback?{query} HTTP/1.1\r\nHost: {host or f'localhost:{port}'}\r\n\r\n".encode()


def port_of(server: callback.CallbackServer) -> int:
    return int(server.redirect_uri.split(":")[2].split("/")[0])


async def test_one_callback_is_taken_and_the_next_changes_nothing() -> None:
    async with callback_server((0,), STATE) as server:
        assert server
        port = port_of(server)
        assert b" 200 OK" in await sent(port, request(port))
        assert b" 410 Gone" in await sent(port, request(port, f"code=c2&state={STATE}"))
        assert (await server.returned()).code == "c1"
    with pytest.raises(ConnectionRefusedError):
        await sent(port, request(port))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /auth/callback HTTP/1.1\r\n\r\n", b"403"),
        (b"GET /auth/callback HTTP/1.1\r\nHost: localhost:PORT\r\nHost: evil\r\n\r\n", b"400"),
        (b"GET /auth/callback HTTP/1.1\r\nHost : localhost:PORT\r\n\r\n", b"400"),
        (b"GET http://localhost:PORT/auth/callback HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", b"400"),
        (b"GET /favicon.ico HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", b"404"),
        (b"GET /auth/callback?code=a&code=b&state=STATE HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", b"400"),
        (b"GET /auth/callback?code=&state=STATE HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", b"400"),
        (b"GET /auth/callback?code=%0d%0a&state=STATE HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", b"400"),
        (
            b"GET /auth/callback?" + b"a=1&" * 50 + b"code=a&state=STATE HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n",
            b"400",
        ),
    ],
)
async def test_what_is_no_callback_of_this_login_is_turned_away(data: bytes, status: bytes) -> None:
    async with callback_server((0,), STATE) as server:
        assert server
        port = port_of(server)
        answer = await sent(port, data.replace(b"PORT", str(port).encode()).replace(b"STATE", STATE.encode()))
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"Referrer-Policy: no-referrer" in answer
        assert b" 200 OK" in await sent(port, request(port))


async def test_who_is_slow_or_talkative_or_many_is_let_go_and_the_browser_still_comes_through() -> None:
    async with callback_server((0,), STATE) as server, AsyncExitStack() as stack:
        assert server
        port = port_of(server)
        assert await sent(port, b"GET /" + b"a" * 2 * callback.MAX_HEAD_BYTES) == b""
        for _ in range(callback.MAX_AT_ONCE - 1):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET ")
        assert b" 200 OK" in await sent(port, request(port))
        async with asyncio.timeout(5):
            assert (await server.returned()).code == "c1"


async def test_the_next_port_is_taken_when_one_is_busy_and_none_if_all_are() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        async with callback_server((taken, 0), STATE) as server:
            assert server
            assert port_of(server) != taken
        async with callback_server((taken,), STATE) as none:
            assert none is None


class Nobody:
    """A person who does nothing but what the test says."""

    def __init__(self, *lines: str, stays: bool = True) -> None:
        self._lines = lines
        self._stays = stays
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def opened(self, url: str) -> bool:
        return False

    async def pasted(self) -> AsyncGenerator[str, None]:
        for line in self._lines:
            yield line
        if self._stays:
            await asyncio.Event().wait()

    def code(self, url: str, code: str) -> None:
        self.said.append(f"{url} {code}")


async def test_a_login_that_nobody_makes_ends_by_itself() -> None:
    async with logins_served() as server, Web({}) as web:
        vendor = CodexVendor(CodexIssuer(origin=server.url, ports=(0,)))
        with pytest.raises(LoginError, match="nobody logged in within"):
            await vendor.log_in(web, Nobody(), NOW, limit_s=0.05)
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            vendor = CodexVendor(CodexIssuer(origin=server.url, ports=(busy.getsockname()[1],)))
            alone = Nobody(stays=False)
            with pytest.raises(LoginError, match="no address was pasted"):
                await vendor.log_in(web, alone, NOW, limit_s=5)
            assert "No port for the browser to come back to is free" in alone.said[1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"http://localhost:1455/auth/callback?code=ac_1&scope=openid+profile&state={STATE}", "ac_1"),
        (f" <http://localhost:1455/auth/callback?code=ac_1&state={STATE}#top>\n", "ac_1"),
        (f"code=ac_1&state={STATE}", "ac_1"),
        ("ac_1", "ac_1"),
    ],
)
def test_the_whole_address_or_the_code_alone_may_be_pasted(text: str, code: str) -> None:
    assert read_pasted(text, STATE).code == code


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:1455/auth/callback",
        "http://localhost:1455/auth/callback?code=ac_1",
        "http://localhost:1455/auth/callback?code=ac_1&state=other",
        "two words",
        "x" * 5_000,
        "?" + "x" * 50_000,
        "ключ",
    ],
)
def test_what_is_pasted_by_mistake_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(RefusedReturnError) as told:
        read_pasted(text, STATE)
    assert "ac_1" not in str(told.value)


def test_each_login_has_secrets_of_its_own_and_shows_none() -> None:
    one, other = Grant.new(), Grant.new()
    assert {one.verifier, one.state} & {other.verifier, other.state} == set()
    assert 43 <= len(one.verifier) <= 128
    assert one.verifier not in repr(one)
    rfc = Grant(verifier="dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", state="")
    assert rfc.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # RFC 7636, appendix B


def settings(tmp_path: Path, **env: str) -> Settings:
    return load_settings({"HOME": str(tmp_path), **env})


@pytest.mark.parametrize(
    ("url", "rest", "api"),
    [
        (None, "https://api.github.com", "https://api.githubcopilot.com"),
        ("https://GitHub.com/", "https://api.github.com", "https://api.githubcopilot.com"),
        ("https://acme.ghe.com", "https://api.acme.ghe.com", "https://copilot-api.acme.ghe.com"),
        ("https://git.acme.example", "https://git.acme.example/api/v3", ""),
        ("https://evil.ghe.com.example", "https://evil.ghe.com.example/api/v3", ""),
    ],
)
def test_a_github_enterprise_has_its_own_addresses(tmp_path: Path, url: str | None, rest: str, api: str) -> None:
    env = {} if url is None else {"BUBBLES_PROVIDERS__GITHUB_COPILOT__LOGIN_URL": url}
    issuer = copilot_issuer(settings(tmp_path, **env))
    assert (issuer.rest_url, issuer.api) == (rest, api)


def test_openai_gets_the_ports_that_it_knows_and_no_other(tmp_path: Path) -> None:
    assert codex_issuer(settings(tmp_path)).ports == (1455, 1457)
    assert codex_issuer(settings(tmp_path)).token_url == "https://auth.openai.com/oauth/token"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://auth.example.org", "must begin with https://"),
        ("http://127.0.0.1.evil.example", "must begin with https://"),
        ("https://me:pass@auth.example.org", "must be an address alone"),
        ("https://auth.example.org?x=1", "must be an address alone"),
    ],
)
def test_a_login_url_that_tokens_must_not_go_to_is_an_error(tmp_path: Path, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"providers.openai_codex.loginUrl {said}"):
        codex_issuer(settings(tmp_path, BUBBLES_PROVIDERS__OPENAI_CODEX__LOGIN_URL=url))


def test_every_provider_by_login_has_a_way_to_log_in() -> None:
    from bubbles.cli.provider import MODELS
    from bubbles.providers.logins.issuers import NAMES

    assert [entry.name for entry in REGISTRY.values() if entry.kind is Kind.LOGIN] == list(NAMES) == list(MODELS)


def token(found: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(found).encode()).rstrip(b'=').decode()}.x"


def test_a_token_says_who_it_is_for_and_how_long() -> None:
    made = token({"a": {"b": "c", "d": 1}, "iat": 100, "exp": 160})
    assert text_of(claims(made), "a", "b") == "c"
    assert text_of(claims(made), "a", "d") == text_of(claims(made), "a", "b", "c") == text_of(claims(made), "x") == ""
    assert lifetime(claims(made)) == timedelta(seconds=60)


@pytest.mark.parametrize(
    "odd", ["", "a.b", "a.b.c", "a.!!.c", token([1]), token("x"), "x" * 20_000, "a." + "W" * 9_000 + ".c"]
)
def test_what_is_no_token_says_nothing(odd: str) -> None:
    assert claims(odd) == {}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"iat": 1},
        {"iat": "1", "exp": "2"},
        {"iat": 2, "exp": 1},
        {"iat": True, "exp": 5},
        {"iat": 0, "exp": 10**400},
        {"iat": 0, "exp": float("nan")},
        {"iat": 0, "exp": float("inf")},
    ],
)
def test_an_odd_lifetime_counts_as_unknown(odd: Mapping[str, Any]) -> None:
    assert lifetime(odd) is None


async def github(server: LoginServer, waits: list[float], viewer: Nobody) -> None:
    clock = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        waits.append(seconds)

    server.now = lambda: clock
    issuer = CopilotIssuer(origin=server.url, rest_url=f"{server.url}/api/v3", api="")
    async with Web({}) as web:
        await CopilotVendor(issuer, sleep=sleep).log_in(web, viewer, NOW)


async def test_github_is_asked_as_slowly_as_it_says() -> None:
    waits: list[float] = []
    async with logins_served() as server:
        server.does.interval_s, server.does.slow_downs = 5.0, 2
        server.does.before["/login/oauth/access_token"] = [
            failing(200, '{"error": "authorization_pending"}'),
            failing(200, '{"error": "slow_down"}'),
            failing(502),
        ]
        await github(server, waits, Nobody())
        server.check()
    assert waits == [5.0, 5.0, 10.0, 20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"error": "device_flow_disabled"}', "it says device_flow_disabled"),
        (
            '{"device_code": "d", "user_code": "U", "verification_uri": "https://evil.example/x"}',
            "one for another server",
        ),
        ('{"device_code": "d", "user_code": "U\\u001b[2J", "verification_uri": "URL/login/device"}', "has no code"),
        ('{"device_code": "a b", "user_code": "U", "verification_uri": "URL/login/device"}', "is no token"),
        ("{}", "has no code"),
        ("<html>", "has no code"),
    ],
)
async def test_a_code_that_cannot_be_right_is_not_shown(answer: str, said: str) -> None:
    viewer = Nobody()
    async with logins_served() as server:
        server.does.before["/login/device/code"] = [failing(200, answer.replace("URL", server.url))]
        with pytest.raises(LoginError, match=said):
            await github(server, [], viewer)
    assert viewer.said == []
