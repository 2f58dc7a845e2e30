"""MCP servers over streamable HTTP: a real one, and one that does what no server should (TOOL-09)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bubbles.config.schema import McpServerSettings
from bubbles.mcp.contract import McpError, ServerState
from tests.mcp_playground.hostile_http import hostile_http
from tests.mcp_playground.scene import Scene, Tools, a_scene, real_over_http
from tests.processes import comes_true
from tests.web_servers import make_certificate, page, raw

KEY = "a-key-of-the-owner-0123456789"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as scene:
        yield scene


def at(url: str, **more: Any) -> McpServerSettings:
    return McpServerSettings(url=url, **{"start_timeout_s": 10.0, "call_timeout_s": 10.0, **more})


def free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.req("TOOL-09")
@pytest.mark.parametrize("answers", ["sse", "json"])
@pytest.mark.blocking  # the test waits for its own server
async def test_a_server_made_with_the_sdk_does_over_http_what_it_does_over_stdio(scene: Scene, answers: str) -> None:
    with real_over_http(answers, key=KEY) as (url, _):
        async with scene.tools(at(url, headers={"X-Key": KEY})) as tools:
            assert (tools.info.state, tools.info.kind) == (ServerState.READY, "http")
            assert await tools.text("echo", text="hello ü") == "hello ü"
            assert json.loads(await tools.text("weather", city="Rome")) == {"city": "Rome", "degrees": 21.5}
            assert (await tools.answer("picture")).images[0].media_type == "image/png"
            assert (await tools.answer("fail", text="luck")).is_error
            assert len(await tools.text("large")) == 300_000
            slow = asyncio.create_task(tools.text("slow", name="first"))
            await tools.text("echo", text="meanwhile")
            slow.cancel()
            await asyncio.wait({slow})
            assert await tools.text("given") == "first"
            await tools.text("grow")
            assert await comes_true(lambda: "grown" in tools.names)


@pytest.mark.blocking  # the test waits for its own servers
async def test_a_server_that_was_started_anew_answers_the_next_call(scene: Scene) -> None:
    port = await asyncio.to_thread(free_port)
    with real_over_http(port=port) as (url, process):
        async with scene.servers(one=at(url)) as servers:
            tools = Tools(servers)
            await tools.settled()
            assert await tools.text("echo", text="one") == "one"
            process.kill()
            process.wait()
            with real_over_http(port=port):
                deadline = time.monotonic() + 5
                while time.monotonic() < deadline:
                    try:
                        assert await tools.text("echo", text="two") == "two"
                        break
                    except McpError:
                        continue
                else:
                    pytest.fail("it did not come back")


@pytest.mark.req("TOOL-09")
async def test_a_port_where_nobody_is_costs_that_server_only(scene: Scene) -> None:
    """B078."""
    port = await asyncio.to_thread(free_port)
    async with scene.tools(at(f"http://127.0.0.1:{port}/mcp")) as tools:
        assert tools.info.state is ServerState.WAITING
        assert tools.info.problem == "no connection can be made: Connection refused"
    async with scene.tools(at("http://no-such-host.invalid/mcp")) as tools:
        assert "no connection can be made" in tools.info.problem


@pytest.mark.req("SEC-03")
@pytest.mark.blocking  # the test waits for its own server
async def test_a_wrong_key_is_said_and_not_shown(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with real_over_http(key="another") as (url, _):
        login = url.replace("http://", f"http://me:{KEY}@")
        settings = at(f"{login}?token={KEY}", headers={"X-Key": KEY})
        async with scene.tools(settings) as tools:
            assert "HTTP status 401" in tools.info.problem
            shown = repr((tools.info, settings))
    kept = await asyncio.to_thread((scene.data_dir / "mcp" / "one.json").read_text)
    assert KEY not in shown + kept + caplog.text


@pytest.mark.req("SEC-03")
async def test_a_login_in_the_address_is_sent_as_one_and_nothing_else_is(scene: Scene) -> None:
    login = "http://me:pass%20word@"
    async with hostile_http() as server, scene.tools(at(server.url.replace("http://", login))) as tools:
        assert await tools.text("echo") == "hello"
    for _, headers in server.seen:
        assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:pass word"
        assert "Cookie" not in headers
        assert headers["Accept-Encoding"] == "identity"


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("where", ["another", "same"])
async def test_a_redirect_is_not_followed_and_no_header_goes_there(scene: Scene, where: str) -> None:
    async with hostile_http() as other, hostile_http("redirect") as server:
        server.elsewhere = other.url if where == "another" else "/mcp/"
        async with scene.tools(at(server.url, headers={"X-Key": KEY})) as tools:
            assert "it redirects to another address, which is not followed" in tools.info.problem
        assert not other.seen
        assert len(server.seen) == 1


async def test_the_proxy_of_the_environment_is_asked(scene: Scene) -> None:
    async with hostile_http() as proxy:
        scene.env = {"http_proxy": proxy.url.removesuffix("/mcp"), "no_proxy": "other.example"}
        async with scene.tools(at("http://mcp.example/mcp")) as tools:
            assert await tools.text("echo") == "hello"
        assert {headers["Host"] for _, headers in proxy.seen} == {"mcp.example"}


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("error", "Server returned an error response"),
        ("refuse", "answered with an error: no"),
        ("type", "Unexpected content type"),
        ("accepted", "202 Accepted"),
        ("packed", "answered with an error"),
        ("large", "larger than 16 MiB"),
        ("crowd", "of too many parts"),
        ("comments", "it sends events without end"),
        ("large-event", "SSE stream failed|exceeded"),
        ("half", "ended without a response|went away"),
        ("silent", "did not answer within 1 s"),
        ("slow-body", "did not answer within 1 s"),
        ("flood", "it says too much unasked"),
    ],
)
async def test_an_answer_that_is_none_costs_that_call(scene: Scene, do: str, said: str) -> None:
    within_s = 1 if "within" in said else 15
    async with hostile_http() as server, scene.tools(at(server.url, call_timeout_s=within_s)) as tools:
        with pytest.raises(McpError, match=said):
            await tools.answer("echo", do=do)
        assert await tools.text("echo") == "hello"


async def test_a_server_that_forgot_us_is_met_again_and_the_call_is_made(scene: Scene) -> None:
    async with hostile_http() as server, scene.tools(at(server.url)) as tools:
        server.session = "s2"
        assert await tools.text("echo") == "hello"


async def test_a_server_that_takes_connections_and_says_nothing_hangs_nobody(scene: Scene) -> None:
    async with hostile_http("hang") as server, scene.tools(at(server.url, start_timeout_s=0.5)) as tools:
        assert "it did not say within 0.5 s" in tools.info.problem


@pytest.mark.slow
async def test_a_server_that_never_takes_a_notice_does_not_hold_up_calls_for_long(scene: Scene) -> None:
    async with hostile_http("slow-notices") as server, scene.tools(at(server.url)) as tools:
        assert await tools.text("echo") == "hello"


async def test_the_server_does_not_choose_how_often_it_is_asked(scene: Scene) -> None:
    """It ends the stream of what it says by itself at once, with ``retry: 0``."""
    async with hostile_http() as server, scene.tools(at(server.url)) as tools:
        assert await tools.text("echo") == "hello"
        await asyncio.sleep(0.5)
        assert sum(method == "GET" for method, _ in server.seen) == 1


async def test_a_server_that_says_nothing_without_end_is_disconnected(scene: Scene) -> None:
    """Comments are no messages, and take a processor all the same."""
    async with hostile_http("comments") as server, scene.tools(at(server.url)) as tools:
        assert await comes_true(lambda: tools.info.state is ServerState.WAITING)
        assert tools.info.problem == "it sends events without end"


@pytest.mark.parametrize("mode", ["plain", "hang"])
async def test_leaving_takes_no_longer_than_for_a_program(scene: Scene, mode: str) -> None:
    """It never answers the farewell."""
    async with hostile_http(mode) as server:
        async with scene.servers(one=at(server.url)) as servers:
            await Tools(servers).settled(0.5 if mode == "hang" else 10)
            began = time.monotonic()
        assert time.monotonic() - began < 2


@pytest.mark.req("SEC-03")
async def test_a_certificate_that_nobody_vouches_for_is_refused(scene: Scene, tmp_path: Path) -> None:
    certificate = await asyncio.to_thread(make_certificate, tmp_path / "certificate.pem", "127.0.0.1")
    async with raw(page("{}"), certificate) as server:
        url = server.url.replace("http://", "https://")
        async with scene.tools(at(url, headers={"X-Key": KEY})) as tools:
            assert "certificate verify failed" in tools.info.problem
