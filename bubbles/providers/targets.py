"""Where requests go, and with which headers."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import bubbles
from bubbles.providers.exchange import Target

_OURS = frozenset({"content-length", "transfer-encoding", "content-type", "accept-encoding", "connection"})
"""Headers that say how a request is sent, which is not for the settings to choose."""
USER_AGENT = f"bubbles/{bubbles.__version__}"


def target_of(
    base_url: str,
    endpoint: str,
    *,
    headers: Mapping[str, str],
    extra: Mapping[str, str],
    proxy: str | None,
    secrets: Iterable[str] = (),
) -> Target:
    """``base_url`` may end in ``endpoint`` already. ``extra`` are the person's own headers, which win over ``headers``.

    ``secrets`` must not be in any error; neither will be what is in the extra headers and in the addresses. Raises
    ValueError for an address that is none.
    """
    parts = urlsplit(base_url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it names no host")
    user, at, host = parts.netloc.rpartition("@")
    mine = {"User-Agent": USER_AGENT, "Accept": "text/event-stream, application/json"}
    if at:
        mine["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    mine |= headers
    chosen = {name.lower() for name in extra}
    mine = {name: value for name, value in mine.items() if name.lower() not in chosen}
    mine |= {name: value for name, value in extra.items() if name.lower() not in _OURS}
    mine |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    path = parts.path.rstrip("/")
    keys = [*secrets, *(value for _, value in parse_qsl(parts.query)), *user.split(":"), unquote(user)]
    keys += [part for address in (proxy,) if address for part in urlsplit(address).netloc.rpartition("@")[0].split(":")]
    keys += [word for value in [*extra.values(), mine.get("Authorization", "")] for word in (value, *value.split())]
    return Target(
        url=urlunsplit((parts.scheme, host, path if path.endswith(endpoint) else path + endpoint, parts.query, "")),
        headers=mine,
        proxy=proxy,
        secrets=tuple(key for key in keys if key not in ("", "Bearer", "Basic")),
    )
