"""What is there to think with: keys in the environment and in the settings, logins, servers on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bubbles.cli.setup.contract import Offer
from bubbles.cli.setup.servers import NAME, Found, Served, is_here, look, ollama_address, usual
from bubbles.config.keys import is_key
from bubbles.errors import ConfigError
from bubbles.providers.registry import REGISTRY, Entry, Kind

if TYPE_CHECKING:
    from bubbles.config.schema import ProviderSettings, Settings

MAX_OF_A_SERVER = 4
"""Models of one server that are offered; the others can be named."""
OF_THE_OTHER_REGION = ("ZAI_API_KEY", "Z_AI_API_KEY")
"""Variables whose keys count at ``Entry.elsewhere``."""
HERE = "on this machine"


async def find(settings: Settings) -> list[Offer]:
    """All that can be offered, the best first. Only servers on this machine are asked (SEC-01)."""
    ollama, vllm = (address_of(settings, name) for name in ("ollama", "vllm"))
    found = await look(*(address if is_here(address) else None for address in (ollama, vllm)))
    return offers(settings, found)


def offers(settings: Settings, found: Found) -> list[Offer]:
    """Best first: what is set already, keys, logins, then what this machine serves. Pure."""
    told = [*_of_settings(settings), *_of_environment(settings), *_of_logins(settings), *_of_servers(settings, found)]
    known: dict[tuple[str, str | None], Offer] = {}
    for offer in told:
        known.setdefault((offer.name, offer.variable), offer)
    return list(known.values())


def served(settings: Settings, provider: str, models: tuple[Served, ...], where: str) -> list[Offer]:
    """Offers of a server of the person's own: those that call tools here before others."""
    base_url = address_of(settings, provider)
    written = None if base_url == (_own(settings, REGISTRY[provider]).base_url or usual(provider)) else base_url
    ranked = sorted(models, key=lambda model: (model.remote, model.tools is False))
    return [
        Offer(
            provider=provider,
            model=model.name,
            note="; ".join([_place(model, where), *_skill(model)]),
            base_url=written,
            context_tokens=model.context_tokens,
        )
        for model in ranked
    ]


def address_of(settings: Settings, provider: str) -> str:
    """Where a server of the person's own is: as the settings say, else as ``OLLAMA_HOST`` does, else as usual."""
    told = _own(settings, REGISTRY[provider]).base_url
    if told is None and provider == "ollama":
        told = ollama_address(settings.host_env.get("OLLAMA_HOST"))
        told = None if told in ("http://127.0.0.1:11434", "http://localhost:11434") else told
    return told or usual(provider)


def _of_settings(settings: Settings) -> Iterator[Offer]:
    from bubbles.providers.select import choose, configured

    try:
        choice = choose(settings)
    except ConfigError:
        pass
    else:
        yield Offer(provider=choice.provider, model=choice.model, note="as it is set now", settled=True)
    for entry in configured(settings):
        if entry.default_model is not None and _own(settings, entry).api_key is not None:
            yield Offer(provider=entry.name, model=entry.default_model, note="its key is in the settings")


def _of_environment(settings: Settings) -> Iterator[Offer]:
    environment = settings.host_env
    for entry in REGISTRY.values():
        if entry.default_model is None or entry.key_variable is None:
            continue
        own = _own(settings, entry)
        for variable in (entry.key_variable, *entry.other_variables):
            key = sendable(environment.get(variable))
            if key is None or (own.api_key is not None and own.api_key.get_secret_value() == key):
                continue
            yield Offer(
                provider=entry.name,
                model=entry.default_model,
                note=f"key in {variable}",
                variable=variable,
                base_url=entry.elsewhere if variable in OF_THE_OTHER_REGION else None,
            )
            break


def sendable(key: str | None) -> str | None:
    """The key as a header could carry it, or None."""
    text = (key or "").strip()
    return text if is_key(text) else None


def _of_logins(settings: Settings) -> Iterator[Offer]:
    from bubbles.providers.logins.store import logged_in

    for entry in REGISTRY.values():
        if entry.kind is Kind.LOGIN and entry.default_model and logged_in(settings.data_dir, entry.name):
            yield Offer(provider=entry.name, model=entry.default_model, note="by your login")


def _of_servers(settings: Settings, found: Found) -> Iterator[Offer]:
    yield from served(settings, "ollama", found.ollama, HERE)[:MAX_OF_A_SERVER]
    yield from served(settings, "vllm", found.vllm, HERE)[:MAX_OF_A_SERVER]
    for provider in ("ollama", "vllm"):
        address = address_of(settings, provider)
        if not is_here(address):
            yield Offer(provider=provider, model="", note=f"at {place_of(address)}; not asked yet")


def place_of(address: str) -> str:
    """Host and port of an address, without the login that may be in it."""
    return address.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _place(model: Served, where: str) -> str:
    return "by Ollama, but not on this machine: it hands on what is said" if model.remote else where


def _skill(model: Served) -> Iterator[str]:
    if model.tools is not None:
        yield "calls tools" if model.tools else "cannot call tools"


def _own(settings: Settings, entry: Entry) -> ProviderSettings:
    own: ProviderSettings = getattr(settings.providers, entry.name)
    return own


def named(text: str, found: list[Offer], environment: Mapping[str, str]) -> Offer | None:
    """The offer that a typed ``provider/model`` means: with the key and address of one that was found, if any."""
    from bubbles.providers.registry import of_prefix

    prefix, slash, model = text.partition("/")
    entry = of_prefix(prefix) if slash else None
    if entry is None or not model.strip("/") or not NAME.fullmatch(text):
        return None
    like = next((offer for offer in found if offer.provider == entry.name), None)
    if like is not None:
        return replace(like, model=model, note="", context_tokens=None, settled=like.settled and like.model == model)
    names = [entry.key_variable, *entry.other_variables] if entry.key_variable else []
    variable = next((name for name in names if name and sendable(environment.get(name))), None)
    return Offer(provider=entry.name, model=model, note="", variable=variable)
