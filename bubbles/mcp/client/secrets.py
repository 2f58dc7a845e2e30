"""What of a server's settings is never shown, logged or kept: its environment, its headers, parts of its address."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from bubbles.config.schema import McpServerSettings
from bubbles.controller.redaction import Redactor


def secrets_of_server(settings: McpServerSettings) -> Redactor:
    """Knows them, whatever they look like; those that are too short to be a secret are not looked for."""
    return Redactor(_found(settings))


def _found(settings: McpServerSettings) -> Iterator[str]:
    for held in (*settings.env.values(), *settings.headers.values()):
        value = held.get_secret_value()
        yield value
        yield value.rpartition(" ")[2]  # without "Bearer"
    url = urlsplit(settings.url or "")
    login = url.netloc.rpartition("@")[0]
    for part in (login, *login.split(":", 1), url.query, *(value for _, value in parse_qsl(url.query))):
        yield part
        yield unquote(part)
