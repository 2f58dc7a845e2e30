"""Attacks that once worked, from inside a place and around its opening. Each must stay without effect."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_backends.contract import ExecRequest, Outcome, Root, SandboxSession, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.launch import launch
from sandbox_backends.local import runner_argv
from sandbox_backends.privileges import run_as
from sandbox_backends.roots import identify
from sandbox_backends.session import Place, connect
from tests.places import HARD, Bench, make_bench

pytestmark = [pytest.mark.req("SEC-02"), pytest.mark.timeout(60)]
hard_place = pytest.mark.parametrize("name", HARD)

HOLD_LEASE = """
import fcntl, os, signal, time
open("prog", "w").write("#!/bin/sh\\n")
os.chmod("prog", 0o755)
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open("prog", os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


async def bash(session: SandboxSession, script: str, timeout_s: float = 20) -> str:
    request = ExecRequest(argv=("/bin/bash", "-c", script), timeout_s=timeout_s, merge_stderr=True)
    return (await session.exec(request)).stdout.decode("utf-8", "replace")


async def test_directory_put_in_place_of_a_checked_root_is_not_served(tmp_path: Path) -> None:
    """A root that lies in another session's root can be swapped for a link to anywhere while the sandbox opens."""
    checked, swapped = tmp_path / "checked", tmp_path / "swapped"
    checked.mkdir()
    swapped.mkdir()
    info = await asyncio.to_thread(identify, checked)
    for path, served in ((checked, True), (swapped, False)):
        root = Root(path=path, identity=(info.st_dev, info.st_ino))
        start = runner_argv()
        async with launch(lambda fd, start=start: (*start, str(fd)), env={}) as process:  # type: ignore[misc]
            place = Place(id="x", sock=process.sock, roots=(root,), cwd=str(path), env={}, hard=False)
            if served:
                async with connect(place) as session:
                    assert (await session.stat(".")).kind == "directory"
            else:
                with pytest.raises(BackendUnavailableError, match="not the directory that was checked"):
                    async with connect(place):
                        pass


def test_root_is_looked_at_without_following_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(InvalidSpecError, match="changed while"):
        identify(tmp_path / "link" / "etc")


@pytest.mark.needs("root")
def test_owner_of_a_swapped_project_is_not_taken_over(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    spec = SandboxSpec(session="s", roots=(Root(path=project, identity=(1, 1)),))
    with pytest.raises(InvalidSpecError, match="replaced"):
        run_as(spec, tmp_path)


@pytest.mark.needs("root")
def test_group_of_a_projects_directory_is_not_taken_over(tmp_path: Path) -> None:
    """It may be docker's, or shadow's."""
    project = tmp_path / "project"
    project.mkdir()
    os.chown(project, 65534, 42)
    spec = SandboxSpec(session="s", roots=(Root(path=project),))
    assert run_as(spec, tmp_path).gid != 42


@hard_place
@pytest.mark.parametrize(
    "how",
    ["kill -9 1", "kill -37 1", "kill -STOP 1", "prlimit --pid 1 --nofile=4:4", "prlimit --pid 1 --data=1000:1000"],
)
async def test_runner_cannot_be_ended_or_starved_from_inside(bench: Bench, name: str, how: str) -> None:
    async with bench.open(name) as session:
        await bash(session, f"{how}; head -c 3000000 /dev/zero | tail -c 1")
        await asyncio.sleep(0.1)
        assert not session.lost
        assert await bash(session, "echo alive") == "alive\n"


@hard_place
async def test_program_under_a_lease_does_not_stop_the_runner(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        holder = await session.start(ExecRequest(argv=("python3", "-c", HOLD_LEASE), timeout_s=None))
        async with asyncio.timeout(10):
            while b"held" not in holder.poll().data:
                await holder.wait(0.02)
        result = await session.exec(ExecRequest(argv=("./prog",), timeout_s=5))
        assert (result.outcome, result.exit_code) == (Outcome.EXITED, 126)
        async with asyncio.timeout(2):
            await session.stat(".")


@hard_place
@pytest.mark.req("SBX-06")
async def test_time_limit_ends_what_has_cleared_its_environment(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        # Left behind by commands that ended: they live on, even one that hides as a server's title does.
        await bash(session, "sleep 9321 & disown; env -i setsid -f /bin/sleep 9322; sleep 0.02")
        await bash(session, "env -i setsid -f /bin/sleep 4321; sleep 30", timeout_s=1)
        left = await bash(session, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "sleep 4321" not in left
        assert "sleep 9321" in left
        assert "sleep 9322" in left


@pytest.mark.needs("bubblewrap", "root")
async def test_session_as_uid_0_cannot_change_the_hosts_devices(bench: Bench) -> None:
    before = stat.S_IMODE(os.stat("/dev/full").st_mode)
    async with bench.open("bubblewrap") as session:
        await bash(session, "chmod 0600 /dev/full; touch -d 2001-01-01 /dev/full")
        assert await bash(session, "echo x > /dev/null && head -c 3 /dev/zero | wc -c") == "3\n"
    after = os.stat("/dev/full")
    assert stat.S_IMODE(after.st_mode) == before
    assert after.st_mtime > 1_000_000_000


@pytest.mark.parametrize(
    "script",
    [
        "bubbles sandbox exec -b local --root /" + "a" * 5000 + " -- true",
        'bubbles sandbox exec -b local --root "$WORK" -- echo hi > /dev/full',
        'bubbles sandbox exec -b local --root "$WORK" -- echo hi >&-',
        'bubbles sandbox exec -i -b local --root "$WORK" -- cat <&-',
        "mkdir gone; cd gone; rmdir ../gone; bubbles sandbox exec -b local -- true",
        "BUBBLES_HOME=/proc/nowhere bubbles sandbox ls",
    ],
)
@pytest.mark.req("CLI-01")
def test_odd_circumstances_are_a_sentence(tmp_path: Path, script: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "BUBBLES_HOME": str(tmp_path / "data"), "WORK": str(work), "PATH": path}
    done = subprocess.run(["bash", "-c", script], cwd=work, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)
    assert len(done.stderr.splitlines()) <= 1
