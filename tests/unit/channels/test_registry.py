"""Which channels there are, and that none costs anything before it is on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from bubbles.channels import registry
from bubbles.channels.contract import FatalChannelError, Manifest
from bubbles.config.channels import ChannelSettings, TelegramSettings
from bubbles.config.schema import ChannelsSettings

ROOT = Path(__file__).parents[3]
LIBRARIES = "telegram httpx discord slack_sdk nio socketio botpy wcferry aiohttp lark_oapi dingtalk_stream"
PAPER = f"""
import sys
from bubbles.channels import registry
known = [registry.missing(manifest) for manifest in registry.manifests()]
print(sorted(set({LIBRARIES!r}.split()) & set(sys.modules)))
"""


class NoMemory:
    async def load(self, key: str) -> str | None:
        return None

    async def save(self, key: str, value: str) -> None:
        return


def of_nothing(**fields: object) -> Manifest:
    return Manifest(**{"name": "other", "extra": "other", "module": "bubbles.channels.contract", **fields})  # type: ignore[arg-type]


@pytest.mark.req("CHAN-01")
def test_every_channel_with_settings_is_in_the_registry() -> None:
    with_settings = [
        name for name in ChannelsSettings.model_fields if isinstance(getattr(ChannelsSettings(), name), ChannelSettings)
    ]
    assert [manifest.name for manifest in registry.manifests()] == with_settings
    assert list(registry.MANIFESTS) == with_settings


def test_knowing_all_channels_imports_no_library_of_any() -> None:
    done = subprocess.run([sys.executable, "-c", PAPER], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_channel_is_on_when_its_owner_says_so() -> None:
    on = ChannelsSettings(telegram=TelegramSettings(enabled=True, allow_from=("7",)))
    assert registry.enabled(ChannelsSettings()) == ()
    assert [manifest.name for manifest in registry.enabled(on)] == ["telegram"]
    assert registry.settings_of(on, "telegram") is on.telegram
    for name in ("carrier_pigeon", "session_mode"):
        with pytest.raises(KeyError):
            registry.settings_of(on, name)


def test_a_library_that_is_not_there_is_named_with_how_to_get_it() -> None:
    manifest = of_nothing(requires=("json", "no_such_library"))
    assert registry.missing(manifest) == ("no_such_library",)
    with pytest.raises(FatalChannelError) as caught:
        registry.made(manifest, ChannelSettings(), NoMemory())
    assert str(caught.value) == ("channels.other needs a library that is not there: run pip install 'bubbles[other]'.")


def test_a_library_that_cannot_be_loaded_keeps_its_channel_off_with_the_reason() -> None:
    manifest = of_nothing(module="bubbles.channels.no_such_channel")
    with pytest.raises(
        FatalChannelError, match=r"channels\.other cannot be loaded \(No module named .*no_such_channel"
    ):
        registry.made(manifest, ChannelSettings(), NoMemory())


@pytest.mark.parametrize("manifest", registry.manifests(), ids=lambda manifest: manifest.name)
def test_a_manifest_tells_the_truth(manifest: Manifest) -> None:
    assert registry.missing(manifest) == ()  # the development extras hold all of them
    channel = registry.make(manifest.name, TelegramSettings(enabled=True, token=SecretStr("1:a")), NoMemory())
    assert channel.name == manifest.name
