"""The registry of providers: the same names everywhere, and nothing heavy behind them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bubbles.config.schema import ProvidersSettings
from bubbles.providers.registry import REGISTRY, Entry, Kind, of_prefix

ROOT = Path(__file__).parents[3]
KINDS = {
    "vendors": Kind.VENDOR,
    "gateways": Kind.GATEWAY,
    "your own": Kind.OWN,
    "by login": Kind.LOGIN,
}
PAPER = """
import sys
import bubbles.providers.build, bubbles.providers.select
heavy = {"litellm", "openai", "aiohttp", "httpx", "bubbles.providers.by_litellm.client"} & set(sys.modules)
print(sorted(heavy))
"""


def table_of_spec() -> dict[str, Kind]:
    """Names in the table of SPEC 6.2, each with its kind."""
    section = (ROOT / "SPEC.md").read_text().split("### 6.2 ")[1].split("### 6.3 ")[0]
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    listed: dict[str, Kind] = {}
    for kind, names in rows[2:]:
        for name in re.split(r"[,\s]+", re.sub(r"\(.*?\)", "", names)):
            listed[name] = KINDS[kind]
    return listed


@pytest.mark.req("PROV-01")
def test_spec_settings_and_registry_name_the_same_providers() -> None:
    assert {name: entry.kind for name, entry in REGISTRY.items()} == table_of_spec()
    assert list(REGISTRY) == list(ProvidersSettings.model_fields)
    assert all(name == entry.name for name, entry in REGISTRY.items())


@pytest.mark.req("PROV-04")
def test_only_custom_and_the_logins_do_not_go_through_litellm() -> None:
    apart = {name for name, entry in REGISTRY.items() if entry.litellm is None}
    assert apart == {"custom", "openai_codex", "github_copilot"}


@pytest.mark.req("PROV-03")
def test_providers_by_login_are_two_and_no_name_of_a_model_leads_to_them() -> None:
    by_login = [entry for entry in REGISTRY.values() if entry.kind is Kind.LOGIN]
    assert [entry.name for entry in by_login] == ["openai_codex", "github_copilot"]
    assert [(entry.keywords, entry.needs_key, entry.key_variable) for entry in by_login] == [((), False, None)] * 2


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_an_entry_is_whole(entry: Entry) -> None:
    assert entry.needs_key == (entry.kind in (Kind.VENDOR, Kind.GATEWAY))
    assert bool(entry.key_variable) == entry.needs_key
    for address in filter(None, (entry.base_url, entry.elsewhere)):
        parts = urlsplit(address)
        assert (parts.scheme == "https") == (entry.kind is not Kind.OWN)
        assert parts.path == parts.path.rstrip("/")
        assert not parts.query
    assert all(word == word.lower() for word in (*entry.keywords, *entry.prefixes))
    assert all(of_prefix(prefix) is entry for prefix in (entry.name, *entry.prefixes))


def test_no_keyword_means_two_providers() -> None:
    words = [word for entry in REGISTRY.values() for word in entry.keywords]
    assert len(set(words)) == len(words)


@pytest.mark.req("SEC-01")
def test_choosing_a_provider_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PAPER], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
