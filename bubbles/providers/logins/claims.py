"""What a JSON Web Token says of itself (RFC 7519). Its signature is not looked at: it came from its issuer over TLS."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

MAX_CHARS = 16 * 1024
_LONGEST_S = 10 * 365 * 86_400.0


def claims(token: str) -> Mapping[str, Any]:
    """Empty for what is no such token."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_CHARS:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(found: Mapping[str, Any], *names: str) -> str:
    """A short text below these names; empty if there is none."""
    value: Any = found
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) and len(value) <= 254 and value.isprintable() else ""


def lifetime(found: Mapping[str, Any]) -> timedelta | None:
    """From its making to its end; so it does not matter whether this machine's clock is right."""
    begins, ends = found.get("iat"), found.get("exp")
    if isinstance(begins, bool) or isinstance(ends, bool):
        return None
    if not isinstance(begins, int | float) or not isinstance(ends, int | float) or not 0 <= begins < ends <= 1e12:
        return None
    return timedelta(seconds=min(ends - begins, _LONGEST_S))
