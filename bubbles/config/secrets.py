"""The secrets that the settings hold, so that whoever keeps or shows a text can take them out of it (SEC-03)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from pydantic import SecretStr

from bubbles.config.care import looks_secret
from bubbles.config.channels import ChannelSettings
from bubbles.config.schema import ChannelsSettings, FileSettings, McpServerSettings, ProvidersSettings
from bubbles.config.values import Section

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|pass|credential|signature", re.IGNORECASE)
_LOOKS_RANDOM = re.compile(r"(?=[^\d]{0,200}\d)(?=[^A-Za-z]{0,200}[A-Za-z])[^\s/:]{12,}")
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|apikey)\s+(.+)", re.IGNORECASE)
_SECRET_QUERY = re.compile(rf"{_SECRET_HEADER.pattern}|^(?:sig|code)$", re.IGNORECASE)
_PASSWORD_OF_URL = re.compile(r"://([^\s/@]{1,512})@")


def secrets_of(settings: FileSettings) -> tuple[str, ...]:
    """Keys of providers and of the search service, tokens of channels and of the gateway, headers that look secret, and
    logins in addresses; each once.

    For ``Redactor``. Those of the environment are not in it, unless a setting took its value from there.
    """
    return tuple(dict.fromkeys(secret for secret in _found(settings) if secret))


def _found(settings: FileSettings) -> Iterator[str]:
    for name in ProvidersSettings.model_fields:
        provider = getattr(settings.providers, name)
        if provider.api_key is not None:
            yield provider.api_key.get_secret_value()
        for header, held in provider.extra_headers.items():
            yield from _of_header(header, held.get_secret_value())
        if provider.base_url:
            yield from _of_address(provider.base_url)
    web = settings.tools.web
    if web.search_api_key is not None:
        yield web.search_api_key.get_secret_value()
    yield from _of_address(web.search_url)
    for server in settings.tools.mcp_servers.values():
        yield from _of_server(server)
    for section in (settings.gateway, *_channels(settings.channels)):
        yield from _of_fields(section)


def _channels(channels: ChannelsSettings) -> Iterator[ChannelSettings]:
    for name in ChannelsSettings.model_fields:
        if isinstance(held := getattr(channels, name), ChannelSettings):
            yield held


def _of_fields(section: Section) -> Iterator[str]:
    """Every field that is a secret, and what is secret of those that are addresses."""
    for name in type(section).model_fields:
        held = getattr(section, name)
        if isinstance(held, SecretStr):
            yield held.get_secret_value()
        elif isinstance(held, str):
            yield from _of_address(held)


def _of_server(server: McpServerSettings) -> Iterator[str]:
    for name, held in (*server.env.items(), *server.headers.items()):
        yield from _of_header(name, held.get_secret_value())
    if server.url:
        yield from _of_address(server.url)
    before = ""
    for argument in server.args:
        name, equals, value = argument.partition("=")
        option = name if equals else before
        if looks_secret(argument) or (option.startswith("-") and _SECRET_HEADER.search(option)):
            yield value if equals else argument
        yield from _of_address(argument)
        before = argument


def _of_header(name: str, value: str) -> Iterator[str]:
    if _SECRET_HEADER.search(name) or _LOOKS_RANDOM.fullmatch(value):
        yield value
        if scheme := _SCHEME.fullmatch(value):
            yield scheme[1]


def _of_address(address: str) -> Iterator[str]:
    """The password, as it is written and as it is meant; a user without a password is a key, and so may be a part of
    the query.
    """
    for login in _PASSWORD_OF_URL.findall(address):
        user, colon, password = login.partition(":")
        secret = password if colon else user
        yield from (secret, unquote(secret))
    for part in address.partition("?")[2].partition("#")[0].split("&"):
        name, _, value = part.partition("=")
        if _SECRET_QUERY.search(name):
            yield from (value, unquote(value))
