"""What the flags of ``bubbles onboard`` ask for, as changes of the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bubbles.config.edit import Change
    from bubbles.config.schema import FileSettings
    from bubbles.providers.registry import Entry

MAX_COMPARED = 60
"""Characters of a name that nobody knows."""
PASSWORD_IN_URL = re.compile(r"://[^\s/@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the flags ask for."""

    model: str | None = None
    provider: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    sandbox: str | None = None


def changes_of(wishes: Wishes, held: FileSettings | None) -> list[Change]:
    """What the flags demand. Raises typer.BadParameter."""
    from bubbles.config.care import looks_secret
    from bubbles.config.edit import Change
    from bubbles.config.references import NAME

    found: list[Change] = []
    defaults = ("agents", "defaults")
    if wishes.model is not None:
        if not wishes.model.strip().isprintable() or not wishes.model.strip():
            raise typer.BadParameter(f"--model {wishes.model!r} is no name of a model: give one such as openai/gpt-5")
        found.append(Change(names=(*defaults, "model"), value=wishes.model.strip()))
    if wishes.provider is not None:
        found.append(Change(names=(*defaults, "provider"), value=_provider_named(wishes.provider)))
    if wishes.api_key_env is not None:
        if looks_secret(wishes.api_key_env) or not NAME.fullmatch(wishes.api_key_env):
            raise typer.BadParameter("--api-key-env takes the name of an environment variable, such as OPENAI_API_KEY")
        names = ("providers", _with_key(_provider(wishes, held, "--api-key-env")), "api_key")
        found.append(Change(names=names, value=f"${{{wishes.api_key_env}}}"))
    if wishes.base_url is not None:
        found.append(Change(names=("providers", _provider(wishes, held, "--base-url"), "base_url"), value=_url(wishes)))
    if wishes.sandbox is not None:
        found.append(Change(names=("tools", "sandbox", "backend"), value=_sandbox(wishes.sandbox)))
    return found


def _provider_named(name: str) -> str:
    from bubbles.providers.registry import REGISTRY, names, spelled

    entry = REGISTRY.get(spelled(name))
    if entry is None:
        raise typer.BadParameter(f"--provider {name!r} is not known: take one of {', '.join(names())}")
    return entry.name


def _with_key(name: str) -> str:
    from bubbles.providers.registry import REGISTRY, Kind

    if REGISTRY[name].kind is Kind.LOGIN:
        raise typer.BadParameter(
            f"--api-key-env is not for {name}, which has no key: run 'bubbles provider login {name}'"
        )
    return name


def meant(model: str) -> Entry | None:
    """The provider that stands before the model's name."""
    from bubbles.providers.registry import of_prefix

    prefix, slash, _ = model.partition("/")
    return of_prefix(prefix) if slash else None


def _provider(wishes: Wishes, held: FileSettings | None, flag: str) -> str:
    """Whose key or address it is: the flags tell, else the file."""
    from bubbles.providers.registry import REGISTRY, spelled

    if wishes.provider is not None:
        return _provider_named(wishes.provider)
    chosen = held.agents.defaults if held else None
    if wishes.model is None and chosen and chosen.provider and (entry := REGISTRY.get(spelled(chosen.provider))):
        return entry.name
    model = wishes.model or (chosen.model if chosen else None) or ""
    if entry := meant(model):
        return entry.name
    raise typer.BadParameter(
        _misspelt(model) or f"{flag} needs to know whose it is: add --provider, such as --provider openai"
    )


def _misspelt(model: str) -> str | None:
    import difflib

    from bubbles.config.care import shown_name
    from bubbles.providers.registry import names, spelled

    prefix, slash, _ = model.strip().partition("/")
    close = difflib.get_close_matches(spelled(prefix)[:MAX_COMPARED], names(), n=1) if slash else None
    return f"{shown_name(prefix)} is no provider; did you mean {close[0]}?" if close else None


def _url(wishes: Wishes) -> str:
    url = (wishes.base_url or "").strip()
    if PASSWORD_IN_URL.search(url) and "${" not in url:
        raise typer.BadParameter(
            "--base-url holds a login, which others can read on a command line: write ${VAR} in place of its password"
        )
    return url


def _sandbox(name: str) -> str:
    from sandbox_backends.registry import backend_names

    names = backend_names()
    if name not in names:
        raise typer.BadParameter(f"--sandbox {name!r} is not known: take one of {', '.join(names)}")
    return name
