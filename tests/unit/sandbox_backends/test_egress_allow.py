"""Reading an allow-list and asking it; no socket and no name lookup."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_backends.egress.allow import AllowList, entry_for, is_global, is_odd_spelling, read_host
from sandbox_backends.errors import InvalidSpecError

pytestmark = pytest.mark.req("SBX-07")


def allows(entries: str, host: str, port: int = 443) -> bool:
    return AllowList.parse(entries.split()).refusal(read_host(host), port) is None


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("example.com", "example.com", 443),
        ("example.com", "example.com", 80),
        ("EXAMPLE.com.", "example.COM.", 443),
        ("example.com:8443", "example.com", 8443),
        ("example.com:8443 example.com", "example.com", 80),
        ("*.example.com", "a.example.com", 443),
        ("*.example.com", "a.b.example.com", 443),
        ("*.example.com:8080", "a.example.com", 8080),
        ("bücher.example", "xn--bcher-kva.example", 443),
        ("*.bücher.example", "www.xn--bcher-kva.example", 443),
        ("xn--strae-oqa.example", "xn--strae-oqa.example", 443),
        ("registry_1.local", "registry_1.local", 443),
        ("192.168.1.5", "192.168.1.5", 443),
        ("192.168.1.5:9000", "192.168.1.5", 9000),
        ("192.168.1.0/24", "192.168.1.77", 80),
        ("192.168.1.0/24:9000", "192.168.1.77", 9000),
        ("192.168.1.5", "[::ffff:192.168.1.5]", 443),
        ("fd00::1", "[fd00:0::1]", 443),
        ("[fd00::1]", "[fd00::1]", 443),
        ("[fd00::1]:8080", "[fd00::1]", 8080),
        ("fd00::/8", "[fd12::9]", 443),
        ("[fd00::/8]:8080", "[fd12::9]", 8080),
        ("0.0.0.0/0", "8.8.8.8", 443),
        (" example.com ", "example.com", 443),
    ],
)
def test_what_is_listed_is_let_through(entries: str, host: str, port: int) -> None:
    assert allows(entries, host, port)


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("", "example.com", 443),
        ("example.com", "www.example.com", 443),
        ("example.com", "notexample.com", 443),
        ("example.com", "example.com.evil.test", 443),
        ("example.com", "example.com", 8080),
        ("example.com:8443", "example.com", 443),
        ("*.example.com", "example.com", 443),
        ("*.example.com", "evilexample.com", 443),
        ("example.com", "93.184.216.34", 443),
        ("192.168.1.5", "192.168.1.6", 443),
        ("192.168.1.5:9000", "192.168.1.5", 443),
        ("192.168.1.0/24", "192.168.2.1", 443),
        ("192.168.1.0/24", "nas.local", 443),
        # A wide range was not written with the neighbourhood in mind.
        ("0.0.0.0/0", "127.0.0.1", 443),
        ("0.0.0.0/0", "169.254.169.254", 80),
        ("::/0", "[::1]", 443),
        ("::/0", "[fd00::1]", 443),
        ("::/0", "[::ffff:127.0.0.1]", 443),
        ("::/0", "[64:ff9b::7f00:1]", 443),
    ],
)
def test_what_is_not_listed_is_refused(entries: str, host: str, port: int) -> None:
    assert not allows(entries, host, port)


@pytest.mark.parametrize(
    "entry",
    [
        "", " ", "*", "*:443", "*.", "https://example.com", "http://example.com/x", "example.com/", "example.com/x",
        "user@example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:http", "example.com:+80",
        "example.com:8_0", "example.com:\uff18\uff10", "a..b", ".example.com", "-a.example.com", "a-.example.com",
        "exa*mple.com", "*.*.example.com", "a.*.example.com", "x" * 64 + ".com", "straße.example", "\u2488.example",
        "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "1.2.3.4.5", "*.1", "*.10.0.0.1", "256.1.1.1",
        "10.0.0.5/8", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "example.com/24", "[fd00::1", "[fd00::1]8080",
        "[10.0.0.1]:80", "fd00::1%eth0", "[fe80::1%1]:80", "::ffff:0:0/96", "::ffff:10.0.0.0/104", "fd00::5/8",
        "a b.com", "a\x00b.com", "fd00:::1",
    ],
)  # fmt: skip
def test_a_bad_entry_is_refused_in_one_sentence_that_names_it(entry: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        AllowList.parse(["good.example", entry])
    sentence = str(caught.value)
    assert repr(entry) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert any(word in sentence for word in ("write", "set the network"))


def test_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="write it as a list"):
        AllowList.parse("example.com")


@given(st.lists(st.text(max_size=40), max_size=4))
def test_no_text_breaks_the_reader(entries: list[str]) -> None:
    try:
        AllowList.parse(entries)
    except InvalidSpecError:
        pass


@given(st.ip_addresses(), st.integers(1, 65535))
def test_the_entry_in_a_mend_opens_what_was_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    host = read_host(f"[{address}]" if address.version == 6 else str(address))
    assert AllowList.parse([entry_for(host, port)]).refusal(host, port) is None


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
        "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
        "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:20::1", "2001:db8::1",
        "2002:7f00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
        "ff02::1",
    ],
)  # fmt: skip
def test_private_and_special_addresses_are_not_global(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not is_global(address)
    assert not AllowList.parse(["example.com", "0.0.0.0/0", "::/0"]).permits_address(address, 443)


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "::ffff:8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"]
)
def test_public_addresses_are_global(text: str) -> None:
    assert is_global(ipaddress.ip_address(text))


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        assert not is_global(address) or (mapped is not None and mapped.is_global)


@pytest.mark.parametrize(
    "text", ["127.1", "0x7f.1", "0x7F000001", "2130706433", "0177.0.0.1", "127.0.0.0x1", "1.2.3.4.5", "a.0x", "a.1"]
)
def test_odd_spellings_of_an_address_are_told_from_names(text: str) -> None:
    assert is_odd_spelling(read_host(text))


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1.", "example.com", "0x7f.com", "1.com", "[::1]", "x0.a1"])
def test_names_and_plain_addresses_are_no_odd_spellings(text: str) -> None:
    assert not is_odd_spelling(read_host(text))


def test_a_private_address_is_dialled_only_on_the_port_that_is_listed_for_it() -> None:
    allow = AllowList.parse(["nas.local:445", "192.168.1.5:8080"])
    assert allow.permits_address(ipaddress.ip_address("192.168.1.5"), 8080)
    assert not allow.permits_address(ipaddress.ip_address("192.168.1.5"), 445)
