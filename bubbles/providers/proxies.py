"""Which proxy a person has set for an address, by the variables that programs agree on."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_LOCAL = ("localhost", "127.", "[::1]", "::1")


def proxy_of(url: str, env: Mapping[str, str]) -> str | None:
    """Of ``https_proxy``, ``http_proxy`` or ``all_proxy``, unless ``no_proxy`` names the host; never for this machine.

    Lower case wins. Only HTTP proxies: None for others, such as SOCKS. ``no_proxy`` holds names, each with all below
    it, addresses, and ``*``, with or without a port.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if not host or host.startswith(_LOCAL):
        return None
    for entry in (_of(env, "no_proxy") or "").lower().split(","):
        name, _, port = entry.strip().partition(":")
        name = name.removeprefix("*").removeprefix(".") if name != "*" else name
        if name and (not port or port == str(parts.port)) and (name in ("*", host) or host.endswith(f".{name}")):
            return None
    proxy = _of(env, f"{parts.scheme}_proxy") or _of(env, "all_proxy") or ""
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy if proxy.startswith(("http://", "https://")) else None


def _of(env: Mapping[str, str], name: str) -> str | None:
    return env.get(name) or env.get(name.upper())
