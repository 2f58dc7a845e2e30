"""Every channel by name. No platform's library is imported before its channel is made (SPEC 7.2)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

from bubbles.channels.contract import Channel, FatalChannelError, Manifest, Memory
from bubbles.config.channels import ChannelSettings
from bubbles.config.schema import ChannelsSettings

MANIFESTS: Mapping[str, Manifest] = MappingProxyType(
    {
        manifest.name: manifest
        for manifest in (
            Manifest(
                name="telegram",
                extra="telegram",
                requires=("telegram",),
                module="bubbles.channels.telegram.channel",
            ),
        )
    }
)


def manifests() -> tuple[Manifest, ...]:
    """Of all channels, in the order of the settings."""
    return tuple(MANIFESTS.values())


def missing(manifest: Manifest) -> tuple[str, ...]:
    """Modules of its library that are not installed."""
    return tuple(name for name in manifest.requires if importlib.util.find_spec(name) is None)


def settings_of(channels: ChannelsSettings, name: str) -> ChannelSettings:
    """Of the channel of this name. KeyError if there is none."""
    settings = getattr(channels, MANIFESTS[name].name)
    if not isinstance(settings, ChannelSettings):
        raise KeyError(name)
    return settings


def enabled(channels: ChannelsSettings) -> tuple[Manifest, ...]:
    """Those that are on."""
    return tuple(manifest for manifest in manifests() if settings_of(channels, manifest.name).enabled)


def make(name: str, settings: ChannelSettings, memory: Memory) -> Channel:
    """Imports the channel's library. FatalChannelError if it is not there or the settings do not do."""
    return made(MANIFESTS[name], settings, memory)


def made(manifest: Manifest, settings: ChannelSettings, memory: Memory) -> Channel:
    """The same for a channel that need not be in the registry."""
    mend = f"run pip install 'bubbles[{manifest.extra}]'"
    if missing(manifest):
        raise FatalChannelError(f"channels.{manifest.name} needs a library that is not there: {mend}.")
    try:
        runtime = importlib.import_module(manifest.module)
    except ImportError as error:
        words = " ".join(str(error).split())[:200]
        raise FatalChannelError(
            f"channels.{manifest.name} cannot be loaded ({words}): the library may be damaged or too old, {mend}."
        ) from error
    channel: Channel = runtime.make(settings, memory)
    return channel
