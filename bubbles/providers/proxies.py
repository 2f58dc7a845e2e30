"""Which proxy a person has set for an address, by the variables that programs agree on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from bubbles.errors import ConfigError

_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1")
_USUAL_PORTS = {"http": 80, "https": 443}


def proxy_of(url: str, env: Mapping[str, str]) -> str | None:
    """Of ``https_proxy``, ``http_proxy`` or ``all_proxy``, unless ``no_proxy`` names the host; never for this machine.

    Lower case wins. Only HTTP proxies: None for others, such as SOCKS. ``no_proxy`` holds names, each with all below
    it, addresses, and ``*``, with or without a port. None too for a ``url`` that is no address: who is to send there
    says so. Raises ``ConfigError`` for a proxy that is none.
    """
    try:
        parts = urlsplit(url)
        host, own_port = (parts.hostname or "").lower(), parts.port or _USUAL_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not host or is_loopback(host) or host.endswith(".localhost"):
        return None
    for entry in (_of(env, "no_proxy") or "").lower().split(","):
        name, _, port = entry.strip().partition(":")
        name = name.removeprefix("*").removeprefix(".") if name != "*" else name
        if name and (not port or port == str(own_port)) and (name in ("*", host) or host.endswith(f".{name}")):
            return None
    proxy = _of(env, f"{parts.scheme}_proxy") or _of(env, "all_proxy") or ""
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        return None
    try:
        _ = urlsplit(proxy).port
    except ValueError:  # its words may hold a piece of a password
        raise ConfigError(f"The proxy in {parts.scheme}_proxy or all_proxy is no address: correct it.") from None
    return proxy


def is_loopback(host: str) -> bool:
    """Whether this is a usual way to write this very machine; no name is looked up."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def _of(env: Mapping[str, str], name: str) -> str | None:
    return env.get(name) or env.get(name.upper())
