"""Which hosts and ports a sandbox may reach: reading the allow-list, and asking it (SBX-07).

Pure: no name is looked up here. A *name* must be listed before it is ever resolved. An *address* may be dialled when it
is globally routable, or when that address, or a private range around it, is listed with that port.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_backends.errors import InvalidSpecError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPRange = ipaddress.IPv4Network | ipaddress.IPv6Network
Host = str | IPAddress
"""A lower-case ASCII name without a last dot, or an address (an IPv4-mapped one is taken for the IPv4 address)."""

DEFAULT_PORTS = frozenset({80, 443})

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_RANGE = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")
# IDNA 2003 (all that the standard library has) turns these into other names than browsers do: another host is opened.
_DEVIATES = re.compile("[\u00df\u03c2\u200c\u200d]")

# IANA special-purpose registries, as of 2025. A table of our own: ``is_global`` changed between Python releases.
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",  # the last: Azure's host service
        "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
    )
)  # fmt: skip
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")  # so loopback, mapped, NAT64, local and multicast are all outside
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # Teredo and ORCHID in the first; 6to4
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


def read_host(text: str) -> Host:
    """Reads a host as it stands in a URI. ``ValueError``, with the reason, for what can be no host."""
    if text.startswith("["):
        if not text.endswith("]") or "%" in text:
            raise ValueError("an IPv6 address stands in brackets and has no zone")
        return plain(ipaddress.IPv6Address(text[1:-1]))
    name = text.lower().removesuffix(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError("it is neither a host name nor an address")
    try:
        return ipaddress.IPv4Address(name)
    except ValueError:
        return name


def is_odd_spelling(host: Host) -> bool:
    """Whether a name would be taken for an IPv4 address by some resolver: 127.1, 0x7f.0.0.1, 2130706433, 0177.0.0.1."""
    return isinstance(host, str) and _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def host_text(host: Host) -> str:
    """As it stands in a URI: IPv6 in brackets."""
    return f"[{host}]" if isinstance(host, ipaddress.IPv6Address) else str(host)


def entry_for(host: Host, port: int) -> str:
    """The allow-list entry that opens exactly this, for the mend in a sentence."""
    return str(host) if port in DEFAULT_PORTS else f"{host_text(host)}:{port}"


def is_global(address: IPAddress) -> bool:
    """Whether an address is routed on the public internet and is nobody's private, local or metadata service."""
    address = plain(address)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in special for special in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in special for special in _SPECIAL_V6)


def plain(address: IPAddress) -> IPAddress:
    """The IPv4 address in an IPv4-mapped one."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_special(network: IPRange) -> bool:
    """Whether a range lies wholly outside the public internet, so that who lists it means private addresses."""
    if isinstance(network, ipaddress.IPv4Network):
        return any(network.subnet_of(special) for special in _SPECIAL_V4)
    return not network.overlaps(_GLOBAL_V6) or any(network.subnet_of(special) for special in _SPECIAL_V6)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """What may be reached. Empty refuses everything. Made by :meth:`parse`."""

    names: Mapping[str, frozenset[int]]
    suffixes: Mapping[str, frozenset[int]]
    """By the part after ``*.``: hosts below it at any depth, not the part itself."""
    ranges: tuple[tuple[IPRange, frozenset[int]], ...]
    """An address is a range of one."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowList:
        """Reads ``host``, ``*.host``, an address or a range in CIDR form, each with or without ``:port``.

        Without a port, 80 and 443 are meant. IPv6 with a port stands in brackets: ``[fd00::1]:8080``,
        ``[fd00::/8]:8080``. Raises ``InvalidSpecError`` for the first entry that cannot be used.
        """
        if isinstance(entries, str):
            raise InvalidSpecError(f"The allow-list {entries!r} is one text; write it as a list of entries.")
        names: dict[str, frozenset[int]] = {}
        suffixes: dict[str, frozenset[int]] = {}
        ranges: list[tuple[IPRange, frozenset[int]]] = []
        for entry in entries:
            try:
                subject, ports = _read_entry(entry.strip())
            except ValueError as error:
                shown = entry if len(entry) <= 100 else entry[:100] + "…"
                raise InvalidSpecError(f"The allow-list entry {shown!r} cannot be used: {error}.") from None
            if not isinstance(subject, str):
                ranges.append((subject, ports))
                continue
            table = suffixes if subject.startswith("*.") else names
            subject = subject.removeprefix("*.")
            table[subject] = table.get(subject, frozenset()) | ports
        return cls(names=names, suffixes=suffixes, ranges=tuple(ranges))

    def refusal(self, host: Host, port: int) -> str | None:
        """Why a request for this host and port is refused before anything is looked up; ``None`` lets it go on."""
        ports: frozenset[int] = frozenset()
        why = "it is not on the allow-list"
        if isinstance(host, str):
            ports |= self.names.get(host, frozenset())
            above = host
            while above:
                above = above.partition(".")[2]
                ports |= self.suffixes.get(above, frozenset())
        else:
            for network, allowed in self.ranges:
                if host not in network:
                    continue
                if is_global(host) or _is_special(network):
                    ports |= allowed
                else:
                    why = "it is a private or special address, which a range that covers public ones does not open"
        if port in ports:
            return None
        if ports:
            return f"of it only port {', '.join(map(str, sorted(ports)))} is on the allow-list"
        return why

    def permits_address(self, address: IPAddress, port: int) -> bool:
        """Whether an address that a listed name resolved to may be dialled."""
        return is_global(address) or self.refusal(plain(address), port) is None


def _read_entry(entry: str) -> tuple[str | IPRange, frozenset[int]]:
    """A name, ``*.name`` or a range, with its ports; ``ValueError`` says what is wrong and how to write it."""
    if "://" in entry:
        raise ValueError("write the host alone, without https:// and path")
    if "@" in entry:
        raise ValueError("write the host alone, without a user before it")
    host, ports = _split_ports(entry)
    if host in {"*", "*."}:
        raise ValueError("to open every host, set the network to full")
    if "/" in host:
        return _read_range(host), ports
    wildcard = host.startswith("*.")
    found = _read_name_or_address(host.removeprefix("*."))
    if is_odd_spelling(found):
        raise ValueError("write an address as four decimal numbers, such as 127.0.0.1")
    if isinstance(found, str):
        return f"*.{found}" if wildcard else found, ports
    if wildcard:
        raise ValueError("write addresses as a range, such as 192.168.1.0/24")
    return ipaddress.ip_network(found), ports


def _split_ports(entry: str) -> tuple[str, frozenset[int]]:
    host, port = entry, ""
    if entry.startswith("["):
        inner, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in inner:
            raise ValueError("write an IPv6 address with a port as [fd00::1]:8080")
        host, port = inner, rest
    elif entry.count(":") == 1:
        host, colon, rest = entry.partition(":")
        port = colon + rest
    if not port:
        return host, DEFAULT_PORTS
    if not _PORT.fullmatch(port[1:]) or not 0 < int(port[1:]) < 65536:
        raise ValueError("after the colon write one port, a number from 1 to 65535")
    return host, frozenset({int(port[1:])})


def _read_range(text: str) -> IPRange:
    advice = "write a host without a path, or a range such as 192.168.1.0/24"
    if not _RANGE.fullmatch(text):
        raise ValueError(advice)
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(advice) from None
    if ipaddress.ip_address(text.partition("/")[0]) != network.network_address:
        raise ValueError(f"the range begins elsewhere, write {network}")
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        raise ValueError("write an IPv4 range in its own form, such as 192.168.1.0/24")
    return network


def _read_name_or_address(text: str) -> Host:
    if not text:
        raise ValueError("a host is missing, write one such as example.com")
    if ":" in text:
        try:
            return read_host(f"[{text}]")
        except ValueError:
            raise ValueError("write an IPv6 address as fd00::1, without a zone") from None
    if not text.isascii():
        if _DEVIATES.search(text):
            raise ValueError("a letter in it has two readings, write the host in its xn-- form")
        try:
            text = text.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("write the host in its xn-- form") from None
    try:
        return read_host(text)
    except ValueError:
        raise ValueError("write a host name such as example.com, *.example.com, or an address") from None
