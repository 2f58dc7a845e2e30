"""Which directories are refused as roots, beside those that every backend's conformance test names."""

from __future__ import annotations

import pwd
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from sandbox_backends import engine_sockets as sockets
from sandbox_backends.contract import BackendSettings, Enforces, Limits, Root, SandboxSpec
from sandbox_backends.environment import HARD_HOME
from sandbox_backends.errors import InvalidSpecError, UnsupportedSpecError
from sandbox_backends.roots import refuse_in_hard_place, resolve_spec
from tests.needs import TESTER

pytestmark = pytest.mark.req("SBX-08")
HOLDS = "rules the machine"


def listen(path: Path) -> Path:
    """A socket's file; it stays when the socket is closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.bind(str(path))
    return path


def settings(base: Path, url: str | None = None, env: Mapping[str, str] | None = None) -> BackendSettings:
    return BackendSettings(data_dir=base / "data", person_home=base / "me", docker_url=url, host_env=env or {})


def resolve(root: Path, chosen: BackendSettings) -> None:
    root.mkdir(parents=True, exist_ok=True)
    resolve_spec(SandboxSpec(session="s", roots=(Root(path=root),)), chosen)


@pytest.mark.parametrize("name", sockets.NAMES)
@pytest.mark.parametrize("below", ["", "run"])
def test_socket_with_an_engine_s_name_at_the_top_or_one_level_below_is_seen(
    tmp_path: Path, name: str, below: str
) -> None:
    root = tmp_path / "work"
    listen(root / below / name)
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(root, settings(tmp_path))


def test_other_files_of_that_name_and_links_do_not_make_a_root_bad(tmp_path: Path) -> None:
    outside = listen(tmp_path / "outside" / "docker.sock")
    root = tmp_path / "work"
    (root / "docker.sock").mkdir(parents=True)
    (root / "podman.sock").touch()
    (root / "run").symlink_to(outside.parent)
    listen(root / "a" / "b" / "docker.sock")  # the scan is not deep: SPEC.md says so
    resolve(root, settings(tmp_path))


def test_only_so_many_directories_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MAX_LOOKED_INTO", 0)
    listen(tmp_path / "work" / "run" / "docker.sock")
    resolve(tmp_path / "work", settings(tmp_path))
    listen(tmp_path / "work" / "docker.sock")
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(tmp_path / "work", settings(tmp_path))


def test_chosen_socket_is_seen_at_any_depth_even_before_it_is_there(tmp_path: Path) -> None:
    root = tmp_path / "work"
    url = f"unix://{root}/a/b/c/engine"
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(root, settings(tmp_path, url))
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        with pytest.raises(InvalidSpecError, match=HOLDS):
            resolve(root, settings(tmp_path, env={name: url}))
    resolve(root, settings(tmp_path, "tcp://192.0.2.1:2375"))


def test_usual_socket_of_the_system_is_seen_where_it_really_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    real = listen(root / "a" / "b" / "engine.sock")
    usual = tmp_path / "var-run-docker.sock"
    usual.symlink_to(real)
    resolve(root, settings(tmp_path))
    monkeypatch.setattr(sockets, "SYSTEM", (str(usual),))
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(root, settings(tmp_path))


@pytest.mark.parametrize("name", [".docker/run/docker.sock", ".colima/default/docker.sock", ".rd/docker.sock"])
def test_socket_of_a_person_s_engine_is_seen_behind_a_link(tmp_path: Path, name: str) -> None:
    root = tmp_path / "work"
    real = listen(root / "a" / "b" / "s")
    place = tmp_path / "me" / name
    place.parent.mkdir(parents=True)
    place.symlink_to(real)
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(root, settings(tmp_path))


@pytest.mark.parametrize("name", sockets.OF_A_LOGIN)
def test_socket_of_a_rootless_engine_is_seen(tmp_path: Path, name: str) -> None:
    root = tmp_path / "work"
    env = {"XDG_RUNTIME_DIR": f"{root}/deep/in/it"}
    resolve(root, settings(tmp_path, env=env))
    listen(root / "deep" / "in" / "it" / name)
    with pytest.raises(InvalidSpecError, match=HOLDS):
        resolve(root, settings(tmp_path, env=env))


@pytest.mark.parametrize("path", [HARD_HOME, f"{HARD_HOME}/project"])
def test_root_in_the_home_of_a_hard_sandbox_is_refused(tmp_path: Path, path: str) -> None:
    """A link that an earlier session left in a kept HOME would lead the mount elsewhere."""
    spec = SandboxSpec(session="s", roots=(Root(path=Path(path)),))
    with pytest.raises(InvalidSpecError, match="its own HOME"):
        refuse_in_hard_place(spec, settings(tmp_path))


def test_root_in_a_writable_root_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "work" / "inner"
    inner.mkdir(parents=True)
    for paths in ((inner, inner.parent), (inner.parent, inner)):
        spec = SandboxSpec(session="s", roots=tuple(Root(path=path) for path in paths))
        with pytest.raises(InvalidSpecError, match="name the outer one"):
            resolve_spec(spec, settings(tmp_path))
    shown = (Root(path=inner.parent, writable=False), Root(path=inner))
    resolve_spec(SandboxSpec(session="s", roots=shown), settings(tmp_path))


@pytest.mark.parametrize("name", [".ssh", ".ssh/keys", ".config", ".config/gh", ".local"])
def test_places_of_logins_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSpecError, match="keys and logins"):
        resolve(tmp_path / "me" / name, settings(tmp_path))


@pytest.mark.needs("tester")
def test_home_of_another_user_is_refused(tmp_path: Path) -> None:
    home = Path(pwd.getpwnam(TESTER).pw_dir)
    with pytest.raises(InvalidSpecError, match="user's home"):
        resolve(home, settings(tmp_path))


@pytest.mark.req("SESS-07")
def test_all_sessions_at_once_are_no_root(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="own files"):
        resolve(tmp_path / "data" / "sessions", settings(tmp_path))
    resolve(tmp_path / "data" / "sessions" / "one", settings(tmp_path))


def test_home_is_the_same_in_every_hard_sandbox() -> None:
    from sandbox_backends.bubblewrap import system
    from sandbox_backends.docker import container

    assert system.HOME == container.HOME == HARD_HOME


def test_processes_of_root_s_own_project_are_not_promised_to_be_bounded_by_a_limit_that_spares_root() -> None:
    from sandbox_backends.bubblewrap.limits import Holding
    from sandbox_backends.hierarchies import Hierarchies

    bare = Holding(groups=Hierarchies(controllers={}, unified=None), by_namespace=True)
    grouped = Holding(groups=Hierarchies(controllers={"pids": Path("/x")}, unified=None), by_namespace=True)
    roots = (Root(path=Path("/work")),)
    bare.refuse_exempt(SandboxSpec(session="s", roots=roots))
    for spec in (
        SandboxSpec(session="s", roots=roots, limits=Limits(pids=40)),
        SandboxSpec(session="s", roots=roots, requires=Enforces.PROCESSES),
    ):
        grouped.refuse_exempt(spec)
        with pytest.raises(UnsupportedSpecError, match="project of root's"):
            bare.refuse_exempt(spec)
