"""Backends by name: the built-in ones, and those that an installed package brings (SBX-13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_backends.contract import BackendSettings, SandboxBackend
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.owner import Owner
from sandbox_backends.registry import BUILT_IN, backend_names, create_backend

FOREIGN = """
from sandbox_backends.fake import FakeBackend

def make(settings, owner):
    return FakeBackend(name="elsewhere")
"""


@pytest.fixture
def made(tmp_path: Path) -> tuple[BackendSettings, Owner]:
    settings = BackendSettings(data_dir=tmp_path / "data", person_home=tmp_path)
    return settings, Owner(settings.data_dir)


@pytest.mark.req("SBX-01", "SBX-13")
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_backends_are_made_by_their_name(made: tuple[BackendSettings, Owner], name: str) -> None:
    backend = create_backend(name, *made)
    assert isinstance(backend, SandboxBackend)
    assert backend.name == name


@pytest.mark.req("SBX-13")
def test_backend_of_an_installed_package_is_found_by_its_entry_point(
    made: tuple[BackendSettings, Owner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "elsewhere-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bubbles.sandbox_backends]\nelsewhere = bubbles_elsewhere:make\n")
    (site / "bubbles_elsewhere.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(str(site))
    assert "elsewhere" in backend_names()
    assert create_backend("elsewhere", *made).name == "elsewhere"


def test_unknown_backend_is_refused_with_the_names_there_are(made: tuple[BackendSettings, Owner]) -> None:
    with pytest.raises(InvalidSpecError, match="docker, bubblewrap, local_isolated, local"):
        create_backend("vm", *made)
