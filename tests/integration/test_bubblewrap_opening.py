"""Whether bubblewrap can be had here, said in sentences with their mend; and opening that is broken off (SBX-09)."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_backends.bubblewrap.backend import BubblewrapBackend
from sandbox_backends.bubblewrap.trial import PROFILE, explain
from sandbox_backends.contract import ExecRequest, Root, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.hierarchies import TOP, find_hierarchies
from tests.as_tester import command_as_tester, environment, interpreter
from tests.needs import TESTER
from tests.places import Bench, make_bench
from tests.processes import below

pytestmark = pytest.mark.needs("bubblewrap")
PROBE = """
import asyncio, os, sys, tempfile
from pathlib import Path
from sandbox_backends.bubblewrap import BubblewrapBackend
from sandbox_backends.contract import BackendSettings
from sandbox_backends.owner import Owner
with tempfile.TemporaryDirectory() as base:
    env = {"PATH": os.environ["PATH"]}
    settings = BackendSettings(data_dir=Path(base), person_home=Path(base, "person"), host_env=env)
    probe = asyncio.run(BubblewrapBackend(settings, Owner(Path(base))).probe())
print(probe.usable, probe.reason, probe.remedy, sep="|")
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    made.label = "desk"
    yield made
    made.owner.close()


def backend(bench: Bench, **settings: object) -> BubblewrapBackend:
    return BubblewrapBackend(replace(bench.settings, **settings), bench.owner)  # type: ignore[arg-type]


def program(directory: Path, help_text: str) -> dict[str, str]:
    """An environment whose bwrap says this for ``--help``."""
    directory.mkdir()
    path = directory / "bwrap"
    path.write_text(f'#!/bin/sh\ncase $1 in --help) echo "{help_text}";; --version) echo "bubblewrap 0.4.0";; esac\n')
    path.chmod(0o755)
    return {"PATH": str(directory)}


@contextmanager
def readable_directory() -> Iterator[Path]:
    """``tmp_path`` lies below one that only root can enter."""
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        yield Path(top)


@pytest.mark.req("SBX-09")
async def test_missing_bwrap_is_told_with_its_remedy(bench: Bench) -> None:
    without = backend(bench, host_env={"PATH": str(bench.base)})
    probe = await without.probe()
    assert (probe.usable, probe.reason) == (False, "bwrap is not installed.")
    assert "apt-get install bubblewrap" in probe.remedy
    with pytest.raises(BackendUnavailableError, match="not installed"):
        async with without.open(bench.spec()):
            pass


@pytest.mark.req("SBX-09", "SBX-08")
async def test_bwrap_that_cannot_bound_its_tmpfs_is_refused_not_weakened(bench: Bench, tmp_path: Path) -> None:
    real = (await asyncio.to_thread(subprocess.run, ["bwrap", "--help"], capture_output=True, text=True)).stdout
    env = program(tmp_path / "old", real.replace("--size", "--other").replace("--disable-userns", "--other"))
    probe = await backend(bench, host_env=env).probe()
    assert not probe.usable
    assert "0.4.0 is too old" in probe.reason
    assert "--size" in probe.reason


@pytest.mark.req("SBX-09")
async def test_bwrap_that_cannot_be_run_is_told(bench: Bench, tmp_path: Path) -> None:
    env = program(tmp_path / "broken", "")
    (tmp_path / "broken" / "bwrap").write_text("#!/no/such/interpreter\n")
    probe = await backend(bench, host_env=env).probe()
    assert not probe.usable
    assert "cannot be run" in probe.reason


@pytest.mark.needs("tester")
@pytest.mark.req("SBX-09")
def test_user_namespaces_that_are_switched_off_are_told_with_their_remedy() -> None:
    """For real, in a user namespace that may have no other below it."""
    script = (
        'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all "$0" -s -c "$1"'
    )
    argv = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script, str(interpreter()), PROBE]
    done = subprocess.run(
        [*command_as_tester(), *argv],
        env=environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )
    usable, reason, remedy = done.stdout.strip().split("|")
    assert usable == "False"
    assert "user namespaces" in reason
    assert "sysctl user.max_user_namespaces=" in remedy


@pytest.mark.needs("root")
def test_hidden_proc_of_a_container_is_told_with_its_remedy() -> None:
    """The kernel gives no new /proc to a user namespace whose own is partly covered, as a container's is."""
    script = 'mount -t tmpfs none /proc/acpi 2>/dev/null || mount -t tmpfs none /proc/bus; exec "$0" -c "$1"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, sys.executable, PROBE]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=True, cwd=Path(__file__).parents[2])
    usable, reason, remedy = done.stdout.strip().split("|")
    assert usable == "False"
    assert "/proc" in reason
    assert "systempaths=unconfined" in remedy


def test_what_bwrap_says_is_explained_in_a_sentence() -> None:
    reason, remedy = explain("bwrap: Can't mkdir /x: No space left on device\n")
    assert reason == "bwrap failed: Can't mkdir /x: No space left on device."
    assert remedy
    assert "not complete" in explain("Traceback\nModuleNotFoundError: No module named 'ctypes'")[0]
    assert PROFILE.count("\n") == 0


@pytest.mark.req("SBX-09")
async def test_usable_bubblewrap_says_its_versions(bench: Bench) -> None:
    probe = await backend(bench).probe()
    assert probe.usable, probe
    assert probe.version.startswith("bwrap ")
    assert "Python 3." in probe.version


@pytest.mark.parametrize("name", ["tools", "link"])
async def test_tool_directory_is_seen_read_only_and_on_the_path(bench: Bench, name: str) -> None:
    tool = bench.base / "person" / "tools"  # out of a session's reach where the user is another
    (tool / "bin").mkdir(parents=True)
    (tool / "bin" / "mytool").write_text("#!/bin/sh\necho it works\n")
    (tool / "bin" / "mytool").chmod(0o755)
    (tool.parent / "link").symlink_to(tool)
    named = tool.parent / name
    async with backend(bench, tool_dirs=(named,)).open(bench.spec()) as session:
        result = await session.exec(ExecRequest(argv=("sh", "-c", f"mytool; touch {named}/x"), timeout_s=10))
        assert result.stdout == b"it works\n"
        assert b"Read-only" in result.stderr


@pytest.mark.parametrize("bad", ["person", "data", "missing"])
async def test_tool_directory_that_would_show_the_persons_own_files_is_refused(bench: Bench, bad: str) -> None:
    shown = {"person": bench.base, "data": bench.base / "data", "missing": bench.base / "none"}[bad]
    refusing = backend(bench, tool_dirs=(shown,))
    probe = await refusing.probe()
    assert not probe.usable
    assert "toolDirs" in probe.reason
    with pytest.raises(InvalidSpecError, match="toolDirs"):
        async with refusing.open(bench.spec()):
            pass


async def test_read_only_root_is_read_only_and_others_are_not(bench: Bench) -> None:
    other = bench.base / "other"
    other.mkdir()
    (other / "file").write_bytes(b"seen")
    (other / "file").chmod(0o644)
    roots = (Root(path=bench.project, label="desk"), Root(path=other, writable=False, label="desk"))
    async with bench.open("bubblewrap", SandboxSpec(session="s", roots=roots)) as session:
        assert await session.read_file(f"{other}/file") == b"seen"
        result = await session.exec(ExecRequest(argv=("touch", f"{other}/x", "mine"), timeout_s=10))
        assert b"Read-only" in result.stderr
        assert (await session.stat("mine")).kind == "file"


async def test_root_inside_another_keeps_its_own_mode(bench: Bench) -> None:
    inner = bench.project / "inner"
    inner.mkdir()
    roots = (Root(path=inner, label="desk"), Root(path=bench.project, writable=False, label="desk"))
    async with bench.open("bubblewrap", SandboxSpec(session="s", roots=roots)) as session:
        result = await session.exec(
            ExecRequest(argv=("sh", "-c", f"touch {inner}/x; touch {bench.project}/y"), timeout_s=10)
        )
        assert b"Read-only" in result.stderr
        assert (inner / "x").exists()
        assert not (bench.project / "y").exists()


@pytest.mark.parametrize("odd", ["with space", "quote'\"", "ünï", "-dash", "#hash", "back`tick$HOME", "--"])
async def test_odd_names_of_directories_are_taken_literally(bench: Bench, odd: str) -> None:
    root = bench.base / odd
    root.mkdir()
    home = bench.base / "data" / "session_homes" / odd
    spec = SandboxSpec(session="s", roots=(Root(path=root, label="desk"),), home=home)
    async with bench.open("bubblewrap", spec) as session:
        assert (await session.exec(ExecRequest(argv=("sh", "-c", "touch here ~/there"), timeout_s=10))).ok
    assert (root / "here").exists()
    assert (home / "there").exists()


@pytest.mark.needs("tester", "git")
async def test_git_does_not_mind_a_repository_of_another_user_inside(bench: Bench) -> None:
    tester, other = pwd.getpwnam(TESTER), bench.base / "other"
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(other)], check=True)
    os.chown(bench.project, tester.pw_uid, tester.pw_gid)
    roots = (Root(path=bench.project), Root(path=other, writable=False))
    async with bench.open("bubblewrap", SandboxSpec(session="s", roots=roots)) as session:
        result = await session.exec(ExecRequest(argv=("git", "-C", str(other), "status", "--short"), timeout_s=10))
        assert result.ok, result.stderr


def shown_of(pid: int) -> bytes:
    """What its own user can read of a process on the host."""
    found = b""
    for what in ("environ", "cmdline"):
        try:
            found += Path(f"/proc/{pid}/{what}").read_bytes()
        except PermissionError:
            continue
    return found


async def test_no_process_of_a_sandbox_carries_the_controllers_environment(bench: Bench) -> None:
    """Not on the host either, where another session of the same user could look."""
    told = backend(bench, host_env={"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "host-secret"})
    async with told.open(bench.spec(env={"TOKEN": "spec-secret"})) as session:
        assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok
        processes = await asyncio.to_thread(below)
        shown = await asyncio.to_thread(lambda: b"".join(shown_of(one.pid) for one in processes))
    assert len(processes) >= 2
    assert b"secret" not in shown
    assert os.fsencode(bench.project) not in shown


def left_behind(bench: Bench, key: str) -> list[str]:
    groups = [mount / TOP for mount in set(find_hierarchies().controllers.values())]
    found = [path.name for top in groups if top.exists() for path in top.iterdir() if path.name.startswith(f"{key}-")]
    run = [path.name for path in (bench.base / "data" / "run").iterdir()]
    return found + [name for name in run if name != "owners" and not name.startswith("runner-")]


async def test_opening_that_is_cancelled_at_any_moment_leaves_nothing(bench: Bench) -> None:
    key = f"cancel{os.getpid()}"
    async with bench.open("bubblewrap", bench.spec(session=key)):
        pass
    before = await asyncio.to_thread(below)
    for number in range(40):
        place = bench.open("bubblewrap", bench.spec(session=key))
        opening = asyncio.create_task(place.__aenter__())
        await asyncio.sleep(number * 0.0012)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        if not opening.cancelled():
            await place.__aexit__(None, None, None)
    assert await asyncio.to_thread(left_behind, bench, key) == []
    assert await asyncio.to_thread(below) == before


async def test_opening_that_takes_too_long_leaves_nothing(bench: Bench) -> None:
    key = f"slow{os.getpid()}"
    for limit_s in (0.001, 0.004, 0.01, 0.015):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(limit_s), bench.open("bubblewrap", bench.spec(session=key)):
                await asyncio.sleep(1)
    assert await asyncio.to_thread(left_behind, bench, key) == []


async def test_bwrap_that_fails_is_explained_and_leaves_nothing(bench: Bench) -> None:
    key = f"refused{os.getpid()}"
    real = (await asyncio.to_thread(subprocess.run, ["bwrap", "--help"], capture_output=True, text=True)).stdout
    with readable_directory() as top:
        env = program(top / "bin", real)
        script = top / "bin" / "bwrap"
        fails = "case $1 in --args) echo 'bwrap: Creating it failed: No space left' >&2; exit 1;; esac"
        script.write_text(script.read_text() + fails)
        with pytest.raises(BackendUnavailableError, match="bwrap failed: Creating it failed: No space left"):
            async with backend(bench, host_env=env).open(bench.spec(session=key)):
                pass
        assert not (await backend(bench, host_env=env).probe()).usable
    assert await asyncio.to_thread(left_behind, bench, key) == []


async def test_place_that_cannot_be_made_ready_says_why_and_leaves_nothing(bench: Bench) -> None:
    """A file stands where the session's home should be."""
    key = f"fail{os.getpid()}"
    home = bench.base / "data" / "session_homes" / "file"
    home.parent.mkdir()
    home.touch()
    with pytest.raises(BackendUnavailableError):
        async with bench.open("bubblewrap", bench.spec(session=key, home=home)):
            pass
    assert await asyncio.to_thread(left_behind, bench, key) == []


async def test_sandboxes_open_side_by_side(bench: Bench) -> None:
    async def one(number: int) -> bytes:
        async with bench.open("bubblewrap", bench.spec(session=f"s{number}")) as session:
            return (await session.exec(ExecRequest(argv=("echo", str(number)), timeout_s=10))).stdout

    assert await asyncio.gather(*map(one, range(8))) == [f"{number}\n".encode() for number in range(8)]


@pytest.mark.needs("docker")
def test_default_container_is_told_what_it_may_not(tmp_path: Path) -> None:
    """What a gateway in a container, without any option, says of bubblewrap."""
    from tests import sandbox_image

    if sandbox_image.problem():
        pytest.skip(str(sandbox_image.problem()))
    bwrap = shutil.which("bwrap")
    copy = environment()["PYTHONPATH"]
    mounts = ["-v", f"{bwrap}:/usr/local/bin/bwrap:ro", "-v", f"{copy}:/copy:ro"]
    argv = ["docker", "run", "--rm", "--network", "none", *mounts, "-e", "PYTHONPATH=/copy", sandbox_image.NAME]
    done = subprocess.run([*argv, "python3", "-c", PROBE], capture_output=True, text=True, timeout=18, check=True)
    usable, reason, remedy = done.stdout.strip().split("|")
    assert usable == "False"
    assert "container" in reason
    assert "--security-opt" in remedy
