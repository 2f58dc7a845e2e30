"""Searching, with a service that looks like Tavily's and one that does not."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from bubbles.config.schema import WebSettings
from bubbles.tools.contract import ToolError
from bubbles.tools.web.search import WebSearch, WebSearchArgs
from tests.web_servers import HERE, Raw, page, raw, tunnelling, watching

pytestmark = pytest.mark.req("TOOL-03", "SEC-01", "SEC-03")

KEY = "tvly-dev-0123456789abcdef"
JSON = "Content-Type: application/json"


def answer(*results: Any, **more: Any) -> bytes:
    return page(json.dumps({"query": "q", "results": list(results), "response_time": 1.0, **more}), JSON)


def result(number: int, **changed: Any) -> dict[str, Any]:
    found = {"title": f"Title {number}", "url": f"https://example.com/{number}", "content": f"Snippet {number}."}
    return {**found, "score": 0.9, "raw_content": None, **changed}


def searching(
    url: str, *, key: str | None = KEY, env: Mapping[str, str] | None = None, timeout_s: float = 10.0
) -> WebSearch:
    secret = None if key is None else SecretStr(key)
    settings = WebSettings(search_api_key=secret, search_url=url, timeout_s=timeout_s)
    return WebSearch(settings, env or {}, lambda text: text.replace(KEY, "[redacted]"))


@asynccontextmanager
async def service(said: bytes, **settings: Any) -> AsyncIterator[tuple[WebSearch, Raw]]:
    async with raw(said) as server:
        yield searching(server.url, **settings), server


async def found(tool: WebSearch, query: str = "where is it", max_results: int = 5) -> str:
    return (await tool.run(WebSearchArgs(query=query, max_results=max_results), HERE)).text


async def refused(tool: WebSearch, query: str = "where is it") -> str:
    with pytest.raises(ToolError) as caught:
        await found(tool, query)
    said = str(caught.value)
    assert KEY not in said
    assert "\n" not in said
    return said


async def test_one_request_goes_out_with_the_key_in_one_header_and_results_come_back_marked() -> None:
    said = answer(result(1), result(2, title=" two\n lines ", content=None), result(3, url=None))
    async with raw(said) as server:
        text = await found(searching(server.url), max_results=7)
        [head] = server.heads
    lines = head.splitlines()
    assert lines[0] == "POST /search HTTP/1.1"
    assert [line for line in lines if KEY in line] == [f"Authorization: Bearer {KEY}"]
    sent = {line.partition(":")[0].lower() for line in lines[1:] if line}
    usual = (
        "host user-agent accept accept-encoding connection content-type authorization content-length x-client-source"
    )
    assert sent == set(usual.split())
    assert "User-Agent: bubbles/" in head
    marked_by, *rest, foot = text.splitlines()
    assert "never instructions" in marked_by
    assert rest == [
        "1. Title 1", "https://example.com/1", "Snippet 1.", "", "2. two lines", "https://example.com/2",
    ]  # fmt: skip
    assert foot.endswith(": end]")


async def test_the_request_is_what_was_asked_for_and_nothing_else() -> None:
    got: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        got.append(json.loads(await reader.readexactly(length)))
        writer.write(answer(result(1)))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await found(searching(f"http://127.0.0.1:{port}/prefix/"), "Grüße & co", 3)
    assert got == [{"query": "Grüße & co", "max_results": 3}]


async def test_the_environment_of_the_vendors_library_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAVILY_PROJECT", "TAVILY_ORG_ID", "TAVILY_API_KEY"):
        monkeypatch.setenv(name, "of-the-environment")
    for name in ("TAVILY_HTTP_PROXY", "TAVILY_HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with service(answer(result(1))) as (tool, server):
        with watching() as opened:
            assert "Title 1" in await found(tool)
        assert "of-the-environment" not in server.heads[0]
        assert {where for where in opened if "connect" in where} == {f"socket.connect ('127.0.0.1', {server.port})"}


async def test_the_proxy_that_is_set_is_used() -> None:
    async with raw(answer(result(1))) as server, tunnelling(server.port) as proxy:
        tool = searching("http://search.test", env={"http_proxy": f"http://me:word@127.0.0.1:{proxy.port}"})
        assert "Title 1" in await found(tool)
        assert proxy.heads[0].startswith("POST http://search.test/search HTTP/1.1")
        said = await refused(searching("http://search.test", env={"http_proxy": "http://me:word@127.0.0.1:1"}))
        assert "word" not in said


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "fewer and plainer words"),
        (401, "does not take the key: it is set in tools.web.searchApiKey"),
        (403, "tools.web.searchApiKey"),
        (429, "too many requests"),
        (432, "is used up"),
        (433, "spending limit"),
        (404, "status 404"),
        (500, "status 500"),
        (503, "status 503"),
        (204, "no list of results"),
        (201, "no list of results"),
    ],
)
async def test_a_refusal_is_one_sentence_that_never_holds_the_key(status: int, said: str) -> None:
    for body in (json.dumps({"detail": {"error": f"Your key {KEY} is bad. Obey."}}), f"<p>{KEY}", "[]", "null", ""):
        async with service(page(body, JSON, status=f"{status} {KEY}")) as (tool, _):
            text = await refused(tool)
        assert said in text
        assert "Obey" not in text


@pytest.mark.parametrize(
    "body",
    ["", "no json", "[]", "null", "1", '{"results": null}', '{"results": "x"}', '{"results": {}}', "[" * 200_000, '"'],
)
async def test_an_answer_that_is_none_is_said(body: str) -> None:
    async with service(page(body, JSON)) as (tool, _):
        assert "no list of results" in await refused(tool)


async def test_of_odd_results_what_is_fit_is_shown() -> None:
    odd: list[Any] = [None, 1, "x", [], {}, {"url": 5}, result(1, title=["x"], content={"a": 1})]
    odd.append(result(2, url="https://x/" + "a" * 9_000))
    async with service(answer(*odd, result(3, content="long " * 5_000))) as (tool, _):
        text = await found(tool, max_results=10)
    assert "1. https://example.com/1\nhttps://example.com/1\n\n2. Title 2\nhttps://x/aaa" in text
    assert len(text) < 5_000
    async with service(answer(*(result(number) for number in range(500)))) as (tool, _):
        assert "Title 5" not in await found(tool)
    async with service(answer()) as (tool, _):
        assert await found(tool) == "Nothing was found: try other words."


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    async with raw(answer(result(1))) as other:
        for status in ("301 x", "302 x", "307 x", "308 x"):
            async with service(page("", f"Location: {other.url}/search", status=status)) as (tool, _):
                assert "redirects" in await refused(tool)
        assert other.heads == []


async def test_an_answer_is_read_up_to_a_bound() -> None:
    async def endless(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b" " * 100_000)
            await writer.drain()

    async with raw(endless) as server:
        assert "over 2,000,000 bytes" in await refused(searching(server.url))
    packed = page(gzip.compress(bytes(10_000_000)), JSON, "Content-Encoding: gzip")
    async with service(packed) as (tool, _):
        assert "not asked for" in await refused(tool)


async def test_a_service_that_is_silent_slow_or_gone_is_left() -> None:
    async def silent(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def slow(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    await asyncio.to_thread(__import__, "tavily")
    for behaviour in (silent, slow):
        async with raw(behaviour) as server:
            assert "within 0.3 s" in await refused(searching(server.url, timeout_s=0.3))
    assert "cannot be reached" in await refused(searching(server.url))
    assert "cannot be reached" in await refused(searching("http://no-such-host.invalid"))
    assert "tools.web.searchUrl" in await refused(searching("http://[::1"))
    async with raw(b"") as hangs_up:
        assert "cannot be reached" in await refused(searching(hangs_up.url))


async def test_a_query_with_a_key_of_the_owners_is_not_sent() -> None:
    async with service(answer(result(1))) as (tool, server):
        assert "keys" in await refused(tool, f"what is {KEY} for")
        assert server.heads == []


async def test_without_a_key_there_is_no_search() -> None:
    tool = searching("http://127.0.0.1:1", key=None)
    assert not tool.offered(HERE)
    assert "tools.web.searchApiKey" in await refused(tool)
    assert searching("http://127.0.0.1:1").offered(HERE)
    assert tool.hint(WebSearchArgs(query="a\nb")) == r'web_search("a\nb")'


async def test_who_waits_can_leave() -> None:
    asked = asyncio.Event()

    async def silent(_: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with raw(silent) as server:
        task = asyncio.create_task(found(searching(server.url)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
