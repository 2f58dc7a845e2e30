"""The client of OpenAI-compatible servers, over real sockets: what it sends, where, and what it puts up with."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bubbles.errors import ConfigError
from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, ToolMessage, UserMessage
from bubbles.providers.custom_client import CustomProvider
from bubbles.providers.exchange import MAX_REPLY_BYTES
from bubbles.providers.proxies import proxy_of
from tests.playback import SILENCE, Answer, Ending, event, piece, playing, refusal, said, stream

ROOT = Path(__file__).parents[3]
KEY = "sk-invented-0123456789abcdef"
HELLO = ModelRequest(model="m", system="", messages=(UserMessage(text="Hello"),))


async def ask(base_url: str, request: ModelRequest = HELLO, timeout_s: float = 15.0, **more: object) -> ModelReply:
    provider = CustomProvider(base_url=base_url, request_timeout_s=timeout_s, **more)  # type: ignore[arg-type]
    try:
        return await provider.complete(request)
    finally:
        await provider.aclose()


async def failure(base_url: str, **more: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(base_url, **more)  # type: ignore[arg-type]
    assert KEY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/deployments/x?api-version=2025-01-01", "/deployments/x/chat/completions?api-version=2025-01-01"),
    ],
)
async def test_an_address_may_be_written_as_people_write_it(path: str, target: str) -> None:
    async with playing(said("Yes.")) as server:
        await ask(server.url + path)
    assert server.requests[0].target == target


@pytest.mark.parametrize(
    "url", ["http://", "http://:80/v1", "http://[::1/v1", "http://h:99999", "http://h:x", "nonsense"]
)
def test_an_address_that_is_none_is_refused_with_the_field(url: str) -> None:
    with pytest.raises(ConfigError, match=r"providers\.custom\.baseUrl"):
        CustomProvider(base_url=url)


@pytest.mark.req("PROV-09")
async def test_a_key_is_sent_if_there_is_one_and_extra_headers_win() -> None:
    async with playing(said("Yes.")) as server:
        await ask(server.url)
        await ask(server.url, api_key=KEY, extra_headers={"X-Org": "mine", "user-agent": "me"})
        await ask(server.url, api_key=KEY, extra_headers={"authorization": "Token other", "Content-Length": "3"})
        await ask(server.url.replace("//", "//me:p%40ss@"))
    bare, keyed, other, basic = server.requests
    assert bare.header("Authorization") is None
    assert keyed.header("Authorization") == f"Bearer {KEY}"
    assert (keyed.header("X-Org"), keyed.header("User-Agent")) == ("mine", "me")
    assert other.header("Authorization") == "Token other"
    assert int(other.header("Content-Length") or 0) == len(other.body)
    assert basic.header("Authorization") == "Basic bWU6cEBzcw=="
    assert bare.header("Transfer-Encoding") is None


@pytest.mark.req("SEC-01", "SEC-03")
async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    async with playing(said("Never.")) as other:
        for status in (301, 302, 307, 308):
            redirect = Answer(status=status, headers={"Location": f"{other.url}/v1/chat/completions"})
            async with playing(redirect) as server:
                error = await failure(server.url, api_key=KEY)
            assert (error.category, len(server.requests)) == (Category.REJECTED, 1)
            assert other.url in str(error)
    assert other.connections == 0


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "answer",
    [
        refusal(401, f"Incorrect API key provided: {KEY}"),
        Answer(status=500, chunks=(f"Bearer {KEY}".encode(),)),
        stream({"error": {"message": f"no: {KEY}"}}),
        Answer(status=302, headers={"Location": f"http://127.0.0.1:1/?key={KEY}"}),
        Answer(raw=True, chunks=(f"HTTP/1.1 {KEY} Odd\r\n\r\n".encode(),)),
        Answer(raw=True, chunks=(f"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n{KEY}\r\n".encode(),)),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_a_server_that_repeats_the_key_does_not_bring_it_into_an_error(answer: Answer) -> None:
    async with playing(answer) as server:
        await failure(server.url, api_key=KEY)


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY}\r", f"{KEY}\x00"])
async def test_a_key_that_no_header_can_hold_is_not_sent_and_not_told(key: str) -> None:
    async with playing(said("Never.")) as server:
        error = await failure(server.url, api_key=key)
    assert (error.category, server.requests) == (Category.REJECTED, [])


@pytest.mark.req("SEC-03")
async def test_keys_inside_an_address_are_not_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        await failure(f"http://user:{KEY}@127.0.0.1:{port}/v1?key={KEY}")
        await failure(f"http://127.0.0.1:{port}", proxy=f"http://user:{KEY}@127.0.0.1:{port}")


async def test_a_proxy_is_used_only_if_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret")
    async with playing(said("By proxy.")) as proxy, playing(said("Straight.")) as server:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await ask(server.url)).message.text == "Straight."
        assert server.requests[0].header("Authorization") is None
        assert (await ask("http://vendor.test/v1", proxy=proxy.url)).message.text == "By proxy."
    assert proxy.requests[0].target == "http://vendor.test/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://h.test/v1", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h.test/v1", {"https_proxy": "p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
        ("http://h.test/v1", {"HTTPS_PROXY": "http://p:1"}, None),
        ("http://h.test/v1", {"all_proxy": "http://p:1"}, "http://p:1"),
        ("https://h.test/v1", {"all_proxy": "socks5://p:1"}, None),
        ("https://h.test/v1", {}, None),
        *[
            ("https://a.h.test:8/v1", {"https_proxy": "p", "no_proxy": no}, None)
            for no in ("x, h.test", "*", ".h.test", "*.h.test:8")
        ],
        ("https://a.h.test:8/v1", {"https_proxy": "p", "NO_PROXY": "b.h.test,ah.test,h.test:9,"}, "http://p"),
        *[
            (f"http://{host}/v1", {"http_proxy": "p"}, None)
            for host in ("localhost:11434", "me.localhost", "127.0.0.1", "[::1]:80", "[", "h:99999")
        ],
        *[(f"http://{host}/v1", {"http_proxy": "p"}, "http://p") for host in ("localhost.test", "127.test")],
        ("https://h.test/v1", {"https_proxy": "p", "no_proxy": "h.test:443"}, None),
    ],
)
def test_the_proxy_that_a_person_has_set(url: str, env: Mapping[str, str], proxy: str | None) -> None:
    assert proxy_of(url, env) == proxy


@pytest.mark.req("SEC-03")
def test_what_is_no_address_is_said_without_the_password_in_it() -> None:
    for make in (
        lambda: proxy_of("http://h.test", {"http_proxy": "http://me:pass/word@p:1"}),
        lambda: CustomProvider(base_url="http://me:pass/word@h.test:1"),
    ):
        with pytest.raises(ConfigError, match="is no address") as caught:
            make()
        assert "pass" not in str(caught.value)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    message = {"role": "assistant", "content": "Whole."}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 4}})
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "text/event-stream"}):
        async with playing(
            Answer(headers=headers, chunks=(b"\n \n", body[:30].encode(), body[30:].encode()))
        ) as server:
            reply = await ask(server.url)
        assert (reply.message.text, reply.usage.input_tokens) == ("Whole.", 4)


async def test_a_stream_may_call_itself_anything() -> None:
    for kind in ("application/json", "text/plain", "application/octet-stream"):
        async with playing(Answer(headers={"Content-Type": kind}, chunks=said("Yes.").chunks)) as server:
            assert (await ask(server.url)).message.text == "Yes."


async def test_a_page_for_people_is_no_answer() -> None:
    async with playing(Answer(headers={"Content-Type": "text/html"}, chunks=(b"<html>",))) as server:
        error = await failure(server.url)
    assert error.category is Category.REJECTED
    assert "baseUrl" in str(error)


async def test_a_server_that_does_not_know_stream_options_is_asked_without_them_from_then_on() -> None:
    provider_answers = (refusal(422, "Extra inputs are not permitted: stream_options"), said("Yes."))
    async with playing(*provider_answers) as server:
        provider = CustomProvider(base_url=server.url)
        assert (await provider.complete(HELLO)).message.text == "Yes."
        await provider.complete(HELLO)
        await provider.aclose()
    assert ["stream_options" in request.json for request in server.requests] == [True, False, False]


async def test_two_requests_at_once_find_out_that_a_server_does_not_know_stream_options() -> None:
    said_late = json.dumps({"error": {"message": "Extra inputs are not permitted: stream_options"}}).encode()
    unknown = Answer(status=422, chunks=(b" ", b" ", said_late), every_s=0.1)  # both requests are there before it ends
    async with playing(unknown, unknown, said("Yes.")) as server:
        provider = CustomProvider(base_url=server.url)
        replies = await asyncio.gather(provider.complete(HELLO), provider.complete(HELLO))
        await provider.aclose()
    assert [reply.message.text for reply in replies] == ["Yes.", "Yes."]


async def test_a_reply_is_whole_when_the_reason_for_its_end_has_come() -> None:
    """Some servers then leave the connection open, or drop it."""
    for ending in (Ending.STALL, Ending.CLOSE, Ending.RESET):
        async with playing(stream("Yes.", piece(finish="stop"), done=False, ending=ending)) as server:
            assert (await ask(server.url, timeout_s=1.0)).message.text == "Yes."


@pytest.mark.parametrize("done", [True, False])
async def test_signs_of_life_after_the_end_keep_nobody_waiting(done: bool) -> None:
    chunks = (*stream("Yes.", piece(finish="stop"), done=done).chunks, b": more\n\n")
    async with playing(Answer(chunks=chunks, repeat=True, every_s=0.005)) as server:
        async with asyncio.timeout(9):
            assert (await ask(server.url, timeout_s=15.0 if done else 1.0)).message.text == "Yes."


async def test_what_comes_after_the_end_is_not_read() -> None:
    async with playing(stream("Yes.", b"data: [DONE]\n\n", "No.", b"data: {nonsense\n\n")) as server:
        assert (await ask(server.url)).message.text == "Yes."


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(event(piece("x" * 2**19)), id="text"),
        pytest.param(b"data: " + b"x" * 2**20, id="one line"),
        pytest.param(b'{"choices": [' + b" " * 2**20, id="one object"),
        pytest.param((b": " + b"x" * 1000 + b"\n\n") * 1000, id="comments"),
    ],
)
async def test_a_reply_without_end_is_given_up(chunk: bytes) -> None:
    async with playing(Answer(chunks=(chunk,), repeat=True)) as server:
        error = await failure(server.url)
        assert error.category is Category.UNAVAILABLE
        assert str(MAX_REPLY_BYTES) in str(error) or "longer than" in str(error)
        async with asyncio.timeout(10):
            await server.hung_up.wait()


async def test_an_error_without_end_is_cut_off() -> None:
    async with playing(Answer(status=400, chunks=(b"x" * 2**16,), repeat=True)) as server:
        assert (await failure(server.url)).category is Category.REJECTED


async def test_an_error_whose_words_do_not_come_has_its_status() -> None:
    async with playing(Answer(status=401, chunks=(b'{"error": ',), ending=Ending.STALL)) as server:
        assert (await failure(server.url, timeout_s=1.0)).category is Category.AUTHENTICATION


async def test_signs_of_life_do_not_keep_a_request_for_ever() -> None:
    async with playing(Answer(chunks=(b": keep-alive\n\n",), repeat=True, every_s=0.005)) as server:
        began = time.monotonic()
        error = await failure(server.url, timeout_s=0.05)
    assert error.category is Category.UNAVAILABLE
    assert time.monotonic() - began >= 0.05  # ten times as long, unless the machine is so slow that silence comes first


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff\xfe; charset=\x80\r\nContent-Length: 3\r\n\r\n\xff\xfe\xfd",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 204 Nothing\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"\x00" * 1000,
        b"",
    ],
    ids=lambda head: repr(head[:50]),
)
async def test_odd_http_is_a_failure_that_passes(head: bytes) -> None:
    async with playing(Answer(raw=True, chunks=(head,))) as server:
        error = await failure(server.url)
    assert error.category is Category.UNAVAILABLE


async def test_a_connection_is_used_again() -> None:
    async with playing(said("Yes.")) as server:
        provider = CustomProvider(base_url=server.url)
        for _ in range(3):
            await provider.complete(HELLO)
        await provider.aclose()
    assert [request.connection for request in server.requests] == [0, 0, 0]


async def test_a_long_history_arrives_byte_for_byte() -> None:
    texts = [f"wörld {number} " * 200 for number in range(2_000)]
    request = ModelRequest(model="m", system="s", messages=tuple(UserMessage(text=text) for text in texts))
    async with playing(said("Yes.")) as server:
        await ask(server.url, request)
    assert len(server.requests[0].body) > 4 * 2**20
    assert [message["content"] for message in server.requests[0].json["messages"][1:]] == texts


async def test_a_server_that_does_not_read_is_given_up() -> None:
    """Bytes of the request that are taken are signs of life, and only those."""
    listener = socket.create_server(("127.0.0.1", 0))  # connections wait there, with room for little
    message = ToolMessage(call_id="c", name="n", text="x" * (16 * 2**20))
    request = ModelRequest(model="m", system="", messages=(message,))
    error = await failure(f"http://127.0.0.1:{listener.getsockname()[1]}", request=request, timeout_s=0.2)
    assert error.category is Category.UNAVAILABLE
    listener.close()
    for _ in range(9):  # the client's end sees that
        await asyncio.sleep(0)


async def test_what_cannot_be_written_as_json_is_an_invalid_request() -> None:
    request = ModelRequest(model="m", system="", messages=(), temperature=float("nan"))
    async with playing(said("Never.")) as server:
        assert (await failure(server.url, request=request)).category is Category.REJECTED
    assert server.connections == 0


async def test_closing_under_a_request_is_a_failure_like_any_other() -> None:
    async with playing(SILENCE) as server:
        provider = CustomProvider(base_url=server.url)
        asking = asyncio.create_task(provider.complete(HELLO))
        await server.arrived.wait()
        await provider.aclose()
        with pytest.raises(ProviderError):
            await asking


def certificate(folder: Path) -> ssl.SSLContext:
    """Signed by nobody."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    key, certificate = folder / "key.pem", folder / "cert.pem"
    done = [*command.split(), "-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(done, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_certificate_that_nobody_signed_is_not_taken_and_not_asked_again(tmp_path: Path) -> None:
    context = await asyncio.to_thread(certificate, tmp_path)
    async with playing(said("Never."), tls=context) as server:
        error = await failure(server.url, api_key=KEY)
    assert (error.category, error.retryable, server.requests) == (Category.UNAVAILABLE, False, [])


def test_nothing_is_left_open_when_it_was_closed() -> None:
    """In an event loop of its own, which is closed before anything could tidy up; warnings are errors."""

    async def use() -> None:
        async with playing(said("Yes.")) as server, playing(SILENCE) as silent:
            assert (await ask(server.url)).message.text == "Yes."
            await failure(silent.url, timeout_s=0.05)

    asyncio.run(use())
    gc.collect()


@pytest.mark.req("PROV-04")
def test_the_client_is_imported_without_what_is_heavy() -> None:
    code = "import sys, bubbles.providers.custom_client, bubbles.providers.retry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"aiohttp", "litellm", "openai", "pydantic", "httpx"}.isdisjoint(done.stdout.split())
