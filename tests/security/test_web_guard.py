"""What web_fetch must not reach, however it is spelt, named, renamed or led there (TOOL-03, SEC-01, SEC-03)."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.web_servers import Names, fetching, make_certificate, names, page, raw, tunnelling, watching

pytestmark = pytest.mark.req("TOOL-03", "SEC-01")

PUBLIC = "93.184.215.14"
HELLO = page("<title>Hello</title><p>Hello from inside.")

ADDRESSES = """
    http://127.0.0.1/ http://127.0.0.1:8080/ http://127.1.2.3/ http://127.0.0.1./ http://0.0.0.0/ http://10.0.0.1/
    http://172.16.0.1/ http://172.31.255.254/ http://192.168.1.1/ http://169.254.169.254/latest/meta-data/
    http://100.64.0.1/ http://100.100.100.200/ http://192.0.0.192/ http://168.63.129.16/ http://198.18.0.1/
    http://224.0.0.1/ http://240.0.0.1/ http://255.255.255.255/ http://192.0.2.1/ http://203.0.113.9/
    http://[::1]/ http://[::]/ http://[0:0:0:0:0:0:0:1]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/
    http://[::127.0.0.1]/ http://[::ffff:0:127.0.0.1]/ http://[64:ff9b::127.0.0.1]/ http://[64:ff9b::a9fe:a9fe]/
    http://[64:ff9b:1::a00:1]/ http://[2002:7f00:1::]/ http://[2002:a9fe:a9fe::1]/ http://[2001:0:7f00:1::]/
    http://[fe80::1]/ http://[fe80::1%25lo]/ http://[fc00::1]/ http://[fd00:ec2::254]/ http://[ff02::1]/
    http://[2001:db8::1]/ http://[fec0::1]/
    http://127.1/ http://127.0.1/ http://0/ http://0x7f.1/ http://0x7f000001/ http://0x7F.0x0.0x0.0x1/
    http://2130706433/ http://017700000001/ http://0177.0.0.1/ http://127.0.0.01/ http://0177.0x0.1/
    http://127.0.0.1.:8080/ http://4294967297/ http://192.168.257/ http://1.2.3.4.5/ http://256.256.256.256/
    http://0xa9fea9fe/ http://2852039166/ http://[::1].nip.test/ http://127.0.0.1../ http://.127.0.0.1/
    http://１２７.0.0.1/ http://①②⑦.⓪.⓪.①/ http://127。0。0。1/ http://127．0．0．1/ http://𝟏𝟐𝟕.𝟎.𝟎.𝟏/
    http://０x７f.1/ http://２１３０７０６４３３/ http://[::１]/ http://１２７.１/ http://９３.184.215.14/ http://１.１.１.１/
    http://127%2e0%2e0%2e1/
    http://%31%32%37.0.0.1/ http://%6c%6fcalhost/ http://127.0.0.1%00.public.test/ http://127.0.0.1%2f@public.test/
    http://public.test@127.0.0.1/ http://127.0.0.1@public.test/ http://user:word@public.test/ http://@public.test/
    http://public.test:80@127.0.0.1:80/ http://127.0.0.1#@public.test/
    http://127.0.0.1?@public.test/ http://public.test\\@127.0.0.1/ http:\\\\127.0.0.1/ http:/127.0.0.1/
    http:127.0.0.1/ //127.0.0.1/ ///127.0.0.1/ http:///127.0.0.1/ http://[127.0.0.1]/ http://127.0.0.1:80:80/
    http://127.0.0.1:99999/ http://public.test:0/ http://public.test:-1/ http://public.test:80a/
    http://public.test:２２/ http://public.test:22/ http://public.test:25/ http://public.test:6379/
    http://public.test:65536/ http://-public.test/ http://public..test/ http:// http://:80/ http://[]/ http://[::1/
    file:///etc/passwd ftp://public.test/ gopher://127.0.0.1:6379/_INFO data:text/html,hello javascript:alert(1)
    unix:///var/run/docker.sock dict://127.0.0.1:11211/stats jar:http://127.0.0.1!/ view-source:http://127.0.0.1/
    httpx://127.0.0.1/ http+unix://%2Fvar%2Frun%2Fdocker.sock/ blob:http://127.0.0.1/ ws://127.0.0.1/ about:blank
    127.0.0.1 localhost:8080 ../etc/passwd /etc/passwd
""".split()
BLANKS = [
    "http://127.0.0.1/\r\nHost: public.test",
    "http://public.test/\r\nX-Injected: 1",
    "http://pub\tlic.test/",
    "http://pub\nlic.test/",
    " http://127.0.0.1/",
    "http://127.0.0.1 /",
    "http://public.test /",
    "http://public.test\x00.evil.test/",
    "\x00http://127.0.0.1/",
    "ht\ntp://127.0.0.1/",
    "http://public.test/\u2028x",
    "http://127.0.0.1\u3000/",
    "http://\u200b127.0.0.1/",
    "http://\u202e127.0.0.1/",
    "http://127.0.0\u00ad.1/",
    "http://" + "a" * 300 + ".test/",
    "http://" + "é" * 300 + ".test/",
    "http://public.test/" + "é" * 2_000,
]
LEADING_INSIDE = {
    "localhost": "127.0.0.1 ::1",
    "localhost.localdomain": "127.0.0.1",
    "router": "192.168.1.1",
    "metadata.google.internal": "169.254.169.254",
    "127.0.0.1.nip.test": "127.0.0.1",
    "inside.test": "10.1.2.3",
    "mapped.test": "::ffff:10.1.2.3",
    "nat64.test": "64:ff9b::7f00:1",
    "six-to-four.test": "2002:7f00:1::1",
    "six.test": "::1",
    "scoped.test": "fe80::1%lo",
    "any.test": "0.0.0.0 ::",
    "many.test": "10.0.0.1 192.168.0.1 fd00::1",
    "no-address.test": "not-an-address",
    "none.test": "",
}


def test_the_table_of_hostile_addresses_is_long() -> None:
    assert len(ADDRESSES) + len(BLANKS) + len(LEADING_INSIDE) >= 130
    assert len(set(ADDRESSES)) == len(ADDRESSES)


@pytest.mark.parametrize("url", ADDRESSES + BLANKS)
async def test_a_hostile_address_is_refused_before_anything_is_opened(url: str) -> None:
    fetch = fetching("good.test", "192.168.77.0/24")
    await fetch.refused("http://warm.test/")  # imports
    with watching() as opened:
        said = await fetch.refused(url)
    assert "not fetched" in said
    assert "\n" not in said
    assert "\r" not in said
    assert opened == []
    assert fetch.names.asked == ["warm.test"]


async def test_a_user_name_or_password_is_what_is_refused() -> None:
    for url in ("http://user:word@public.test/", "http://@public.test/", "http://127.0.0.1@public.test/"):
        said = await fetching(resolver=names(public_test=PUBLIC)).refused(url)
        assert said.endswith("it holds a user name or password.")


@pytest.mark.parametrize(("host", "found"), LEADING_INSIDE.items())
async def test_a_name_that_leads_inside_is_looked_up_once_and_not_dialled(host: str, found: str) -> None:
    fetch = fetching(resolver=Names({host: [found.split()]}))
    await fetch.refused("http://warm.test/")
    with watching() as opened:
        said = await fetch.refused(f"http://{host}/")
    assert "not on the public internet" in said or "has no address" in said
    assert opened == []
    assert fetch.names.asked == ["warm.test", host]


async def test_a_name_that_changes_its_mind_is_dialled_where_it_led_at_first() -> None:
    async with raw(HELLO) as good:
        resolver = Names({"rebound.test": [["127.0.0.1"], ["127.0.0.66"]]})
        fetch = fetching(f"127.0.0.1:{good.port}", resolver=resolver)
        with watching() as opened:
            assert "Hello" in await fetch.ok(f"http://rebound.test:{good.port}/")
        assert opened == [f"socket.connect ('127.0.0.1', {good.port})"]
        assert resolver.asked == ["rebound.test"]
        assert "leads to 127.0.0.66" in await fetch.refused(f"http://rebound.test:{good.port}/")
        assert len(good.heads) == 1


async def test_of_the_addresses_of_a_name_only_the_permitted_ones_are_dialled() -> None:
    async with raw(HELLO) as good:
        fetch = fetching(f"127.0.0.1:{good.port}", resolver=names(mixed_test="10.0.0.1 127.0.0.9 ::1 127.0.0.1"))
        with watching() as opened:
            await fetch.ok(f"http://mixed.test:{good.port}/")
        assert opened == [f"socket.connect ('127.0.0.1', {good.port})"]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://[::1]/",
        "//127.0.0.66:{port}/",
        "http://inside.test:{port}/",
        "http://2130706433:{port}/",
        "http://me:word@127.0.0.1:{port}/",
        "\\\\127.0.0.66/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://127.0.0.1:{port}\\@public.test/",
        "http://[::1",
        "http://１２７.0.0.1/",
        "https:127.0.0.66",
        " ",
        "x" * 5_000,
    ],
)
async def test_a_redirect_is_held_to_the_same_rules(location: str) -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        if b"GET /begin " in head:
            to = location.format(port=server.port).encode()
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: " + to + b"\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(HELLO)

    async with raw(answer) as server:
        fetch = fetching(f"127.0.0.1:{server.port}", resolver=names(inside_test="127.0.0.66"))
        with watching() as opened:
            said = await fetch.refused(f"{server.url}/begin")
        assert "not fetched" in said
        assert [where for where in opened if f"('127.0.0.1', {server.port})" not in where] == []
        assert len(server.heads) == 1


async def test_at_most_five_redirects_are_followed_each_with_a_look_up_of_its_own() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        left = int(head.split(b" ")[1][1:])
        where = f"Location: /{left - 1}" if left else "X-End: here"
        writer.write(page("the end", where, status="302 Found" if left else "200 OK"))

    async with raw(answer) as server:
        fetch = fetching(f"127.0.0.1:{server.port}", resolver=names(turns_test="127.0.0.1"))
        assert "the end" in await fetch.ok(f"http://turns.test:{server.port}/5")
        assert fetch.names.asked == ["turns.test"] * 6
        assert len(server.heads) == 6
        assert "more than 5 times" in await fetch.refused(f"{server.url}/6")


async def test_nothing_of_ours_goes_with_a_request_nor_with_a_redirect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        if b"GET /a " in head:
            writer.write(page("", "Location: /b#part", "Set-Cookie: who=you; Path=/", status="301 Moved"))
        else:
            writer.write(HELLO)

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv(
        "NETRC", str(tmp_path / "netrc")
    )  # of the process: what counts is what the settings took from it
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    env = {"TAVILY_API_KEY": "tvly-secret", "USER": "root"}
    async with raw(answer) as server:
        fetch = fetching(f"127.0.0.1:{server.port}", env=env)
        await fetch.ok(f"{server.url}/a")
        await fetch.ok(f"{server.url}/b")
    sent = {line.partition(":")[0].lower() for head in server.heads for line in head.splitlines()[1:] if line}
    assert sent == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert [head.split(" ")[1] for head in server.heads] == ["/a", "/b", "/b"]
    assert all("User-Agent: bubbles/" in head for head in server.heads)


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "url", ["http://public.test/?k=sk-owner-1", "http://sk-owner-1.test/", "http://public.test/#%73k%2Downer%2D1"]
)
async def test_an_address_with_a_key_of_the_owners_is_not_sent(url: str) -> None:
    fetch = fetching(resolver=names(public_test=PUBLIC), mask=lambda text: text.replace("sk-owner-1", "[redacted]"))
    with watching() as opened:
        said = await fetch.refused(url)
    assert "keys" in said
    assert "sk-owner-1" not in said
    assert opened == fetch.names.asked == []


async def test_what_is_listed_is_reached_and_nothing_beside_it() -> None:
    async with raw(HELLO) as server, raw(HELLO) as other:
        port = server.port
        for entry, host in (
            (f"127.0.0.1:{port}", "127.0.0.1"),
            (f"127.0.0.0/8:{port}", "127.0.0.1"),
            (f"nas.test:{port}", "nas.test"),
            (f"nas.test:{port}", "NAS.test."),
            (f"*.home.test:{port}", "nas.home.test"),
            (f"127.0.0.1:{port}", "elsewhere.test"),
        ):
            found = names(nas_test="127.0.0.1", nas_home_test="127.0.0.1", elsewhere_test="127.0.0.1")
            fetch = fetching(entry, resolver=found)
            assert "Hello" in await fetch.ok(f"http://{host}:{port}/")
            assert "not fetched" in await fetch.refused(f"http://{host}:{other.port}/")
        assert other.heads == []
        assert f"'nas.test:{port}' in tools.web.allow" in await fetching().refused(f"http://nas.test:{port}/")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate") / "both.pem", "good.test")


@pytest.fixture(scope="module")
def trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def test_the_address_is_dialled_and_the_certificate_is_for_the_name(
    certificate: Path, trust: ssl.SSLContext
) -> None:
    async with raw(HELLO, certificate) as server:
        where = f"127.0.0.1:{server.port}"
        fetch = fetching(where, resolver=names(good_test="127.0.0.1", bad_test="127.0.0.1"), trust=trust)
        with watching() as opened:
            assert "Hello" in await fetch.ok(f"https://good.test:{server.port}/")
        assert opened == [f"socket.connect ('127.0.0.1', {server.port})"]
        assert server.server_names == ["good.test"]
        assert f"\r\nHost: good.test:{server.port}\r\n" in server.heads[0]
        assert "certificate does not hold" in await fetch.refused(f"https://bad.test:{server.port}/")
        assert "certificate does not hold" in await fetch.refused(f"https://{where}/")
        assert len(server.heads) == 1
        strangers = fetching(where, resolver=names(good_test="127.0.0.1"))  # by the certificates of the system
        assert "certificate does not hold" in await strangers.refused(f"https://good.test:{server.port}/")


async def test_a_server_that_speaks_no_tls_is_left() -> None:
    async def shout(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        writer.close()

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as server:
        where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert "no secure connection" in await fetching(where).refused(f"https://{where}/")


class TestThroughAProxy:
    async def test_the_tunnel_leads_to_the_address_that_was_found_here(
        self, certificate: Path, trust: ssl.SSLContext
    ) -> None:
        async with raw(HELLO, certificate) as server, tunnelling(server.port) as proxy:
            env = {"https_proxy": f"http://me:word@127.0.0.1:{proxy.port}"}
            fetch = fetching(resolver=names(good_test=PUBLIC), env=env, trust=trust)
            with watching() as opened:
                assert "Address: https://good.test/page\n" in await fetch.ok("https://good.test/page")
            assert {where for where in opened if "connect" in where} == {
                f"socket.connect ('127.0.0.1', {proxy.port})",
                f"socket.connect ('127.0.0.1', {server.port})",  # the proxy's own
            }
            assert proxy.heads[0].startswith(f"CONNECT {PUBLIC}:443 HTTP/1.1\r\n")
            assert "Proxy-Authorization: Basic bWU6d29yZA==" in proxy.heads[0]
            assert server.server_names == ["good.test"]
            assert server.heads[0].startswith("GET /page HTTP/1.1\r\nHost: good.test\r\n")
            assert "uthorization" not in server.heads[0]

    async def test_the_next_address_is_tried_if_the_proxy_does_not_reach_one(
        self, certificate: Path, trust: ssl.SSLContext
    ) -> None:
        async with raw(HELLO, certificate) as server, tunnelling(server.port, refuses=[PUBLIC]) as proxy:
            env = {"https_proxy": f"http://127.0.0.1:{proxy.port}"}
            fetch = fetching(resolver=names(good_test=f"{PUBLIC} 1.1.1.1"), env=env, trust=trust)
            assert "Hello" in await fetch.ok("https://good.test/")
            assert [head.split(" ")[1] for head in proxy.heads] == [f"{PUBLIC}:443", "1.1.1.1:443"]
            only = fetching(resolver=names(good_test=PUBLIC), env=env, trust=trust)
            assert "the proxy refuses with status 502" in await only.refused("https://good.test/")

    async def test_plain_http_becomes_https_so_that_the_proxy_looks_up_nothing(
        self, certificate: Path, trust: ssl.SSLContext
    ) -> None:
        async with raw(HELLO, certificate) as server, tunnelling(server.port) as proxy:
            env = {"all_proxy": f"http://127.0.0.1:{proxy.port}"}
            fetch = fetching(resolver=names(good_test=PUBLIC), env=env, trust=trust)
            assert "Address: https://good.test/" in await fetch.ok("http://good.test/")
            assert proxy.heads[0].startswith(f"CONNECT {PUBLIC}:443 ")
            assert "only https://" in await fetch.refused("http://good.test:8080/")

    async def test_a_name_that_only_the_proxy_knows_is_its_owners_choice(
        self, certificate: Path, trust: ssl.SSLContext
    ) -> None:
        async with raw(HELLO) as plain, tunnelling(plain.port) as proxy:
            env = {"all_proxy": f"http://127.0.0.1:{proxy.port}"}
            for scheme in ("http", "https"):
                said = await fetching(env=env).refused(f"{scheme}://wiki.good.test/")
                assert "by 'wiki.good.test' in tools.web.allow" in said
            assert proxy.heads == []
            fetch = fetching("*.good.test", env=env)
            assert "Hello" in await fetch.ok("http://wiki.good.test/")
            assert proxy.heads[0].startswith("GET http://wiki.good.test/ ")
        async with raw(HELLO, certificate) as secure, tunnelling(secure.port) as proxy:
            fetch = fetching("good.test", env={"all_proxy": f"http://127.0.0.1:{proxy.port}"}, trust=trust)
            assert "Hello" in await fetch.ok("https://good.test/")
            assert proxy.heads[0].startswith("CONNECT good.test:443 ")
        assert fetch.names.asked == []

    @pytest.mark.parametrize(
        "url", ["http://10.0.0.1/", "https://inside.test/", "https://[::1]/", "http://inside.test/"]
    )
    async def test_a_private_address_is_refused_before_the_proxy_hears_of_it(self, url: str) -> None:
        async with tunnelling(1) as proxy:
            env = {"all_proxy": f"http://127.0.0.1:{proxy.port}"}
            fetch = fetching(resolver=names(inside_test="10.0.0.1"), env=env)
            assert "not on the public internet" in await fetch.refused(url)
            assert proxy.heads == []

    async def test_no_word_of_the_proxys_password_is_said(self) -> None:
        async with raw(b"HTTP/1.1 407 geheim\r\nContent-Length: 0\r\n\r\n") as proxy:
            for address in (
                f"http://me:geheim@127.0.0.1:{proxy.port}",
                "http://me:geheim@127.0.0.1:1",
                "http://x:geheim",
            ):
                fetch = fetching(resolver=names(good_test=PUBLIC), env={"https_proxy": address})
                said = await fetch.refused("https://good.test/")
                assert "proxy" in said
                assert "geheim" not in said
