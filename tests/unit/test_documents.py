"""Documents that say what the code says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from bubbles.config.schema import FileSettings, McpServerSettings, ProvidersSettings
from sandbox_backends.contract import Enforces
from sandbox_backends.probes.catalog import security_table
from sandbox_backends.probes.demands import demands, said
from sandbox_backends.registry import BUILT_IN

TOP = Path(__file__).parents[2]
PROVIDERS = tuple(ProvidersSettings.model_fields)
LOGINS = ("openai_codex", "github_copilot")


@pytest.mark.req("SEC-02")
def test_security_table_is_the_list_of_probes() -> None:
    text = (TOP / "SECURITY.md").read_text(encoding="utf-8")
    between = text.partition("<!-- begin table:")[2].partition("-->\n")[2].partition("<!-- end table -->")[0]
    assert between == security_table()


@pytest.mark.req("SEC-02")
def test_security_says_under_which_limits_limits_are_measured() -> None:
    text = " ".join((TOP / "SECURITY.md").read_text(encoding="utf-8").split())
    assert f"with limits set: {said(demands(~Enforces.NOTHING))}." in text


@pytest.mark.req("CFG-01")
def test_spec_lists_the_settings_that_there_are_and_no_others() -> None:
    told = {name for name, _ in _told_settings()}
    there = {name for name, _ in _settings(FileSettings)}
    assert (sorted(there - told), sorted(told - there)) == ([], [])


@pytest.mark.req("CFG-01")
def test_spec_has_the_numbers_that_settings_have_by_default() -> None:
    there = dict(_settings(FileSettings))
    told = {name: float(text.replace(",", "")) for name, text in _told_settings() if re.fullmatch(r"[\d,]+", text)}
    assert len(told) > 15
    assert {name: number for name, number in told.items() if number != there[name]} == {}


def _told_settings() -> Iterator[tuple[str, str]]:
    """Name and default of each, from the tables: ``.b`` after ``a.c`` is ``a.b``, and of several the defaults follow.

    NAME stands for every provider; those by login have no key.
    """
    text = (TOP / "SPEC.md").read_text(encoding="utf-8")
    section = text.partition("## 3. Configuration")[2].partition("\n## 4.")[0]
    under = ""
    for line in section.splitlines():
        if not line.startswith("| "):
            continue
        names, defaults, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        if "field" in names:
            under = f"{names.partition('`')[2].partition('`')[0]}." if "`" in names else ""
            continue
        values, before = defaults.split(", "), ""
        found = re.findall(r"`([^`]+)`", names)
        for place, name in enumerate(found):
            whole = f"{before.rpartition('.')[0]}{name}" if name.startswith(".") else name
            before = whole
            for each in PROVIDERS if whole.startswith("providers.NAME.") else ("NAME",):
                full = f"{under}{whole}".replace("providers.NAME.", f"providers.{each}.")
                if full.endswith(".apiKey") and each in LOGINS:
                    continue
                yield _camel(full), values[place] if len(values) == len(found) else defaults


def _camel(name: str) -> str:
    return ".".join(to_camel(part) if "_" in part else part for part in name.split("."))


def _settings(model: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        inner = McpServerSettings if name == "mcp_servers" else field.annotation
        below = (*before, name, "NAME") if name == "mcp_servers" else (*before, name)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _settings(inner, below)
        else:
            yield _camel(".".join(below)), field.get_default(call_default_factory=True, validated_data={})


@pytest.mark.req("SBX-01")
def test_spec_names_every_backend() -> None:
    text = (TOP / "SPEC.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in BUILT_IN)
