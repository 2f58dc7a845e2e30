"""Which addresses of the network may be reached: the sandboxes' rules, for tools that reach out by themselves."""

from sandbox_backends.egress.allow import (
    AllowList,
    Host,
    IPAddress,
    entry_for,
    host_text,
    is_global,
    is_odd_spelling,
    plain,
    read_host,
)
from sandbox_backends.errors import InvalidSpecError

__all__ = [
    "AllowList",
    "Host",
    "IPAddress",
    "InvalidSpecError",
    "entry_for",
    "host_text",
    "is_global",
    "is_odd_spelling",
    "plain",
    "read_host",
]
