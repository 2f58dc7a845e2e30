"""The places that one suite runs over: every backend under the names that tests are parametrised by."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox_backends.contract import (
    BackendSettings,
    Limits,
    Network,
    Root,
    SandboxBackend,
    SandboxSession,
    SandboxSpec,
)
from sandbox_backends.fake import FakeBackend
from sandbox_backends.owner import Owner
from sandbox_backends.registry import create_backend

NEEDS = {"docker": ("docker",), "bubblewrap": ("bubblewrap",), "local": (), "local_isolated": ()}
REAL = tuple(
    pytest.param(name, marks=pytest.mark.needs(*needs) if needs else (), id=name) for name, needs in NEEDS.items()
)
HARD = tuple(param for param in REAL if param.id in ("docker", "bubblewrap"))
SOFT = tuple(param for param in REAL if param.id in ("local", "local_isolated"))
EVERY = (*REAL, pytest.param("fake", id="fake"))


@dataclass(slots=True, kw_only=True)
class Bench:
    """A data directory, a project and an owner, in which sandboxes of any backend are opened."""

    base: Path
    owner: Owner
    host_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    label: str = "project"
    refusals: list[str] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.base / "project"

    @property
    def settings(self) -> BackendSettings:
        return BackendSettings(
            data_dir=self.base / "data",
            person_home=self.base / "person",
            host_env=self.host_env,
            docker_image=os.environ.get("BUBBLES_TEST_IMAGE", "bubbles-sandbox:latest"),
            on_refusal=lambda session, sentence: self.refusals.append(sentence),
        )

    def backend(self, name: str) -> SandboxBackend:
        return FakeBackend() if name == "fake" else create_backend(name, self.settings, self.owner)

    def spec(
        self,
        *,
        session: str = "test",
        network: Network | None = None,
        allow: tuple[str, ...] = (),
        limits: Limits = Limits(),
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> SandboxSpec:
        return SandboxSpec(
            session=session,
            roots=(Root(path=self.project, label="desk" if self.label == "desk" else "project"),),
            network=network,
            allow=allow,
            limits=limits,
            env=env or {},
            home=home,
        )

    @asynccontextmanager
    async def open(self, name: str, spec: SandboxSpec | None = None) -> AsyncIterator[SandboxSession]:
        async with self.backend(name).open(spec or self.spec()) as session:
            yield session


def make_bench(base: Path) -> Bench:
    for name in ("data", "person", "project"):
        (base / name).mkdir(parents=True)
    return Bench(base=base, owner=Owner(base / "data"))
