"""Ceilings of a bubblewrap session: what is over them fails cleanly and the session goes on (SBX-04, SBX-08)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_backends.bubblewrap import BubblewrapBackend
from sandbox_backends.bubblewrap.limits import Holding
from sandbox_backends.contract import Enforces, ExecRequest, ExecResult, Limits, Outcome, SandboxSession
from sandbox_backends.errors import UnsupportedSpecError
from sandbox_backends.hierarchies import Hierarchies, find_hierarchies
from tests.as_tester import directory_of_tester, run_as_tester
from tests.needs import give_up
from tests.places import Bench, make_bench

MB = 1 << 20
HOG = "b = bytearray()\nwhile True: b += bytes(1 << 20)"
SLEEPERS = """
import os, sys, time
made = 0
try:
    while made < int(sys.argv[1]):
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(float(sys.argv[2]))
            os._exit(0)
        made += 1
except OSError:
    pass
print(made)
"""
pytestmark = pytest.mark.needs("bubblewrap")
with_groups = pytest.mark.needs("root")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    made.label = "desk"
    yield made
    made.owner.close()


@pytest.fixture
def grouped(bench: Bench) -> Bench:
    if not find_hierarchies().controllers:
        give_up("root", "no control groups can be written here")
    return bench


async def run(session: SandboxSession, *argv: str, timeout_s: float = 15) -> ExecResult:
    return await session.exec(ExecRequest(argv=argv, timeout_s=timeout_s))


async def still_works(session: SandboxSession) -> bool:
    return (await run(session, "echo", "yes")).stdout == b"yes\n"


@with_groups
async def test_command_that_eats_memory_is_told_as_oom_and_the_session_goes_on(grouped: Bench) -> None:
    async with grouped.open("bubblewrap", grouped.spec(limits=Limits(memory_bytes=64 * MB))) as session:
        result = await run(session, "python3", "-c", HOG)
        assert (result.outcome, result.exit_code) == (Outcome.OOM, None)
        child = await run(session, "sh", "-c", f"python3 -c '{HOG}'; exit $?")
        assert child.outcome is Outcome.OOM
        assert await still_works(session)
        assert (await run(session, "sh", "-c", "kill -9 $$")).outcome is Outcome.SIGNALED


@with_groups
async def test_memory_of_many_processes_is_counted_together(grouped: Bench) -> None:
    async with grouped.open("bubblewrap", grouped.spec(limits=Limits(memory_bytes=96 * MB))) as session:
        each = "python3 -c 'b = bytearray(60 << 20); b[::4096] = bytes(len(b) >> 12); import time; time.sleep(1)'"
        result = await run(session, "bash", "-c", f"{each} & {each} & wait -n; echo $?; wait")
        assert b"137" in result.stdout
        assert await still_works(session)


@with_groups
async def test_files_in_memory_cannot_fill_the_memory_limit(grouped: Bench) -> None:
    """64 MB of limit and 80 MB in /tmp leave a place in which nothing can run, not even rm."""
    async with grouped.open("bubblewrap", grouped.spec(limits=Limits(memory_bytes=64 * MB))) as session:
        fill = "for d in /tmp /run /dev/shm ~; do dd if=/dev/zero of=$d/fill bs=1M count=100 2>&1; done"
        assert (await run(session, "sh", "-c", fill)).stdout.count(b"No space left") == 4
        assert await still_works(session)
        assert (await run(session, "sh", "-c", "rm /tmp/fill && echo > /tmp/fill")).ok
    with pytest.raises(UnsupportedSpecError, match="tmp_bytes"):
        async with grouped.open("bubblewrap", grouped.spec(limits=Limits(memory_bytes=64 * MB, tmp_bytes=20 * MB))):
            pass


@pytest.mark.parametrize("place", ["/tmp", "/run", "/dev/shm", "/home/agent"])
async def test_directories_in_memory_have_the_size_that_was_asked_for(bench: Bench, place: str) -> None:
    async with bench.open("bubblewrap", bench.spec(limits=Limits(tmp_bytes=2 * MB))) as session:
        result = await run(session, "dd", "if=/dev/zero", f"of={place}/fill", "bs=64k")
        assert b"No space left" in result.stderr
        assert b"2097152 bytes" in result.stderr
        assert await still_works(session)


async def test_full_disk_in_memory_is_a_clean_file_error(bench: Bench) -> None:
    async with bench.open("bubblewrap", bench.spec(limits=Limits(tmp_bytes=MB))) as session:
        script = "dd if=/dev/zero of=/tmp/fill bs=4k 2>/dev/null; cp /usr/bin/env /tmp/more"
        result = await run(session, "sh", "-c", script)
        assert result.exit_code not in (0, None)
        assert b"No space left" in result.stderr
        await session.write_file("in-the-root", b"goes on")


async def test_number_of_processes_is_bounded_for_each_session_alone(bench: Bench) -> None:
    specs = [replace(bench.spec(session=key), limits=Limits(pids=40)) for key in ("a", "b")]
    async with bench.open("bubblewrap", specs[0]) as a, bench.open("bubblewrap", specs[1]) as b:
        asked = [run(session, "python3", "-c", SLEEPERS, "30", "1") for session in (a, b)]
        assert [result.stdout for result in await asyncio.gather(*asked)] == [b"30\n"] * 2
        await asyncio.sleep(1.2)
        over = await run(a, "python3", "-c", SLEEPERS, "100", "0.5")
        assert 20 <= int(over.stdout) < 40
        await asyncio.sleep(0.7)
        assert await still_works(a)
        assert await still_works(b)


async def test_fork_bomb_is_ended_by_its_time_limit_and_the_session_goes_on(bench: Bench) -> None:
    async with bench.open("bubblewrap", bench.spec(limits=Limits(pids=60))) as session:
        bomb = await run(session, "bash", "-c", "f() { f | f; }; f", timeout_s=0.7)
        assert bomb.outcome in (Outcome.TIMED_OUT, Outcome.EXITED)
        assert await still_works(session)


@with_groups
async def test_cpu_time_is_held_to_its_share(grouped: Bench) -> None:
    burn = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    async with grouped.open("bubblewrap", grouped.spec(limits=Limits(cpus=0.25))) as session:
        assert float((await run(session, "python3", "-c", burn)).stdout) < 0.6


async def test_open_files_and_core_dumps_are_bounded(bench: Bench) -> None:
    async with bench.open("bubblewrap", bench.spec(limits=Limits(open_files=64))) as session:
        result = await run(session, "bash", "-c", "ulimit -n; ulimit -Hn; ulimit -c; ulimit -Hc")
        assert result.stdout.split() == [b"64", b"64", b"0", b"0"]
    async with bench.open("bubblewrap") as session:
        assert int((await run(session, "bash", "-c", "ulimit -n")).stdout) <= 65536


@pytest.mark.req("SBX-08")
def test_backend_promises_what_this_controller_can_hold(bench: Bench) -> None:
    held = bench.backend("bubblewrap").enforces
    assert Enforces.FILESYSTEM | Enforces.NETWORK | Enforces.CREDENTIALS | Enforces.PROCESSES in held
    assert (Enforces.MEMORY | Enforces.CPU in held) == bool(os.geteuid() == 0 and find_hierarchies().controllers)


ORDINARY = r"""
import asyncio, sys
from pathlib import Path
from sandbox_backends.bubblewrap import BubblewrapBackend
from sandbox_backends.contract import *
from sandbox_backends.errors import UnsupportedSpecError
from sandbox_backends.owner import Owner

async def main(base, sleepers):
    for name in ("data", "person", "project"):
        (base / name).mkdir()
    settings = BackendSettings(data_dir=base / "data", person_home=base / "person")
    backend = BubblewrapBackend(settings, Owner(base / "data"))
    probe = await backend.probe()
    assert probe.usable and "memory" in probe.reason and probe.remedy, probe
    assert Enforces.PROCESSES in backend.enforces and not backend.enforces & (Enforces.MEMORY | Enforces.CPU)

    def spec(**limits):
        return SandboxSpec(session="s", roots=(Root(path=base / "project"),), limits=Limits(**limits))

    for limits in ({"memory_bytes": 1 << 30}, {"cpus": 1.0}, {"disk_bytes": 1 << 30}):
        try:
            async with backend.open(spec(**limits)):
                raise SystemExit(f"{limits} was not refused")
        except UnsupportedSpecError as error:
            print(error)
    async with backend.open(spec(pids=40)) as a, backend.open(spec(pids=40)) as b:
        ask = lambda count, time: ExecRequest(argv=("python3", "-c", sleepers, count, time), timeout_s=10)
        both = await asyncio.gather(a.exec(ask("30", "1")), b.exec(ask("30", "1")))
        assert [result.stdout for result in both] == [b"30\n"] * 2, both
        await asyncio.sleep(1.2)
        over = await a.exec(ask("100", "0.5"))
        assert 20 <= int(over.stdout) < 40, over
        await asyncio.sleep(0.7)
        hog = ExecRequest(argv=("python3", "-c", "bytearray(5 << 30)"), timeout_s=10)
        result = await a.exec(hog)
        assert b"MemoryError" in result.stderr, result
        assert (await a.exec(ExecRequest(argv=("true",), timeout_s=5))).ok

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.needs("tester")
@pytest.mark.req("SBX-08")
def test_ordinary_controller_bounds_processes_by_session_and_refuses_what_it_cannot_hold() -> None:
    """RLIMIT_NPROC counts by user namespace when it is set inside one (Linux 5.14)."""
    with directory_of_tester() as base:
        refused = run_as_tester(ORDINARY, str(base), SLEEPERS).stdout.splitlines()
    assert len(refused) == 3
    assert all("cannot enforce" in line for line in refused)


@pytest.mark.needs("root")
@pytest.mark.req("SBX-08")
async def test_limit_on_processes_is_refused_where_the_kernel_would_not_hold_it(bench: Bench) -> None:
    """Without control groups there is RLIMIT_NPROC, from which the host's uid 0 is exempt."""
    bench.label = "project"  # it belongs to root
    backend = BubblewrapBackend(bench.settings, bench.owner)
    backend._holding = Holding(groups=Hierarchies(controllers={}, unified=None), by_namespace=True)
    with pytest.raises(UnsupportedSpecError, match="project of root's"):
        async with backend.open(bench.spec(limits=Limits(pids=40))):
            raise AssertionError
    async with backend.open(bench.spec()) as session:
        assert await still_works(session)
    os.chown(bench.project, 1001, 1001)
    async with backend.open(bench.spec(limits=Limits(pids=40))) as session:
        assert int((await run(session, "python3", "-c", SLEEPERS, "100", "0.5")).stdout) < 40
