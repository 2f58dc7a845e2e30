"""Documents that say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbles.config.schema import SandboxSettings
from sandbox_backends.contract import Enforces
from sandbox_backends.probes.catalog import security_table
from sandbox_backends.probes.demands import demands, said
from sandbox_backends.registry import BUILT_IN

TOP = Path(__file__).parents[2]


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
def test_spec_names_every_setting_of_sandboxes() -> None:
    text = (TOP / "SPEC.md").read_text(encoding="utf-8")
    section = text.partition("## 3. Configuration")[2].partition("## 4.")[0]
    names = {*SandboxSettings.model_fields, *SandboxSettings().limits.__class__.model_fields}
    missing = sorted(name for name in names if name not in section)
    assert not missing


@pytest.mark.req("SBX-01")
def test_spec_names_every_backend() -> None:
    text = (TOP / "SPEC.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in BUILT_IN)
