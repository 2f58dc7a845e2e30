"""What a command in a docker sandbox may try against the runner and the machine, each transport in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends.contract import ExecRequest, SandboxSession
from sandbox_backends.docker import DockerBackend
from tests.docker_engine import give_to_tester
from tests.places import Bench, make_bench

pytestmark = [pytest.mark.needs("docker"), pytest.mark.req("SBX-05")]

AS = [
    pytest.param(who, transport, id=f"{who}-{transport}")
    for who in ("root", "user")
    for transport in ("unix", "attach")
]


@pytest.fixture
def bench(tmp_path: Path, sandbox_image: str) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


async def run(session: SandboxSession, script: str) -> tuple[int | None, str]:
    result = await session.exec(ExecRequest(argv=("/bin/bash", "-c", script), timeout_s=10))
    return result.exit_code, (result.stdout + result.stderr).decode()


@pytest.mark.needs("root", "tester")
@pytest.mark.parametrize(("who", "transport"), AS)
async def test_command_cannot_take_hold_of_its_runner(bench: Bench, who: str, transport: Any) -> None:
    """Also not where both are uid 0 (a project of root): the runner is not dumpable and no capability is held."""
    if who == "user":
        give_to_tester(bench.project)
    async with DockerBackend(bench.settings, bench.owner, transport).open(bench.spec()) as session:
        for script in (
            "readlink /proc/1/fd/3",
            "readlink /proc/1/exe",
            "cat /proc/1/environ",
            "cat /proc/1/maps",
            "head -c1 /proc/1/mem",
            "for n in 0 1 2 3 4 5 6 7 8 9; do echo X >/proc/1/fd/$n && exit 0; done; exit 1",
            "gdb -p 1 -batch 2>/dev/null",
            'python3 -c "import ctypes; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) & 1)"',
            'python3 -c "import os, ctypes; fd = os.pidfd_open(1); exit(ctypes.CDLL(None).syscall(438, fd, 3, 0) & 1)"',
        ):
            code, said = await run(session, script)
            assert code != 0, (script, said)


@pytest.mark.needs("tester")
@pytest.mark.parametrize("name", ["KILL", "TERM", "STOP", "INT", "HUP", "USR1"])
async def test_command_that_signals_every_python_leaves_the_runner(bench: Bench, name: str) -> None:
    """As ``pkill python3`` does, meant for a server of the command's own."""
    give_to_tester(bench.project)
    async with bench.open("docker") as session:
        await run(session, "setsid python3 -c 'import time; time.sleep(60)' >/dev/null 2>&1 &")
        await run(session, f"pkill -{name} python3; kill -{name} 1")
        assert await run(session, "echo on") == (0, "on\n")


@pytest.mark.needs("root")
@pytest.mark.parametrize("who", ["root", "user"])
async def test_command_makes_no_file_that_raises_rights(bench: Bench, who: str) -> None:
    if who == "user":
        give_to_tester(bench.project)
    async with bench.open("docker") as session:
        await run(session, "cp /bin/sh s; chmod 4755 s; chmod u+s s; python3 -c \"import os; os.chmod('s', 0o6755)\"")
        await run(session, "python3 -c \"import os; os.close(os.open('t', os.O_CREAT | os.O_WRONLY, 0o4755))\"")
        await run(session, "mkdir -m 6777 d; mknod n c 1 3; mkfifo -m 4666 f")
    if who == "root":
        assert [path.name for path in bench.project.iterdir() if path.stat().st_mode & 0o6000] == []
    assert not (bench.project / "n").exists()
