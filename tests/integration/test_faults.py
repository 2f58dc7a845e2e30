"""Controller, runner and launcher killed or stopped: the loss is told, and nothing is left running (SPEC 4.10)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from sandbox_backends.contract import ExecRequest, Outcome, SandboxSession
from sandbox_backends.errors import SandboxLostError
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.owner import records
from sandbox_backends.reaper import reap_processes
from tests.places import REAL, Bench, make_bench
from tests.processes import alive, below, comes_true, marked, named, runner_of, runners

REPOSITORY = Path(__file__).parents[2]
TRUE = ExecRequest(argv=("true",), timeout_s=5)
SPREADING = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000"
"""A command with children in sessions of their own, one of them orphaned."""

OF_PROCESSES = tuple(param for param in REAL if param.id != "docker")
"""Containers in the same faults: test_docker_faults.py."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


def sh(script: str, timeout_s: float = 10.0) -> ExecRequest:
    return ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=timeout_s)


def left_in_run(bench: Bench) -> list[str]:
    kept = ("owners", "id")
    return [p.name for p in (bench.base / "data/run").iterdir() if p.name not in kept and "runner-" not in p.name]


def left_groups(ident: str) -> list[Path]:
    return [path for path in find_hierarchies().groups(ident) if path.exists()]


# -- the runner --


@asynccontextmanager
async def losing(bench: Bench, name: str) -> AsyncIterator[tuple[SandboxSession, psutil.Process]]:
    """A session in which something runs and which is lost in the block; told in time, and nothing is left of it."""
    async with bench.open(name) as session:
        running = asyncio.create_task(session.exec(sh(SPREADING, timeout_s=100)))
        background = await session.start(sh("sleep 1000", timeout_s=100))
        assert (await session.exec(TRUE)).ok
        runner = await asyncio.to_thread(runner_of, name, session)
        whole = [runner, *runner.children(recursive=True)]
        yield session, runner
        async with asyncio.timeout(10):
            result = await running
            assert (result.outcome, result.exit_code) == (Outcome.LOST, None)
            ended = await background.wait()
            assert ended is not None
            assert ended.outcome is Outcome.LOST
        with pytest.raises(SandboxLostError):
            await session.read_file("x")
        assert session.lost
        assert session.lost[0].islower()
        assert "\n" not in session.lost
    assert await comes_true(lambda: not alive(whole) and not marked(session.id)), alive(whole)
    assert await asyncio.to_thread(left_in_run, bench) == []
    assert await asyncio.to_thread(left_groups, session.id) == []


@pytest.mark.parametrize("name", REAL)
@pytest.mark.req("SBX-05", "SBX-06")
async def test_killed_runner_is_told_as_a_loss_and_nothing_is_left(bench: Bench, name: str) -> None:
    async with losing(bench, name) as (session, runner):
        runner.kill()
    async with bench.open(name) as session:
        assert (await session.exec(TRUE)).ok
        assert session.lost is None


@pytest.mark.needs("bubblewrap")
async def test_killed_bwrap_takes_its_sandbox_with_it(bench: Bench) -> None:
    async with losing(bench, "bubblewrap") as (_, runner):
        launcher = next(one for one in runner.parents() if one.name() == "bwrap")
        launcher.kill()


@pytest.mark.parametrize("name", OF_PROCESSES)
async def test_several_commands_in_flight_are_all_told_of_the_loss(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        running = [asyncio.create_task(session.exec(sh("sleep 1000", timeout_s=100))) for _ in range(20)]
        reading = asyncio.create_task(session.exec(ExecRequest(argv=("cat",), stdin=b"x" * (64 << 20), timeout_s=100)))
        await session.exec(TRUE)
        runner_of(name, session).kill()
        async with asyncio.timeout(10):
            results = await asyncio.gather(*running, reading)
    assert {result.outcome for result in results} == {Outcome.LOST}


@pytest.mark.slow
@pytest.mark.timeout(40)
async def test_runner_of_local_that_a_command_stops_is_lost_after_its_deadline_and_costs_no_other(bench: Bench) -> None:
    """SIGSTOP from the same uid: ``local`` cannot keep it off. B007: the controller and other sessions go on."""
    began = time.monotonic()
    async with bench.open("local", bench.spec(session="other")) as other, bench.open("local") as session:
        assert (await session.exec(sh("sleep 1000 & setsid sleep 1000 & true"))).ok
        task = asyncio.create_task(session.exec(sh("kill -STOP $PPID; sleep 1000", timeout_s=0.1)))
        large = asyncio.create_task(session.write_file("large", bytes(8 << 20)))
        while not task.done():
            assert (await other.exec(TRUE)).ok
            await asyncio.wait({task}, timeout=0.5)
        assert (await task).outcome is Outcome.LOST
        with pytest.raises(SandboxLostError):
            await large
        assert "did not answer" in (session.lost or "")
        assert time.monotonic() - began < 15
    assert await comes_true(lambda: not marked(session.id))
    assert os.listdir(bench.project) == []


# -- the controller --

CONTROLLER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sandbox_backends.contract import ExecRequest
from sandbox_backends.owner import Owner
from tests.places import Bench

async def main():
    base = Path(sys.argv[2])
    async with Bench(base=base, owner=Owner(base / "data")).open(sys.argv[3]) as session:
        running = asyncio.create_task(session.exec(ExecRequest(argv=("sh", "-c", sys.argv[4]), timeout_s=1000)))
        await session.exec(ExecRequest(argv=("true",), timeout_s=5))
        writing = asyncio.create_task(session.write_file("half", bytes(16 << 20)))
        print(session.id, flush=True)
        await running

asyncio.run(main())
"""


@asynccontextmanager
async def controller(bench: Bench, name: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A controller in a process of its own, in the middle of a command; with the id of its sandbox."""
    argv = (sys.executable, "-c", CONTROLLER, str(REPOSITORY), str(bench.base), name, SPREADING)
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        ident = (await process.stdout.readline()).decode().strip()
        assert await comes_true(lambda: len(named(marked(ident), "sleep")) == 4)
        yield process, ident
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("name", OF_PROCESSES)
@pytest.mark.req("SBX-05", "SBX-06")
async def test_killed_controller_leaves_no_process_and_its_record_is_reaped(bench: Bench, name: str) -> None:
    """B019: nothing is left in the project either."""
    async with controller(bench, name) as (process, ident):
        whole = below(process.pid)
        assert whole
        process.kill()
        await process.wait()
        assert await comes_true(lambda: not alive(whole) and not marked(ident)), alive(whole)
    assert [name for name in os.listdir(bench.project) if name != "half"] == []
    assert [record.id for record in await asyncio.to_thread(records, bench.settings.data_dir)] == [ident]
    assert [record.id for record in await asyncio.to_thread(reap_processes, bench.settings.data_dir)] == [ident]
    assert await asyncio.to_thread(left_in_run, bench) == []
    assert await asyncio.to_thread(left_groups, ident) == []
    assert len(os.listdir(bench.base / "data/run/owners")) == 1  # this test's own


@pytest.mark.parametrize("name", OF_PROCESSES)
@pytest.mark.req("SBX-05", "SBX-06")
async def test_controller_and_runner_killed_at_once_leave_nothing_that_reaping_does_not_end(
    bench: Bench, name: str
) -> None:
    async with controller(bench, name) as (process, ident):
        whole = below(process.pid)
        (runner,) = runners(whole)
        for victim in (process, runner):
            victim.send_signal(signal.SIGSTOP)  # so that neither sees the other's end
        for victim in (process, runner):
            victim.kill()
        await process.wait()
        if name == "bubblewrap":  # its processes end with the first of their namespace
            assert await comes_true(lambda: not marked(ident))
        reaped = await asyncio.to_thread(reap_processes, bench.settings.data_dir)
        assert [record.id for record in reaped] == [ident]
        assert await comes_true(lambda: not alive(whole) and not marked(ident)), alive(whole)
    assert await asyncio.to_thread(left_in_run, bench) == []
    assert await asyncio.to_thread(left_groups, ident) == []


@pytest.mark.parametrize("name", OF_PROCESSES)
async def test_reaping_leaves_a_live_controller_s_sandbox_alone(bench: Bench, name: str) -> None:
    async with controller(bench, name) as (process, ident):
        before = await asyncio.to_thread(marked, ident)
        assert await asyncio.to_thread(reap_processes, bench.settings.data_dir) == []
        assert await asyncio.to_thread(marked, ident) == before
        assert process.returncode is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_controller_that_is_told_to_end_leaves_no_process(bench: Bench, number: signal.Signals) -> None:
    async with controller(bench, "local") as (process, ident):
        whole = below(process.pid)
        process.send_signal(number)
        async with asyncio.timeout(8):
            await process.wait()
        assert await comes_true(lambda: not alive(whole) and not marked(ident)), alive(whole)
