"""What was agreed on, as changes of the configuration; and the settings as they would be with it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bubbles.cli.setup.contract import Agreed, Offer
    from bubbles.config.edit import Change
    from bubbles.config.load import Places
    from bubbles.config.schema import FileSettings, Settings

_DEFAULTS = ("agents", "defaults")
LEAST_CONTEXT = 4_000
"""Tokens that ``agents.defaults.context_tokens`` may say at least."""


def changes_for(agreed: Agreed, held: FileSettings | None) -> list[Change]:
    """``held`` is what the file says now. All of it is written at once, and nothing that it says already."""
    from bubbles.config.edit import REMOVE, Change
    from bubbles.config.keys import SERVICE, KeyReference

    found: list[Change] = []
    offer = agreed.offer
    if offer is not None and not offer.settled:
        own = ("providers", offer.provider)
        found.append(Change(names=(*_DEFAULTS, "model"), value=offer.name))
        if held is not None and held.agents.defaults.provider is not None:
            found.append(Change(names=(*_DEFAULTS, "provider"), value=REMOVE))  # the model's prefix says it
        if offer.variable is not None:
            found.append(Change(names=(*own, "api_key"), value=f"${{{offer.variable}}}"))
        elif offer.secret is not None:
            kept = KeyReference(service=SERVICE, name=offer.provider).text
            found.append(Change(names=(*own, "api_key"), value=kept if agreed.in_keyring else _literal(offer.secret)))
        if offer.base_url is not None:
            found.append(Change(names=(*own, "base_url"), value=offer.base_url))
    if offer is not None and (context := context_to_write(offer, held)) is not None:
        found.append(Change(names=(*_DEFAULTS, "context_tokens"), value=context))
    if agreed.sandbox is not None:
        found.append(Change(names=("tools", "sandbox", "backend"), value=agreed.sandbox))
    return found


def context_to_write(offer: Offer, held: FileSettings | None) -> int | None:
    """A server's own limit, where it is below ours: Ollama cuts what is longer, and says nothing."""
    from bubbles.config.schema import AgentDefaults

    ours = (held.agents.defaults if held is not None else AgentDefaults()).context_tokens
    theirs = offer.context_tokens
    return theirs if theirs is not None and LEAST_CONTEXT <= theirs < ours else None


def settings_with(places: Places, offer: Offer | None, *, fresh: bool) -> Settings:
    """The settings in force, as they would be with this offer. Nothing is written. Raises ConfigError.

    ``fresh``: without what the file says now. ``BUBBLES_…`` variables count as they always do.
    """
    from bubbles.config.load import load_settings, variable_of

    environment = {name: value for name, value in places.environment.items() if value}
    if fresh:
        environment["BUBBLES_HOME"] = str(places.data_dir / ".not_there")
    told: dict[str, str] = {}
    if offer is not None and not offer.settled:
        own = ("providers", offer.provider)
        told = {
            variable_of((*_DEFAULTS, "model")): offer.name,
            variable_of((*_DEFAULTS, "provider")): offer.provider,
            variable_of((*own, "api_key")): offer.secret or environment.get(offer.variable or "", ""),
            variable_of((*own, "base_url")): offer.base_url or "",
        }
    settings = load_settings({**told, **environment})
    return settings.model_copy(update={"data_dir": places.data_dir, "host_env": places.environment})


def _literal(secret: str) -> str:
    """As a value in the file, in which ``${`` would begin a reference."""
    return secret.replace("${", "$${")


def program(environment: Mapping[str, str]) -> str:
    """How the person can call Bubbles: by its name if that is found, else as it was called now."""
    if shutil.which("bubbles", path=environment.get("PATH")):
        return "bubbles"
    called = Path(sys.argv[0])
    if called.name != "bubbles":
        return ".venv/bin/bubbles"
    try:
        return str(called.absolute().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(called)
