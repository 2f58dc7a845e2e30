"""Reading a web address such that everybody after us reads the same: a host that has two readings is no host.

Pure. What is sent is put together from what was read, never the text that came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urljoin

from bubbles.controller.addresses import Host, host_text, is_odd_spelling, read_host

MAX_ADDRESS = 4_096
"""Characters, as they come and as they are sent."""
USUAL_PORTS = {"http": 80, "https": 443}

_SHAPE = re.compile(r"(?i:(https?))://([^/?#]*)([^#]*)")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_SENT = "!#$%&'()*+,/:;=?@[]~"
"""What stands for itself in a path and a query (RFC 3986), with % of what is encoded already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    """Of one page. Made by :func:`read_address`."""

    scheme: str
    host: Host
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def origin(self) -> str:
        """Without a path, such as ``https://example.com``; the port only where it is not the usual one."""
        return self._at(host_text(self.host))

    @property
    def text(self) -> str:
        return f"{self.origin}{self.target}"

    def at(self, host: Host) -> str:
        """The same page as it is asked for at an address of its host."""
        return f"{self._at(host_text(host))}{self.target}"

    def _at(self, host: str) -> str:
        port = "" if self.port == USUAL_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


def read_address(text: str) -> WebAddress:
    """``ValueError``, with the reason, for what is no address of the web or could be read in two ways."""
    if len(text) > MAX_ADDRESS:
        raise ValueError(f"it is longer than {MAX_ADDRESS:,} characters")
    if "\\" in text or any(character.isspace() or ord(character) < 32 or character == "\x7f" for character in text):
        raise ValueError("it holds a blank, a backslash or a control character")
    shape = _SHAPE.match(text)
    if shape is None:
        raise ValueError("it does not begin with http:// or https://")
    scheme, authority, rest = shape[1].lower(), shape[2], shape[3]
    if "@" in authority:
        raise ValueError("it holds a user name or password")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError("its host cannot be read")
    port = int(parts[2]) if parts[2] else USUAL_PORTS[scheme]
    if not 0 < port < 65_536:
        raise ValueError("its port is none from 1 to 65535")
    target = quote(rest if rest.startswith("/") else f"/{rest}", _SENT, errors="surrogateescape")
    address = WebAddress(scheme=scheme, host=_host(parts[1]), port=port, target=target)
    if len(address.text) > MAX_ADDRESS:
        raise ValueError(f"it is longer than {MAX_ADDRESS:,} characters")
    return address


def joined(address: WebAddress, location: str) -> WebAddress:
    """Where a redirect from ``address`` leads. Raises ``ValueError`` as :func:`read_address`."""
    if len(location) > MAX_ADDRESS or "\\" in location or not location.strip():
        raise ValueError("it is empty, too long or holds a backslash")
    return read_address(urljoin(address.text, location))


def _host(text: str) -> Host:
    if not text:
        raise ValueError("it names no host")
    name = text
    if not text.isascii():
        import idna  # a table of all letters

        try:
            name = idna.encode(text, uts46=True).decode("ascii") if len(text) <= 253 else ""
        except UnicodeError:  # idna's own errors are among them
            name = ""
        if not name:
            raise ValueError("its host is no name that could be")
    try:
        host = read_host(name)
    except ValueError:
        raise ValueError("its host is neither a name nor an address") from None
    if is_odd_spelling(host):
        raise ValueError("its host is an address in an odd spelling: write four decimal numbers")
    if name is not text and not isinstance(host, str):
        raise ValueError("its host is an address in letters that only look like numbers")
    return host
