"""Which backends there are. Adding one is a module and a line here; others register by entry point (SBX-13)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from sandbox_backends.contract import BackendSettings, SandboxBackend
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.owner import Owner

ENTRY_POINTS = "bubbles.sandbox_backends"
"""Group of entry points: name → a callable taking BackendSettings and Owner, giving a SandboxBackend."""

BUILT_IN = {
    "docker": "sandbox_backends.docker:DockerBackend",
    "bubblewrap": "sandbox_backends.bubblewrap:BubblewrapBackend",
    "local_isolated": "sandbox_backends.local_isolated:LocalIsolatedBackend",
    "local": "sandbox_backends.local:LocalBackend",
}
"""Strongest first."""

Factory = Callable[[BackendSettings, Owner], SandboxBackend]


def backend_names() -> tuple[str, ...]:
    """Every name that :func:`create_backend` takes, the built-in ones first, strongest first."""
    others = sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in BUILT_IN)
    return (*BUILT_IN, *others)


def create_backend(name: str, settings: BackendSettings, owner: Owner) -> SandboxBackend:
    """The backend of this name; InvalidSpecError when there is none."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast(Factory, getattr(import_module(module), attribute))(settings, owner)
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return cast(Factory, point.load())(settings, owner)
    raise InvalidSpecError(f"There is no sandbox backend {name!r}: take one of {', '.join(backend_names())}.")
