"""What a command in bubblewrap sees and may do, for each user that a session can have (SBX-04, SBX-07).

``own``: a root controller, a session with a uid of its own. ``owner``: the project's ordinary owner. ``root``: a
project of root's. ``ordinary``: a controller that is no root at all.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.as_tester import directory_of_tester, run_as_tester
from tests.needs import TESTER, need
from tests.security import bubblewrap_look
from tests.security.bubblewrap_look import look

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.req("SBX-04", "SEC-02")]
KINDS = ("own", "owner", "root", "ordinary")
NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "cgroup", "net")


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Things of the host that are to be found outside and not inside; the first two are a port and an abstract name."""
    name = f"bubbles-{secrets.token_hex(4)}"
    seen = Path(f"/tmp/{name}")
    seen.write_text("readable by all")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind("\0" + name)
        for listener in (tcp, unix):
            listener.listen(16)
        paths = [
            "/etc/shadow",
            "/etc/machine-id",
            "/root",
            "/var/run/docker.sock",
            "/sys",
            "/boot",
            "/var/lib",
            str(seen),
        ]
        yield [str(tcp.getsockname()[1]), name, *paths]
    seen.unlink()


def prepared(base: Path, owner: int | None = None) -> Path:
    for name in ("data", "person", "project"):
        (base / name).mkdir(parents=True)
        if owner is not None:
            os.chown(base / name, owner, owner)
    (base / "project" / "file").touch()
    return base


@pytest.fixture(scope="module", params=KINDS)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, canaries: list[str]
) -> dict[str, Any]:
    kind = request.param
    need("bubblewrap", "git")
    base = tmp_path_factory.mktemp(kind)
    if kind == "ordinary" and os.geteuid() == 0:
        with directory_of_tester() as tester_base:
            prepared(tester_base, pwd.getpwnam(TESTER).pw_uid)
            return {**as_tester(tester_base, "", canaries), "kind": kind}
    need(*() if kind == "ordinary" else ("root",), *("tester",) if kind == "owner" else ())
    prepared(base)
    if kind == "owner":
        os.chown(base / "project", pwd.getpwnam(TESTER).pw_uid, pwd.getpwnam(TESTER).pw_gid)
    extra = [str(base / "data"), str(base / "person")]
    return {**look(str(base), "desk" if kind == "own" else "project", "", *canaries, *extra), "kind": kind}


def as_tester(base: Path, network: str, canaries: list[str]) -> dict[str, Any]:
    need("tester")
    code = Path(bubblewrap_look.__file__).read_text() + "\nimport sys\nprint(json.dumps(look(*sys.argv[1:])))\n"
    found: dict[str, Any] = json.loads(run_as_tester(code, str(base), "project", network, *canaries).stdout)
    return found


def test_user_inside_is_nobody_of_the_host_and_holds_no_right(seen: dict[str, Any]) -> None:
    assert (seen["uid"], seen["gid"]) == (1000, 1000)
    assert set(seen["groups"]) <= ({1000, 65534} if seen["kind"] == "ordinary" else {1000})
    assert seen["caps"] == ["0" * 16] * 5
    assert (seen["nnp"], seen["seccomp"]) == ("1", "2")
    inside, _, count = seen["uid_map"]
    assert (inside, count) == ("1000", "1")


def test_every_namespace_is_its_own(seen: dict[str, Any]) -> None:
    for name in NAMESPACES:
        assert seen["namespaces"][name] != os.readlink(f"/proc/self/ns/{name}"), name


def test_no_further_namespace_mount_or_root_can_be_made(seen: dict[str, Any]) -> None:
    assert seen["unshare_user"] in ("EPERM", "ENOSPC")
    assert seen["mount"] == "EPERM"
    assert seen["chroot"] == "EPERM"


def test_runner_is_process_1_and_shows_nothing_of_the_host(seen: dict[str, Any]) -> None:
    assert seen["pids"][0] == 1
    assert len(seen["pids"]) == 2  # and this command: bwrap has no process inside
    assert seen["cmdline_1"][1:6] == ["-I", "-S", "-B", "/run/bubbles/lib/runner/start.py", "--fd"]
    assert {seen[name] for name in ("environ_1", "fd_1", "mem_1", "attach_1")} <= {"EACCES", "EPERM"}


def test_command_inherits_nothing(seen: dict[str, Any]) -> None:
    assert seen["fds"] == [0, 1, 2, 3]  # the last is the listing itself
    assert "host-secret" not in json.dumps(seen["env"])
    assert seen["env"]["FROM_SPEC"] == "spec-value"
    assert seen["env"]["HOME"] == "/home/agent"
    assert seen["hostname"] == "sandbox"


def test_only_a_minimal_system_is_there(seen: dict[str, Any]) -> None:
    expected = {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr"}
    assert set(seen["root"]) <= expected
    assert seen["home"] == ["agent"]
    assert seen["run"] == ["bubbles"]
    assert seen["canaries"] == []
    assert set(seen["dev"]) <= {
        *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"),
        *("tty", "urandom", "zero"),
    }
    assert not {"shadow", "machine-id", "ssh", "sudoers", "fstab", "crontab", "environment"} & set(seen["etc"])
    assert len(seen["passwd"].splitlines()) == 3


def test_only_roots_home_and_memory_are_writable(seen: dict[str, Any]) -> None:
    allowed = {"/proc", "/dev/pts", "/tmp", "/run", "/dev/shm", "/home/agent"}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")}
    (project,) = set(seen["writable_mounts"]) - allowed - devices
    assert project.endswith("/project")
    assert seen["suid_mounts"] == []
    assert set(seen["dev_mounts"]) <= devices | {"/dev/pts"}
    assert set(seen["made"].values()) == {"EROFS"}
    assert seen["support_renamed"] == "EBUSY"


def test_no_setting_of_the_kernel_can_be_opened_for_writing(seen: dict[str, Any]) -> None:
    """Uid 0 owns /proc/sys, capabilities or not: kernel.core_pattern alone would be the whole host."""
    assert seen["written"] == []
    readable = [path for path in seen["root_only"] if seen["kind"] != "root" or not path.startswith("/proc/sys/")]
    assert readable == []


def test_network_is_off_by_default(seen: dict[str, Any]) -> None:
    assert seen["interfaces"] == ["lo"]
    assert seen["loopback"] == "ECONNREFUSED"
    assert seen["abstract"] == "ECONNREFUSED"
    assert seen["internet"] == "ENETUNREACH"
    assert not seen["resolv"]


def test_setuid_files_are_refused_where_they_would_be_of_root(seen: dict[str, Any]) -> None:
    assert seen["setuid"] == ("EPERM" if seen["kind"] == "root" else "done")


def test_git_works_on_the_root(seen: dict[str, Any]) -> None:
    assert seen["git"] == ""


def test_sentences_for_the_person_say_what_is_weaker(seen: dict[str, Any]) -> None:
    text = " ".join(seen["warnings"])
    assert ("belongs to root" in text) == (seen["kind"] == "root")
    assert ("control groups" in text) == (seen["kind"] == "ordinary")


@pytest.mark.req("SBX-07")
def test_full_network_is_the_hosts_and_said_so(tmp_path: Path, canaries: list[str]) -> None:
    found = look(str(prepared(tmp_path / "b")), "desk", "full", *canaries)
    assert found["namespaces"]["net"] == os.readlink("/proc/self/ns/net")
    assert found["loopback"] == "done"
    assert found["resolv"] == Path("/etc/resolv.conf").exists()
    assert any("loopback" in warning for warning in found["warnings"])
    for name in set(NAMESPACES) - {"net"}:
        assert found["namespaces"][name] != os.readlink(f"/proc/self/ns/{name}"), name
