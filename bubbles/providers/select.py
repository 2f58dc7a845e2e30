"""Which provider answers for a model, and why (PROV-02, PROV-03). Pure: settings in, a choice out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bubbles.config.care import careful
from bubbles.config.schema import ProviderSettings, Settings
from bubbles.errors import ConfigError
from bubbles.providers.registry import NOBODYS, REGISTRY, Entry, Kind, names, of_prefix, spelled

MAX_NAME_CHARS = 256
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\ud800-\udfff]")
_MODEL = "agents.defaults.model"
_PROVIDER = "agents.defaults.provider"
_ONBOARD = "bubbles onboard"
_LOGIN = "bubbles provider login"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    provider: str
    """A name of the registry that can be used."""
    model: str
    """As the provider knows it."""
    model_given: str
    """As the person wrote it."""
    reason: str
    """Why this provider: one sentence for the person."""


def choose(settings: Settings, *, model: str | None = None, provider: str | None = None) -> Choice:
    """The provider for ``model``, else for ``agents.defaults.model``. The first rule that says something decides:

    1. ``provider``, else ``agents.defaults.provider``, if one is written. Its own name is taken off the model.
    2. What stands before the model's first ``/``, if it names a provider: ``deepseek/deepseek-chat``, and
       ``openrouter/anthropic/claude-…``, of which ``anthropic/claude-…`` is left.
    3. Keywords in the model's name, such as ``claude``, if one provider of those that they mean is configured.
    4. The only provider that is configured.

    Configured is who has a key or an address in the settings. If rule 2 or 3 leads to one that needs a key and has
    none, the only configured gateway, or server of the person's own, gets the model, under its whole name. Another
    vendor never does. Who needs a login is never chosen unless by rule 1 or 2, whether there is one or not.

    Raises ``ConfigError``, with the mend: no model; an unknown provider; one without its key or address; or several
    that are equally good, which it names.
    """
    defaults = settings.agents.defaults
    given = _checked(model if model is not None else defaults.model)
    named = provider if provider is not None else defaults.provider
    if named is not None and named.strip():
        return _by_name(settings, given, named)
    prefix, slash, _ = given.partition("/")
    entry = of_prefix(prefix) if slash else None
    if entry is not None:
        return _by_prefix(settings, given, entry)
    return _by_keyword(settings, given) or _by_configuration(settings, given)


def configured(settings: Settings) -> tuple[Entry, ...]:
    """The providers that have a key or an address, without those that need a login."""
    return tuple(
        entry for entry in REGISTRY.values() if entry.kind is not Kind.LOGIN and _is_configured(settings, entry)
    )


def _checked(model: str | None) -> str:
    name = (model or "").strip()
    if not name:
        raise ConfigError(
            f"No model is set: run '{_ONBOARD} --model anthropic/claude-sonnet-5-5 --api-key-env ANTHROPIC_API_KEY', "
            f"or set {_MODEL}."
        )
    if len(name) > MAX_NAME_CHARS or _UNPRINTABLE.search(name):
        raise ConfigError(f"The model {_shown(name)} is no model's name: correct {_MODEL}.")
    return name


def _by_name(settings: Settings, given: str, named: str) -> Choice:
    entry = REGISTRY.get(spelled(named))
    if entry is None:
        close = difflib.get_close_matches(spelled(named)[:MAX_NAME_CHARS], REGISTRY, n=1)
        mend = f"did you mean {close[0]}?" if close else f"known are {', '.join(names())}."
        raise ConfigError(f"There is no provider {_shown(named)}: {mend}")
    _demand_usable(settings, entry, given)
    prefix, slash, rest = given.partition("/")
    own = slash and of_prefix(prefix) is entry
    return _chosen(entry, rest if own else given, given, f"provider is set to {entry.name}")


def _by_prefix(settings: Settings, given: str, entry: Entry) -> Choice:
    prefix, _, rest = given.partition("/")
    why = f"the model's prefix '{prefix}/' names it"
    if _is_configured(settings, entry) or not entry.needs_key:
        _demand_usable(settings, entry, given)
        return _chosen(entry, rest, given, why)
    return _instead(settings, given, (entry,), f"the model's prefix '{prefix}/' names {entry.name}")


def _by_keyword(settings: Settings, given: str) -> Choice | None:
    found = _meant(given)
    if not found:
        return None
    ready = [(entry, keyword) for entry, keyword in found if _is_configured(settings, entry)]
    if len(ready) == 1:
        entry, keyword = ready[0]
        return _chosen(entry, given, given, f"'{keyword}' in the model's name means it")
    if ready:
        raise _ambiguous(given, [entry for entry, _ in ready])
    _, keyword = found[0]
    meant = tuple(entry for entry, _ in found)
    return _instead(settings, given, meant, f"'{keyword}' in the model's name means {meant[0].name}")


def _by_configuration(settings: Settings, given: str) -> Choice:
    known = configured(settings)
    if not known:
        raise ConfigError(f"No provider is configured for the model {_shown(given)}{_to_configure_one(settings)}")
    if len(known) > 1:
        raise _ambiguous(given, known)
    _demand_usable(settings, known[0], given)
    return _chosen(known[0], given, given, "it is the only provider that is configured")


def _instead(settings: Settings, given: str, meant: tuple[Entry, ...], said: str) -> Choice:
    """Whoever passes the models of others on, as those whose models they are have no key."""
    others = [entry for entry in configured(settings) if entry.kind in (Kind.GATEWAY, Kind.OWN)]
    if not others:
        _demand_usable(settings, meant[0], given)
    if len(others) > 1:
        raise _ambiguous(given, others)
    _demand_usable(settings, others[0], given)
    return _chosen(
        others[0], given, given, f"{said}, which has no key, and this is the only configured one that offers others'"
    )


def _meant(given: str) -> list[tuple[Entry, str]]:
    """The providers that keywords in the name mean, each with the keyword."""
    name = given.lower()
    if any(_occurs(word, name) for word in NOBODYS):
        return []
    found = (
        (entry, next((word for word in entry.keywords if _occurs(word, name)), None)) for entry in REGISTRY.values()
    )
    return [(entry, keyword) for entry, keyword in found if keyword is not None]


def _occurs(keyword: str, name: str) -> bool:
    """At the beginning of a word, as ``o1`` is a model and ``turbo1`` is none."""
    return re.search(rf"(?<![a-z0-9]){re.escape(keyword)}", name) is not None


def _is_configured(settings: Settings, entry: Entry) -> bool:
    own = _of(settings, entry)
    return _has_key(own) or own.base_url is not None


def _of(settings: Settings, entry: Entry) -> ProviderSettings:
    own: ProviderSettings = getattr(settings.providers, entry.name)
    return own


def _has_key(own: ProviderSettings) -> bool:
    return own.api_key is not None and bool(own.api_key.get_secret_value().strip())


def _demand_usable(settings: Settings, entry: Entry, given: str) -> None:
    """Raises ``ConfigError`` if a request to it could not even be tried."""
    own = _of(settings, entry)
    if own.base_url is None and entry.base_url is None:
        raise ConfigError(f"The provider {entry.name} has no address{_to_set_address(settings, entry)}")
    if entry.needs_key and not _is_configured(settings, entry):
        said = f"The model {_shown(given)} needs a key of {entry.name}, and none is set"
        raise ConfigError(f"{said}{_to_set_key(settings, entry, given)}")


def _to_set_key(settings: Settings, entry: Entry, given: str) -> str:
    if awaited := _awaited(settings, entry, "api_key"):
        return f"; export {awaited}=…: the configuration takes the key from there."
    variable = entry.key_variable or "API_KEY"
    if settings.agents.defaults.model in (None, given):
        return f": export {variable} and run '{_ONBOARD} --provider {entry.name} --api-key-env {variable}'."
    # A session's own model: the command would give the others this provider too.
    return f": export {variable}, and set providers.{entry.name}.apiKey to ${{{variable}}} in config.json."


def _to_set_address(settings: Settings, entry: Entry) -> str:
    if awaited := _awaited(settings, entry, "base_url"):
        return f"; export {awaited}=…: the configuration takes the address from there."
    return (
        f": run '{_ONBOARD} --provider {entry.name} --base-url http://localhost:8080/v1' with the address of yours, "
        f"or set providers.{entry.name}.baseUrl."
    )


def _to_configure_one(settings: Settings) -> str:
    for entry in REGISTRY.values():
        for name, what in (("api_key", "key"), ("base_url", "address")):
            if entry.kind is not Kind.LOGIN and (awaited := _awaited(settings, entry, name)):
                return f"; export {awaited}=…: the configuration takes the {what} of {entry.name} from there."
    return (
        f": run '{_ONBOARD} --provider NAME --api-key-env VARIABLE', '{_ONBOARD} --provider custom --base-url URL' for "
        f"a server of your own, or '{_LOGIN} openai_codex' and '{_ONBOARD} --provider openai_codex' for ChatGPT's. "
        f"Names are {', '.join(names())}."
    )


def _awaited(settings: Settings, entry: Entry, name: str) -> str | None:
    """The environment variable that the configuration names for this, where it is not set: ``load`` warns of it."""
    said = re.compile(rf": providers\.{entry.name}\.{name} needs the environment variable (\w+), which is not set")
    return next((found[1] for warning in settings.provider_warnings if (found := said.search(warning))), None)


def _ambiguous(given: str, entries: Sequence[Entry]) -> ConfigError:
    names = [entry.name for entry in entries]
    return ConfigError(
        f"Which provider the model {_shown(given)} is for is not clear, as {', '.join(names)} are configured: "
        f"set {_PROVIDER} to one of them, as '{_ONBOARD} --provider {names[0]}' does, or write "
        f"{names[0]}/{_shown(given)}."
    )


def _chosen(entry: Entry, model: str, given: str, reason: str) -> Choice:
    if not model.strip("/"):
        raise ConfigError(f"The model {_shown(given)} is only a provider's name: write the model's name after the /.")
    return Choice(provider=entry.name, model=model, model_given=given, reason=reason)


def _shown(text: str) -> str:
    """A key that was pasted in the wrong place is not shown."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in careful(text[: MAX_NAME_CHARS + 1]))
    return plain if len(plain) <= 80 else f"{plain[:77]}..."
