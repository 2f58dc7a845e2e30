"""What a first run offers, and what it would write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from bubbles.cli.setup.contract import Agreed, Offer
from bubbles.cli.setup.looking import named, offers
from bubbles.cli.setup.servers import Found, Served, is_here, ollama_address
from bubbles.cli.setup.writing import changes_for, program, settings_with
from bubbles.config.edit import REMOVE
from bubbles.config.load import find_places, load_settings
from bubbles.config.schema import FileSettings, ProvidersSettings, Settings
from bubbles.providers.registry import REGISTRY, Entry, Kind
from bubbles.providers.select import choose

KEY = "sk-canary-0123456789"


def settings(tmp_path: Path, **environment: str) -> Settings:
    return load_settings({"HOME": str(tmp_path), **environment})


def names(found: list[Offer]) -> list[str]:
    return [offer.name for offer in found]


@pytest.mark.req("PROV-02")
@pytest.mark.parametrize("entry", [entry for entry in REGISTRY.values() if entry.default_model], ids=lambda e: e.name)
def test_a_default_model_leads_to_its_provider_when_it_is_written(tmp_path: Path, entry: Entry) -> None:
    given = settings(tmp_path, BUBBLES_AGENTS__DEFAULTS__MODEL=f"{entry.name}/{entry.default_model}")
    if entry.kind is not Kind.LOGIN:
        own = getattr(given.providers, entry.name).model_copy(update={"api_key": SecretStr(KEY)})
        given = given.model_copy(update={"providers": given.providers.model_copy(update={entry.name: own})})
    choice = choose(given)
    assert (choice.provider, choice.model) == (entry.name, entry.default_model)


def test_every_provider_with_a_key_has_a_model_to_begin_with() -> None:
    without = [entry.name for entry in REGISTRY.values() if entry.default_model is None]
    assert [REGISTRY[name].kind for name in without] == [Kind.OWN] * len(without)
    variables = [name for entry in REGISTRY.values() for name in (entry.key_variable, *entry.other_variables) if name]
    assert len(variables) == len(set(variables))


@pytest.mark.req("CLI-01", "SEC-01")
def test_what_is_set_comes_first_then_keys_then_logins_then_this_machine(tmp_path: Path) -> None:
    (tmp_path / ".bubbles" / "logins").mkdir(parents=True)
    (tmp_path / ".bubbles" / "logins" / "openai_codex.json").write_text("{}")
    given = settings(
        tmp_path,
        GROQ_API_KEY=KEY,
        GOOGLE_API_KEY=KEY,
        ANTHROPIC_API_KEY="not one\nline",
        BUBBLES_PROVIDERS__MINIMAX__API_KEY=KEY,
        BUBBLES_AGENTS__DEFAULTS__MODEL="minimax/M",
        BUBBLES_PROVIDERS__VLLM__BASE_URL="http://nas:8000/v1",
    )
    here = (
        Served(name="none", tools=False),
        Served(name="cloud", tools=True, remote=True),
        Served(name="t", tools=True),
    )
    found = offers(given, Found(ollama=here))
    assert names(found) == [
        "minimax/M",
        f"minimax/{REGISTRY['minimax'].default_model}",
        f"gemini/{REGISTRY['gemini'].default_model}",
        f"groq/{REGISTRY['groq'].default_model}",
        f"openai_codex/{REGISTRY['openai_codex'].default_model}",
        "ollama/t",
        "ollama/none",
        "ollama/cloud",
        "vllm",
    ]
    assert [offer.variable for offer in found[2:4]] == ["GOOGLE_API_KEY", "GROQ_API_KEY"]
    assert "not on this machine" in found[-2].note
    assert found[-1].note == "at nas:8000; not asked yet"
    assert KEY not in repr(found)


def test_a_key_of_the_other_region_goes_to_its_address(tmp_path: Path) -> None:
    (offer,) = offers(settings(tmp_path, ZAI_API_KEY=KEY), Found())
    assert (offer.provider, offer.base_url) == ("zhipu", "https://api.z.ai/api/paas/v4")
    (offer,) = offers(settings(tmp_path, ZAI_API_KEY=KEY, ZHIPUAI_API_KEY=KEY), Found())
    assert (offer.variable, offer.base_url) == ("ZHIPUAI_API_KEY", None)


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("nas", "http://nas:11434"),
        ("nas:80", "http://nas:80"),
        ("http://nas", "http://nas:80"),
        ("https://nas/", "https://nas:443"),
        (" 0.0.0.0 ", "http://127.0.0.1:11434"),
        (":1234", "http://127.0.0.1:1234"),
        ("[::]:1234", "http://[::1]:1234"),
        ("'127.0.0.1:11435'", "http://127.0.0.1:11435"),
        *(
            (odd, None)
            for odd in ("", None, "me:pw@nas", "nas:port", "nas:99999", "ftp://nas", "na s", "${HOME}", "nas/p")
        ),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(told: str | None, meant: str | None) -> None:
    assert ollama_address(told) == meant


@pytest.mark.req("SEC-01")
def test_only_addresses_of_this_machine_are_here() -> None:
    for address in ("http://localhost:1/v1", "http://127.0.0.1:8000", "http://[::1]:8000/v1", "http://127.9.9.9"):
        assert is_here(address)
    for address in ("http://nas:1", "http://127.0.0.1.example.org", "http://localhost.example.org", "http://[", "x"):
        assert not is_here(address)


def test_a_typed_name_takes_the_key_that_was_found(tmp_path: Path) -> None:
    found = offers(settings(tmp_path, KIMI_API_KEY=KEY), Found())
    offer = named("moonshot/kimi-k3", found, {})
    assert offer is not None
    assert (offer.name, offer.variable) == ("moonshot/kimi-k3", "KIMI_API_KEY")
    offer = named("google/gemini-4-argon", found, {"GOOGLE_API_KEY": KEY})
    assert offer is not None
    assert (offer.name, offer.variable) == ("gemini/gemini-4-argon", "GOOGLE_API_KEY")
    for odd in ("kimi-k3", "nobody/m", "openai/", "openai//", "openai/${HOME}", "openai/a b", "openai/[/x]", ""):
        assert named(odd, found, {}) is None


def test_the_prefix_of_the_model_replaces_a_provider_that_was_set() -> None:
    held = FileSettings.model_validate({"agents": {"defaults": {"provider": "openai", "context_tokens": 20_000}}})
    offer = Offer(provider="groq", model="m", note="", variable="GROQ_API_KEY", context_tokens=8_000)
    changes = {".".join(each.names): each.value for each in changes_for(Agreed(offer=offer), held)}
    assert changes == {
        "agents.defaults.model": "groq/m",
        "agents.defaults.provider": REMOVE,
        "agents.defaults.context_tokens": 8_000,
        "providers.groq.api_key": "${GROQ_API_KEY}",
    }
    for few in (3_000, 20_000, 50_000, None):
        context = Offer(provider="groq", model="m", note="", settled=True, context_tokens=few)
        assert changes_for(Agreed(offer=context), held) == []


def test_a_pasted_key_that_looks_like_a_reference_is_none(tmp_path: Path) -> None:
    offer = Offer(provider="groq", model="m", note="", secret="a${HOME}b")
    (value,) = [each.value for each in changes_for(Agreed(offer=offer), None) if each.names[-1] == "api_key"]
    assert value == "a$${HOME}b"
    own = settings_with(find_places({"HOME": str(tmp_path)}), offer, fresh=False).providers.groq
    assert own.api_key is not None
    assert own.api_key.get_secret_value() == "a${HOME}b"


def test_a_fresh_file_forgets_what_the_old_one_says_and_the_place_stays(tmp_path: Path) -> None:
    (tmp_path / ".bubbles").mkdir()
    (tmp_path / ".bubbles" / "config.json").write_text('{"agents": {"concurrency": 7}}')
    places = find_places({"HOME": str(tmp_path)})
    assert settings_with(places, None, fresh=False).agents.concurrency == 7
    fresh = settings_with(places, None, fresh=True)
    assert (fresh.agents.concurrency, fresh.data_dir, fresh.providers) == (None, places.data_dir, ProvidersSettings())


def test_bubbles_is_called_as_it_is_found(tmp_path: Path) -> None:
    assert program({"PATH": str(tmp_path)}) == ".venv/bin/bubbles"
    (tmp_path / "bubbles").write_text("#!/bin/sh\n")
    (tmp_path / "bubbles").chmod(0o755)
    assert program({"PATH": str(tmp_path)}) == "bubbles"


def test_the_list_is_there_without_the_library_that_takes_seconds() -> None:
    code = (
        "import sys; import bubbles.cli.setup.conversation as c; from bubbles.cli.report import run; "
        "from bubbles.config.load import load_settings; run(c.find(load_settings({'HOME': '/nonexistent', "
        "'OLLAMA_HOST': '127.0.0.1:1', 'BUBBLES_PROVIDERS__VLLM__BASE_URL': 'http://127.0.0.1:1'}))); "
        "print({'litellm', 'openai', 'keyring', 'docker'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    assert done.stdout == "set()\n"
