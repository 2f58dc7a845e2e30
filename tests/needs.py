"""What a test needs of the machine. Missing is a skip with its reason, or a failure when BUBBLES_REQUIRE names it.

``@pytest.mark.needs("docker", "root")`` on a test, or ``need("docker")`` inside a fixture. A name is one of ``CHECKS``.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest

TESTER = "tester"
"""An ordinary user that a root run drops to, so that what only root may do is not taken for granted."""


def _docker() -> str | None:
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=10)
    except DockerException as error:
        return f"no Docker engine answers: {error}"
    try:
        client.ping()
    except DockerException as error:
        return f"no Docker engine answers: {error}"
    finally:
        client.close()
    return None


def _bubblewrap() -> str | None:
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not installed (apt-get install bubblewrap)"
    trial = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"]
    done = subprocess.run(trial, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False)
    return None if done.returncode == 0 else f"bwrap cannot make a sandbox here: {done.stderr.strip()}"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "this test must run as root"


def _ordinary_user() -> str | None:
    return None if os.geteuid() != 0 else "this test must not run as root"


def _tester() -> str | None:
    if os.geteuid() != 0:
        return "only root can act as another user"
    try:
        pwd.getpwnam(TESTER)
    except KeyError:
        return f"there is no user {TESTER} (useradd --create-home {TESTER})"
    return None


def _linux() -> str | None:
    return None if sys.platform == "linux" else "this test is for Linux"


def _program(name: str, remedy: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(name) else f"{name} is not installed ({remedy})"


CHECKS: dict[str, Callable[[], str | None]] = {
    "docker": _docker,
    "bubblewrap": _bubblewrap,
    "root": _root,
    "ordinary-user": _ordinary_user,
    "tester": _tester,
    "linux": _linux,
    "debootstrap": _program("debootstrap", "apt-get install debootstrap"),
    "git": _program("git", "apt-get install git"),
    "gnome-keyring": _program("gnome-keyring-daemon", "apt-get install gnome-keyring"),
    "dbus": _program("dbus-run-session", "apt-get install dbus"),
    "bash": _program("bash", "apt-get install bash"),
}


@functools.cache
def missing(name: str) -> str | None:
    """Why the machine lacks ``name``, or ``None`` when it has it. Looked at once a run."""
    return CHECKS[name]()


def required() -> frozenset[str]:
    """The names that this run must not go without."""
    return frozenset(filter(None, os.environ.get("BUBBLES_REQUIRE", "").replace(" ", "").split(",")))


def need(*names: str) -> None:
    for name in names:
        if reason := missing(name):
            give_up(name, reason)


def give_up(name: str, reason: str) -> NoReturn:
    """Skip, or fail when this run must not go without ``name``."""
    if name in required():
        pytest.fail(f"BUBBLES_REQUIRE names {name}, but {reason}", pytrace=False)
    pytest.skip(reason)
