"""Makes the provider that was chosen. What a path needs is imported when it is chosen."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bubbles.config.schema import ProviderSettings, Settings
from bubbles.errors import ConfigError
from bubbles.providers.contract import Provider
from bubbles.providers.logins.issuers import may_hold_tokens
from bubbles.providers.proxies import proxy_of
from bubbles.providers.registry import REGISTRY, Entry, Kind, Wire
from bubbles.providers.retry import Retrying
from bubbles.providers.select import Choice

if TYPE_CHECKING:
    from bubbles.providers.logins.contract import AccessSource

    Logins = Callable[[str], AccessSource]
    """Of a provider by its name in the registry. Raises ``ConfigError``."""


def provider_for(settings: Settings, choice: Choice, logins: Logins | None = None) -> Provider:
    """The provider with the retries of ``agents.defaults.max_retries`` (PROV-05). Raises ``ConfigError``."""
    return Retrying(make_provider(choice, settings, logins), retries=settings.agents.defaults.max_retries)


async def warm(choice: Choice) -> None:
    """Import what the provider's first request needs: a tenth of a second for ``custom``, seconds for the others."""
    entry = REGISTRY[choice.provider]
    if entry.litellm is None:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        return
    from bubbles.providers.by_litellm.library import library

    await library()


def make_provider(choice: Choice, settings: Settings, logins: Logins | None = None) -> Provider:
    """Without retries. ``logins``: for whatever is kept in the data directory.

    Raises ``ConfigError`` for one that has no address. Whether there is a login is found out by its first request.
    """
    entry = REGISTRY[choice.provider]
    own: ProviderSettings = getattr(settings.providers, entry.name)
    headers = {name: value.get_secret_value() for name, value in own.extra_headers.items()}
    if entry.kind is Kind.LOGIN:
        return _by_login(entry, settings, headers, logins)
    timeout_s = settings.agents.defaults.request_timeout_s
    key = own.api_key.get_secret_value().strip() if own.api_key is not None else None
    address = own.base_url or entry.base_url
    if address is None:
        raise ConfigError(f"The provider {entry.name} has no address: set providers.{entry.name}.baseUrl.")
    proxy = proxy_of(address, settings.host_env)
    if entry.litellm is None:
        from bubbles.providers.custom_client import CustomProvider

        return CustomProvider(
            entry.name, base_url=address, api_key=key, extra_headers=headers, request_timeout_s=timeout_s, proxy=proxy
        )
    from bubbles.providers.by_litellm.client import LitellmProvider

    return LitellmProvider(
        entry, base_url=address, api_key=key, extra_headers=headers, request_timeout_s=timeout_s, proxy=proxy
    )


def _by_login(entry: Entry, settings: Settings, headers: Mapping[str, str], logins: Logins | None) -> Provider:
    own: ProviderSettings = getattr(settings.providers, entry.name)
    if own.base_url is not None and not may_hold_tokens(own.base_url):
        raise ConfigError(
            f"providers.{entry.name}.baseUrl is no address that tokens may go to: write one with https://."
        )
    if logins is None:
        from bubbles.providers.logins.source import source_for

        logins = partial(source_for, settings)
    source, timeout_s, usual = logins(entry.name), settings.agents.defaults.request_timeout_s, entry.base_url or ""
    if entry.wire is Wire.RESPONSES:
        from bubbles.providers.responses.codex import CodexProvider

        address = own.base_url or usual
        proxy = proxy_of(address, settings.host_env)
        return CodexProvider(source, base_url=address, extra_headers=headers, request_timeout_s=timeout_s, proxy=proxy)
    from bubbles.providers.copilot_client import CopilotProvider

    return CopilotProvider(
        source,
        base_url=own.base_url,
        usual=usual,
        extra_headers=headers,
        request_timeout_s=timeout_s,
        proxy_for=lambda address: proxy_of(address, settings.host_env),
    )
