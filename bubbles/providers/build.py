"""Makes the provider that was chosen. What a path needs is imported when it is chosen."""

from __future__ import annotations

import asyncio
import importlib

from bubbles.config.schema import ProviderSettings, Settings
from bubbles.errors import ConfigError
from bubbles.providers.contract import Provider
from bubbles.providers.proxies import proxy_of
from bubbles.providers.registry import REGISTRY
from bubbles.providers.retry import Retrying
from bubbles.providers.select import Choice


def provider_for(settings: Settings, choice: Choice) -> Provider:
    """The provider with the retries of ``agents.defaults.max_retries`` (PROV-05). Raises ``ConfigError``."""
    return Retrying(make_provider(choice, settings), retries=settings.agents.defaults.max_retries)


async def warm(choice: Choice) -> None:
    """Import what the provider's first request needs: a tenth of a second for ``custom``, seconds for the others."""
    entry = REGISTRY[choice.provider]
    if entry.to_come is not None:
        return
    if entry.litellm is None:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        return
    from bubbles.providers.litellm_library import library

    await library()


def make_provider(choice: Choice, settings: Settings) -> Provider:
    """Without retries. Raises ``ConfigError`` for one that cannot be used, or that has no address."""
    entry = REGISTRY[choice.provider]
    if entry.to_come is not None:
        raise ConfigError(entry.to_come)
    own: ProviderSettings = getattr(settings.providers, entry.name)
    key = own.api_key.get_secret_value().strip() if own.api_key is not None else None
    headers = {name: value.get_secret_value() for name, value in own.extra_headers.items()}
    timeout_s = settings.agents.defaults.request_timeout_s
    address = own.base_url or entry.base_url
    if address is None:
        raise ConfigError(f"The provider {entry.name} has no address: set providers.{entry.name}.baseUrl.")
    proxy = proxy_of(address, settings.host_env)
    if entry.litellm is None:
        from bubbles.providers.custom_client import CustomProvider

        return CustomProvider(
            entry.name, base_url=address, api_key=key, extra_headers=headers, request_timeout_s=timeout_s, proxy=proxy
        )
    from bubbles.providers.litellm_client import LitellmProvider

    return LitellmProvider(
        entry, base_url=address, api_key=key, extra_headers=headers, request_timeout_s=timeout_s, proxy=proxy
    )
