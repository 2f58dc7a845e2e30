"""Where paths lead, and what the gate's environment keeps git from starting."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bubbles.controller.contract import LANE_ENV, Workplace
from bubbles.controller.whereabouts import real_path
from sandbox_backends.contract import Enforces, Network, Root, SandboxSpec


def place(root: Path, enforces: Enforces = Enforces.NOTHING, network: Network | None = None) -> Workplace:
    return Workplace(
        backend="local",
        spec=SandboxSpec(session="s", roots=(Root(path=root),), network=network, env={"A": "1"}),
        enforces=enforces,
        home="/home/agent",
        person_home="/home/me",
    )


@pytest.mark.req("DEC-13")
def test_a_path_is_followed_to_its_end_whether_it_exists_or_not(tmp_path: Path) -> None:
    top = Path(os.path.realpath(tmp_path))
    (top / "a" / "b").mkdir(parents=True)
    (top / "link").symlink_to("a/b")
    (top / "dangling").symlink_to("nowhere/x")
    (top / "loop").symlink_to("loop")
    (top / "gone (deleted)").mkdir()
    for path in (
        "link/..",
        "link",
        "link/new/../file",
        "dangling/y",
        "loop",
        ".",
        "a/../a",
        "gone (deleted)",
        "no/such",
    ):
        assert real_path(f"{top}/{path}") == os.path.realpath(f"{top}/{path}"), path
    assert real_path("/") == "/"
    assert real_path("/a\0b/..") == "/"
    assert real_path(f"{top}/\udcff") == os.path.realpath(f"{top}/\udcff")


def test_a_directory_is_meant_from_the_sessions_own(tmp_path: Path) -> None:
    here = place(tmp_path)
    assert here.directory(None) == here.directory("") == here.directory(".") == str(tmp_path)
    assert here.directory("sub/") == f"{tmp_path}/sub"
    assert here.directory("..") == str(tmp_path.parent)
    assert here.directory("/x") == "/x"


def test_a_place_says_what_it_holds(tmp_path: Path) -> None:
    hard = Enforces.FILESYSTEM | Enforces.NETWORK
    assert (place(tmp_path).contained, place(tmp_path).offline, place(tmp_path).network) == (False, False, "full")
    assert (place(tmp_path, hard).contained, place(tmp_path, hard).network) == (True, "none")
    assert not place(tmp_path, hard, Network.FULL).offline
    assert place(tmp_path, hard, Network.ALLOWLIST).network == "allowlist"


def test_git_does_not_start_what_a_repository_names_as_its_file_monitor(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def git(*words: str, more: dict[str, str] | None = None) -> None:
        line = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        subprocess.run(line, cwd=tmp_path, env={**env, **(more or {})}, capture_output=True, check=True)

    git("init", "-q")
    git("config", "core.fsmonitor", f"touch {marker}; false")
    git("status")
    assert marker.exists(), "without the settings git starts it"
    marker.unlink()
    settings = dict(place(tmp_path).with_lane_env().spec.env)
    assert settings == {"A": "1", **LANE_ENV}
    git("status", more=settings)
    assert not marker.exists()
