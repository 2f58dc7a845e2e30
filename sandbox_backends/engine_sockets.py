"""Sockets of container engines: whoever reaches one rules the machine, so no directory with one may be shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sandbox_backends.contract import BackendSettings

NAMES = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock", "dockerd.sock")
SYSTEM = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")
OF_A_PERSON = (
    *(".docker/run/docker.sock", ".docker/desktop/docker.sock", ".orbstack/run/docker.sock", ".rd/docker.sock"),
    *(".colima/docker.sock", ".colima/*/docker.sock", ".lima/*/sock/docker.sock"),
    ".local/share/containers/podman/machine/podman.sock",
)
"""Below HOME, where desktop engines put them; patterns."""
OF_A_LOGIN = ("docker.sock", "podman/podman.sock")
"""Below XDG_RUNTIME_DIR, where rootless engines put them."""
MAX_LOOKED_INTO = 1000
"""Directories at the top of a root that are looked into."""


def engine_sockets(path: Path, settings: BackendSettings) -> list[str]:
    """Sockets beneath ``path`` (a real path): the one in use and those of usual engines at any depth, others by name at
    its top and one level below. Blocks.
    """
    beneath = [known for known in _known(settings) if Path(known).is_relative_to(path)]
    return list(dict.fromkeys((*beneath, *_found(path))))


def _known(settings: BackendSettings) -> Iterator[str]:
    """Real paths of the sockets that are or might be in use."""
    for url in (settings.docker_url, settings.host_env.get("DOCKER_HOST"), settings.host_env.get("CONTAINER_HOST")):
        if url and url.startswith("unix://"):
            yield os.path.realpath(url.removeprefix("unix://"))  # chosen: whether it is there yet or not
    guesses = [Path(name) for name in SYSTEM]
    guesses += [found for pattern in OF_A_PERSON for found in settings.person_home.glob(pattern)]
    if login := settings.host_env.get("XDG_RUNTIME_DIR"):
        guesses += [Path(login, name) for name in OF_A_LOGIN]
    for guess in guesses:
        real = os.path.realpath(guess)
        if _is_socket(real):
            yield real


def _found(path: Path) -> Iterator[str]:
    inner = [path]
    try:
        with os.scandir(path) as entries:
            inner += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        pass
    for directory in inner[: MAX_LOOKED_INTO + 1]:
        for name in NAMES:
            if _is_socket(place := os.path.join(directory, name)):
                yield place


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
