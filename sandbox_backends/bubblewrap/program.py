"""The bwrap of this host, and the Python that its sandboxes will have."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass

from sandbox_backends.bubblewrap.system import find_python
from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.runner import kernel
from sandbox_backends.trials import run_short

INSTALL = "apt-get install bubblewrap (or: dnf install bubblewrap, pacman -S bubblewrap)"
NEEDED = ("--args", "--as-pid-1", "--perms", "--size", "--clearenv", "--die-with-parent", "--remount-ro")
WANTED = ("--disable-userns",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    path: str
    version: str
    features: frozenset[str]
    """Those of NEEDED and WANTED that it has and may use."""


async def find_bwrap(settings: BackendSettings) -> Program:
    """Raises BackendUnavailableError when there is none that will do."""
    if not kernel.LINUX:
        raise BackendUnavailableError("bubblewrap is made of Linux namespaces.", "Take docker or local_isolated here.")
    path = await asyncio.to_thread(shutil.which, "bwrap", path=settings.host_env.get("PATH"))
    if path is None:
        raise BackendUnavailableError("bwrap is not installed.", INSTALL)
    _, told = await run_short([path, "--version"])
    _, helped = await run_short([path, "--help"])
    version = (told.split() or ["of no known version"])[-1]
    features = {name for name in (*NEEDED, *WANTED) if re.search(rf"{name}\b", helped)}
    missing = [name for name in NEEDED if name not in features]
    if missing:
        raise BackendUnavailableError(
            f"bwrap {version} is too old: it has no {', '.join(missing)}, and 0.7 or newer is needed.", INSTALL
        )
    if (await asyncio.to_thread(os.stat, path)).st_mode & 0o4000:
        features.discard("--disable-userns")  # a setuid bwrap refuses it
    return Program(path=path, version=version, features=frozenset(features))


def require_python(settings: BackendSettings) -> str:
    """Path of the Python that will be seen inside. Blocks.

    Raises BackendUnavailableError.
    """
    python = find_python(settings.tool_dirs)
    if python is None:
        raise BackendUnavailableError(
            "There is no python3 that can be shown in a sandbox: neither in /usr/bin nor in a tool directory.",
            "apt-get install python3, or name a directory with bin/python3 in tools.sandbox.toolDirs",
        )
    return python
