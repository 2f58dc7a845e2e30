"""The egress proxy against real servers, over real sockets. The servers live on 127.0.0.1, so each test that means to
reach one lists that address; where a request must not arrive, every connect of this process is watched instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.egress_servers import Server, bridged, dialled, get, proxy, running

pytestmark = [pytest.mark.req("SBX-07", "SEC-01"), pytest.mark.needs("linux")]


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=good.test"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:good.test", "-keyout", str(path), "-out", str(path)],
        check=True,
        capture_output=True,
    )
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running(context) as server:
        yield server


async def test_listed_host_is_reached_over_http(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        answer = await way.ask(get(f"good.test:{server.port}/page?q=1", "Proxy-Authorization: secret"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello")
    assert b"\r\nConnection: close\r\n" in answer
    [(method, path, headers, body)] = server.seen
    assert (method, path, body) == ("GET", "/page?q=1", b"")
    assert headers == {"Host": f"good.test:{server.port}", "Connection": "close"}
    assert way.refusals == []


async def test_a_client_is_told_that_the_connection_ends_whatever_the_server_says(
    tmp_path: Path, server: Server
) -> None:
    async with proxy(tmp_path, f"127.0.0.1:{server.port}") as way:
        reader, writer = await asyncio.open_unix_connection(way.path)
        writer.write(get(f"127.0.0.1:{server.port}/stay").encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: close\r\n" in head
        assert b"keep-alive" not in head
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()  # as such a client does then: the server is left too
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_listed_host_is_reached_over_https(tmp_path: Path, tls_server: Server, certificate: Path) -> None:
    where = f"good.test:{tls_server.port}"
    async with proxy(tmp_path, where, f"127.0.0.1:{tls_server.port}") as way:
        reader, writer = await way.connect(where)
        trust = await asyncio.to_thread(ssl.create_default_context, cafile=str(certificate))
        await writer.start_tls(trust, server_hostname="good.test")
        writer.write(b"GET /secret HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
    assert tls_server.seen[0][1] == "/secret"
    assert way.refusals == []


@pytest.mark.parametrize("size", [0, 5, 200_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_request_body_arrives_as_it_was_sent(tmp_path: Path, server: Server, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    request = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n".encode()
    if chunked:
        pieces = [body[at : at + 70_001] for at in range(0, size, 70_001)]
        request += b"Transfer-Encoding: chunked\r\n\r\n"
        request += b"".join(b"%X;name=value\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        request += b"0\r\nTrailer: dropped\r\n\r\n"
    else:
        request += b"Content-Length: %d\r\n\r\n" % size + body
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        answer = await way.ask(request)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert server.seen[0][3] == body


@pytest.mark.parametrize(
    ("request_text", "mend"),
    [
        (get("denied.test/"), "--allow denied.test"),
        (get("good.test:81/"), "--allow good.test:81"),
        (get("127.0.0.1/"), "--allow 127.0.0.1"),
        (get("[::1]:8080/"), "--allow [::1]:8080"),
        (get("169.254.169.254/latest/meta-data/"), "--allow 169.254.169.254"),
        ("CONNECT denied.test:443 HTTP/1.1\r\n\r\n", "--allow denied.test"),
        ("CONNECT good.test:22 HTTP/1.1\r\n\r\n", "--allow good.test:22"),
        ("CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", "--allow 127.0.0.1"),
        ("CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n\r\n", "--allow 127.0.0.1"),
        ("CONNECT good.test.:22 HTTP/1.1\r\n\r\n", "--allow good.test:22"),
    ],
)
async def test_what_is_not_listed_is_refused_with_the_mend(tmp_path: Path, request_text: str, mend: str) -> None:
    async with proxy(tmp_path, "good.test") as way:
        answer = await way.ask(request_text)
    status, _, rest = answer.partition(b"\r\n")
    assert status == f"HTTP/1.1 403 Refused by the sandbox: allow it with {mend}".encode()
    body = rest.partition(b"\r\n\r\n")[2].decode()
    assert body.endswith(f"{mend}.\n")
    assert way.refusals == [body.removesuffix("\n")]
    assert way.asked == []  # a name that is not listed is not even looked up
    assert dialled() == []


@pytest.mark.parametrize(
    "host",
    [
        "0x7f.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "0",
        "1.2.3.4.5",
    ],
)
async def test_odd_spellings_of_an_address_are_refused_even_when_it_is_listed(tmp_path: Path, host: str) -> None:
    async with proxy(tmp_path, "127.0.0.1", "0.0.0.0/0", "*.test") as way:
        assert b" 403 " in await way.ask(get(f"{host}/"))
        assert b" 403 " in await way.ask(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n")
    assert "odd spelling" in way.refusals[0]
    assert (way.asked, dialled()) == ([], [])


async def test_a_listed_address_is_reached_and_its_neighbour_is_not(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"127.0.0.0/31:{server.port}") as way:
        assert b" 200 " in await way.ask(get(f"127.0.0.1:{server.port}/"))
        assert b" 200 " in await way.ask(get(f"[::ffff:7f00:1]:{server.port}/"))
        assert b" 403 " in await way.ask(get(f"127.0.0.2:{server.port}/"))
    assert server.seen[0][2]["Host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]
    + ["2002:7f00:1::", "fe80::1%1", "fd00::1", "ff02::1", "224.0.0.1", "255.255.255.255"],
)
async def test_a_listed_name_that_leads_to_a_private_address_is_refused(tmp_path: Path, address: str) -> None:
    async with proxy(tmp_path, "good.test", names={"good.test": [[address]]}) as way:
        assert b" 403 " in await way.ask(get("good.test/"))
    assert "resolves to" in way.refusals[0]
    assert dialled() == []


async def test_of_several_addresses_only_the_permitted_one_is_dialled(tmp_path: Path, server: Server) -> None:
    names = {"good.test": [["169.254.169.254", "::1", "127.0.0.2", "127.0.0.1"]]}
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}", names=names) as way:
        assert b" 200 " in await way.ask(get(f"good.test:{server.port}/"))
    assert dialled() == [("127.0.0.1", server.port)]


async def test_dns_rebinding_gains_nothing(tmp_path: Path, server: Server) -> None:
    names = {"good.test": [["127.0.0.1"], ["169.254.169.254"]]}
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}", names=names) as way:
        assert b" 200 " in await way.ask(get(f"good.test:{server.port}/"))
        assert way.asked == ["good.test"]  # once: what was checked is what was dialled
        assert b" 403 " in await way.ask(get(f"good.test:{server.port}/"))
    assert dialled() == [("127.0.0.1", server.port)]


async def test_the_host_header_cannot_name_another_site(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        await way.ask(f"GET http://good.test:{server.port}/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        assert b" 400 " in await way.ask(f"GET http://good.test:{server.port}/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert [headers["Host"] for _, _, headers, _ in server.seen] == [f"good.test:{server.port}"]


@pytest.mark.parametrize(
    "rest",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "X: a\nContent-Length: 5\r\n\r\nhello",
        "X: a\n\nhello",
        "X: a\r\n Content-Length: 5\r\n\r\nhello",
        "Content-Length : 5\r\n\r\nhello",
    ],
)
async def test_a_smuggled_request_never_leaves(tmp_path: Path, server: Server, rest: str) -> None:
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        answer = await way.ask(f"POST http://good.test:{server.port}/ HTTP/1.1\r\nHost: x\r\n{rest}")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert (server.seen, dialled()) == ([], [])


@pytest.mark.parametrize(
    "body",
    ["5\nhello\r\n0\r\n\r\n", "0x5\r\nhello", "5\r\nhelloXX0\r\n\r\n", "5\r\nhelloX\n0\r\n\r\n", "-1\r\n", "\r\n"],
)
async def test_a_malformed_chunk_is_never_completed(tmp_path: Path, server: Server, body: str) -> None:
    head = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        assert (await way.ask(head + body)).startswith(b"HTTP/1.1 400 ")
    assert server.seen == []


async def test_a_second_request_on_one_connection_is_not_served(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, f"good.test:{server.port}", f"127.0.0.1:{server.port}") as way:
        answer = await way.ask(get(f"good.test:{server.port}/1") + get("denied.test/2") + get("good.test/3"))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [path for _, path, _, _ in server.seen] == ["/1"]


async def test_a_server_may_answer_before_it_has_read_the_whole_body(tmp_path: Path) -> None:
    def refuse(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(1000)
            time.sleep(0.1)  # by now the way to here is full, and closing over what was not read is a reset
            sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000)

    def send(path: str, port: int) -> bytes:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            with contextlib.suppress(OSError):
                head = f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n"
                sock.sendall(head.encode() + bytes(9_000_000))
            return b"".join(iter(lambda: sock.recv(1000), b""))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with proxy(tmp_path, f"127.0.0.1:{port}") as way:
            refusing = asyncio.create_task(asyncio.to_thread(refuse, listener))
            answer = await asyncio.to_thread(send, way.path, port)
            await refusing
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"\r\n\r\n" + b"x" * 20_000)


async def test_a_refusal_holds_no_secret(tmp_path: Path) -> None:
    async with proxy(tmp_path) as way:
        answer = await way.ask(get("denied.test/SECRET?key=SECRET", "Authorization: SECRET", "Cookie: SECRET"))
        answer += await way.ask("POST http://denied.test/ HTTP/1.1\r\nContent-Length: 6\r\n\r\nSECRET")
        answer += await way.ask("GET http://SECRET:SECRET@denied.test/ HTTP/1.1\r\n\r\n")
    assert len(way.refusals) == 2
    assert b"SECRET" not in answer
    assert "SECRET" not in " ".join(way.refusals)


async def test_a_name_without_address_and_a_closed_port_are_bad_gateways(tmp_path: Path, server: Server) -> None:
    async with proxy(tmp_path, "missing.test", "127.0.0.1:1", "empty.test", names={"empty.test": [[]]}) as way:
        assert b" 502 " in await way.ask(get("missing.test/"))
        assert b" 502 " in await way.ask(get("empty.test/"))
        assert b" 502 " in await way.ask("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
    assert len(way.refusals) == 3  # told as well: a client shows no more than the number


async def test_a_redirect_to_a_denied_host_is_refused_too(tmp_path: Path, server: Server) -> None:
    good = f"good.test:{server.port}"
    async with proxy(tmp_path, good, f"127.0.0.1:{server.port}") as way, bridged(way) as address:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": address, "https": address}))
        assert await asyncio.to_thread(lambda: opener.open(f"http://{good}/to/{good}/end").read()) == b"hello"
        with pytest.raises(urllib.error.HTTPError, match=r"403: Refused by the sandbox: .*--allow denied\.test"):
            await asyncio.to_thread(opener.open, f"http://{good}/to/denied.test/")
        with pytest.raises(
            urllib.error.URLError, match=r"Tunnel connection failed: 403 Refused .*--allow denied\.test"
        ):
            await asyncio.to_thread(opener.open, "https://denied.test/")
    assert [path for _, path, _, _ in server.seen] == [f"/to/{good}/end", "/end", "/to/denied.test/"]
    assert len(way.refusals) == 2


@pytest.mark.parametrize("name", ["evil.test", None])
async def test_a_tunnel_whose_tls_names_another_host_is_closed(
    tmp_path: Path, tls_server: Server, name: str | None
) -> None:
    where = f"good.test:{tls_server.port}"
    async with proxy(tmp_path, where, f"127.0.0.1:{tls_server.port}") as way:
        _, writer = await way.connect(where)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            await writer.start_tls(trust, server_hostname=name or "")
        writer.close()
    assert "TLS names" in way.refusals[0]


async def test_a_hello_in_small_pieces_goes_through(tmp_path: Path, tls_server: Server) -> None:
    where = f"good.test:{tls_server.port}"
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="good.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    message = outgoing.read()[5:]
    async with proxy(tmp_path, where, f"127.0.0.1:{tls_server.port}") as way:
        reader, writer = await way.connect(where)
        for at in range(0, len(message), 40):
            piece = message[at : at + 40]
            writer.write(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
            await asyncio.sleep(0.001)
        assert (await reader.readexactly(6))[::5] == b"\x16\x02"  # a server hello
        writer.close()


async def test_a_server_may_speak_first_and_each_side_may_end_first(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        writer.write(b"got " + await reader.read())
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with proxy(tmp_path, f"127.0.0.1:{port}") as way:
            reader, writer = await way.connect(f"127.0.0.1:{port}")
            assert await reader.readline() == b"SSH-2.0-x\r\n"
            writer.write(b"all of it")
            writer.write_eof()
            assert await reader.read() == b"got all of it"
            writer.close()
