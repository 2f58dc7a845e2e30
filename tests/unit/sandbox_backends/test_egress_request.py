"""Understanding a request head and a TLS hello: pure functions on bytes."""

from __future__ import annotations

import ssl
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_backends.egress.allow import host_text
from sandbox_backends.egress.request import RequestHead, parse_head
from sandbox_backends.egress.stream import AnswerError
from sandbox_backends.egress.tls import MAX_HELLO_BYTES, IncompleteHelloError, server_name

pytestmark = pytest.mark.req("SBX-07")


def parse(*lines: str) -> RequestHead:
    return parse_head("\r\n".join([*lines, "", ""]).encode("latin-1"))


def test_host_is_written_anew_from_the_address_that_was_checked() -> None:
    head = parse("GET http://good.test:8080/a?b=c HTTP/1.1", "Host: evil.test", "Accept: */*")
    assert head.outgoing() == (
        b"GET /a?b=c HTTP/1.1\r\nHost: good.test:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )


def test_hop_by_hop_and_proxy_headers_do_not_reach_the_server() -> None:
    head = parse(
        "GET http://good.test/ HTTP/1.1", "Host: good.test", "Proxy-Authorization: Basic c2VjcmV0",
        "Proxy-Connection: keep-alive", "Connection: keep-alive, X-Private", "X-Private: 1", "Keep-Alive: 5",
        "Upgrade: h2c", "HTTP2-Settings: x", "TE: trailers", "Cookie: a=b",
    )  # fmt: skip
    assert head.outgoing() == b"GET / HTTP/1.1\r\nHost: good.test\r\nCookie: a=b\r\nConnection: close\r\n\r\n"


def test_framing_headers_cannot_be_named_away() -> None:
    head = parse("POST http://good.test/ HTTP/1.1", "Host: a", "Connection: content-length, host", "Content-Length: 3")
    assert head.body_bytes == 3
    assert b"Content-Length: 3\r\n" in head.outgoing()
    assert b"Host: good.test\r\n" in head.outgoing()


@pytest.mark.parametrize(
    ("target", "path"),
    [("http://a.test", b"/"), ("http://a.test?q", b"/?q"), ("HTTP://a.test/%41?x=/@", b"/%41?x=/@")],
)
def test_the_path_is_passed_on_as_it_was_written(target: str, path: bytes) -> None:
    assert parse(f"GET {target} HTTP/1.1").path == path
    assert parse("OPTIONS http://a.test HTTP/1.1").path == b"*"


@pytest.mark.parametrize(
    "lines",
    [
        ["GET / HTTP/1.1", "Host: good.test"],
        ["GET https://good.test/ HTTP/1.1"],
        ["GET ftp://good.test/ HTTP/1.1"],
        ["GET http://user@good.test/ HTTP/1.1"],
        ["GET http://user:pass@good.test/ HTTP/1.1"],
        ["GET http://good.test\\@evil.test/ HTTP/1.1"],
        ["GET http://good.test#@evil.test/ HTTP/1.1"],
        ["GET http://good.test/#fragment HTTP/1.1"],
        ["GET http://good%2etest/ HTTP/1.1"],
        ["GET http://good.test:/ HTTP/1.1"],
        ["GET http://good.test:0/ HTTP/1.1"],
        ["GET http://good.test:65536/ HTTP/1.1"],
        ["GET http:///x HTTP/1.1"],
        ["GET http://[::1/ HTTP/1.1"],
        ["GET http://[::1%25lo]/ HTTP/1.1"],
        ["GET http://a..test/ HTTP/1.1"],
        ["GET  http://good.test/ HTTP/1.1"],
        ["GET http://good.test/ x HTTP/1.1"],
        ["GET http://good.test/\tHTTP/1.1"],
        ["GET http://good.test/ HTTP/2.0"],
        ["GET http://good.test/ HTTP/1.1 "],
        ["GET http://good.test/"],
        [" GET http://good.test/ HTTP/1.1"],
        ["G\x00T http://good.test/ HTTP/1.1"],
        ["GET http://göod.test/ HTTP/1.1"],
        ["CONNECT good.test HTTP/1.1"],
        ["CONNECT good.test:https HTTP/1.1"],
        ["CONNECT http://good.test:443 HTTP/1.1"],
        ["CONNECT user@good.test:443 HTTP/1.1"],
        ["CONNECT good.test:443/ HTTP/1.1"],
        ["CONNECT good.test:443 HTTP/1.1", "Content-Length: 5"],
        ["CONNECT good.test:443 HTTP/1.1", "Transfer-Encoding: chunked"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 5", "Content-Length: 5"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 5", "content-length: 6"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 5, 5"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: +5"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: -1"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 0x5"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 5_0"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: " + "9" * 19],
        ["POST http://good.test/ HTTP/1.1", "Content-Length:"],
        ["POST http://good.test/ HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"],
        ["POST http://good.test/ HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["POST http://good.test/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"],
        ["POST http://good.test/ HTTP/1.1", "Transfer-Encoding: xchunked"],
        ["POST http://good.test/ HTTP/1.1", "Transfer-Encoding: \x0bchunked"],
        ["POST http://good.test/ HTTP/1.1", "Transfer-Encoding : chunked"],
        ["POST http://good.test/ HTTP/1.0", "Transfer-Encoding: chunked"],
        ["GET http://good.test/ HTTP/1.1", "Host: a", "Host: b"],
        ["GET http://good.test/ HTTP/1.1", "X: a", " folded"],
        ["GET http://good.test/ HTTP/1.1", " X: a"],
        ["GET http://good.test/ HTTP/1.1", "X: a\rContent-Length: 5"],
        ["GET http://good.test/ HTTP/1.1", "X: a\nContent-Length: 5"],
        ["GET http://good.test/ HTTP/1.1", "X: a\x00b"],
        ["GET http://good.test/ HTTP/1.1", "no colon"],
        ["GET http://good.test/ HTTP/1.1", ": empty"],
        ["", "GET http://good.test/ HTTP/1.1"],
    ],
)
def test_what_two_programs_could_read_differently_is_refused(lines: list[str]) -> None:
    with pytest.raises(AnswerError) as caught:
        parse(*lines)
    assert caught.value.status in {400, 501}


@given(st.binary(max_size=300))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    try:
        parse_head(data + b"\r\n\r\n")
    except AnswerError:
        pass


PIECES = st.sampled_from(
    r"GET CONNECT http:// good.test 127.0.0.1 [::1] :80 :443 / ? @ # \ HTTP/1.1 HTTP/1.0 Host Content-Length".split()
    + ["Transfer-Encoding", "chunked", "5", "%", ": ", " ", "\r\n", "\n", "\r"]
)


@given(st.lists(PIECES, max_size=24).map("".join), st.lists(PIECES, max_size=12).map("".join))
def test_what_is_understood_can_be_written_down_in_one_way_only(target: str, rest: str) -> None:
    try:
        head = parse_head(f"GET http://{target} HTTP/1.1\r\n{rest}\r\n\r\n".encode())
    except AnswerError:
        return
    first, *lines = head.outgoing()[:-4].split(b"\r\n")
    assert first.count(b" ") == 2
    assert all(b"\r" not in line and b"\n" not in line and b":" in line for line in lines)
    assert sum(line.lower().startswith(b"host:") for line in lines) == 1
    assert host_text(head.host).encode() in lines[0]
    assert sum(line.lower().startswith((b"content-length:", b"transfer-encoding:")) for line in lines) <= 1


def test_a_head_made_to_be_slow_to_read_is_read_at_once() -> None:
    begun = time.monotonic()
    for line in ("X:" + " " * 32_000 + "\x00", "a" * 32_000, ":" * 32_000, "X: " + "\t " * 16_000 + "\x7f"):
        with pytest.raises(AnswerError):
            parse("GET http://good.test/ HTTP/1.1", line)
    with pytest.raises(AnswerError):
        parse("GET http://" + "a." * 16_000 + "test/ HTTP/1.1")
    assert time.monotonic() - begun < 0.5


def hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello("good.test")


def records(message: bytes, size: int) -> bytes:
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def test_the_server_name_of_a_real_client_is_read() -> None:
    assert server_name(hello("Good.Test")) == "good.test"
    assert server_name(hello(None)) is None


def test_a_hello_cut_anywhere_asks_for_more() -> None:
    whole = hello("good.test")
    for end in range(len(whole)):
        with pytest.raises(IncompleteHelloError) as caught:
            server_name(whole[:end])
        assert end < caught.value.needed <= len(whole)


@pytest.mark.parametrize("size", [16, 50, 100, 4096])
def test_a_hello_cut_into_records_is_joined(size: int) -> None:
    assert server_name(records(hello("good.test")[5:], size)) == "good.test"


def test_a_hello_in_too_many_records_or_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too many records"):
        server_name(records(hello("good.test")[5:], 1))
    with pytest.raises(ValueError, match="too long"):
        server_name(records(b"\x01" + (MAX_HELLO_BYTES + 1).to_bytes(3, "big") + bytes(100), 104))


def test_a_hello_with_two_server_names_is_refused() -> None:
    name = b"\x00\x00\x09good.test"
    twice = b"".join((b"\x00\x00", *(len(part).to_bytes(2, "big") for part in (b"\0\0" + name, name)), name)) * 2
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00" + len(twice).to_bytes(2, "big") + twice
    with pytest.raises(ValueError, match="several"):
        server_name(records(b"\x01" + len(body).to_bytes(3, "big") + body, 4096))


@given(st.binary(max_size=200), st.integers(0, 600))
def test_any_bytes_are_a_hello_or_are_refused(noise: bytes, at: int) -> None:
    whole = bytearray(HELLO)
    whole[at : at + len(noise)] = noise
    for data in (bytes(whole), noise, b"\x16\x03" + noise):
        try:
            server_name(data)
        except (ValueError, IncompleteHelloError):
            pass
