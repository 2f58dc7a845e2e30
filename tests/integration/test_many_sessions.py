"""A hundred sessions at once, and the pool over real places: nothing stays behind in the controller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bubbles.controller.sandboxes import Sandboxes
from sandbox_backends.contract import ExecRequest, Limits, Network, Root, SandboxSpec
from tests.places import REAL, Bench, make_bench
from tests.processes import below, comes_true, runners

TRUE = ExecRequest(argv=("true",), timeout_s=10)
HOW_MANY = {"local": 100, "local_isolated": 30, "bubblewrap": 100, "docker": 12}
"""A container takes the engine most of a second of work, here as anywhere."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed them
    return found


def left(bench: Bench) -> list[str]:
    return [p.name for p in (bench.base / "data/run").iterdir() if (p / "sandbox.json").exists()]


@pytest.mark.timeout(90)
@pytest.mark.blocking  # the event loop is the test's own while nothing runs
@pytest.mark.parametrize("name", REAL)
@pytest.mark.req("SBX-04", "SBX-05")
async def test_hundred_sessions_at_once_answer_and_leave_nothing(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:  # what is made once: the staged runner, threads, the engine's description
        assert (await session.exec(TRUE)).ok
    before, threads = descriptors(), psutil.Process().num_threads()
    number = HOW_MANY[name]
    all_open = asyncio.Barrier(number)
    most = 0

    async def one(index: int) -> bytes:
        nonlocal most
        async with bench.open(name, bench.spec(session=f"s{index}")) as session:
            await all_open.wait()
            most = max(most, len(left(bench)))
            result = await session.exec(ExecRequest(argv=("echo", str(index)), timeout_s=30))
            await session.write_file(f"file-{index}", result.stdout)
            return await session.read_file(f"file-{index}")

    results = await asyncio.gather(*(one(index) for index in range(number)))
    assert results == [b"%d\n" % index for index in range(number)]
    assert most == number
    assert left(bench) == []
    assert await comes_true(lambda: below() == []), below()
    assert await comes_true(lambda: len(descriptors()) <= len(before)), (before, descriptors())
    assert psutil.Process().num_threads() <= max(threads, 2) + 32  # the loop's own pool, which is bounded
    assert len(list(bench.project.iterdir())) == number


@pytest.mark.parametrize("name", [param for param in REAL if param.id in ("local", "local_isolated")])
@pytest.mark.blocking  # it looks at processes
async def test_opening_that_is_cancelled_at_any_moment_leaves_nothing(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        assert (await session.exec(TRUE)).ok
    before = descriptors()

    async def use() -> None:
        async with bench.open(name):
            await asyncio.sleep(60)

    for step in range(25):
        task = asyncio.create_task(use())
        await asyncio.sleep(0.004 * step)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    assert left(bench) == []
    assert await comes_true(lambda: below() == []), below()
    assert await comes_true(lambda: len(descriptors()) <= len(before)), (before, descriptors())


@pytest.mark.parametrize("name", [param for param in REAL if param.id in ("local", "bubblewrap")])
@pytest.mark.req("SBX-05")
async def test_pool_replaces_a_real_sandbox_that_was_lost_and_tells_so_once(bench: Bench, name: str) -> None:
    """B028."""
    spec = bench.spec(home=bench.base / "data" / "session_homes" / "test")
    async with Sandboxes(bench.backend, idle_s=60) as sandboxes:
        sandboxes.open_ahead(name, spec)
        async with sandboxes.use(name, spec) as lease:
            await lease.session.write_file("file", b"kept")
            (runner,) = await asyncio.to_thread(lambda: runners(below()))
            running = asyncio.create_task(lease.session.exec(ExecRequest(argv=("sleep", "60"), timeout_s=60)))
            await lease.session.exec(TRUE)
            runner.kill()
            assert (await running).outcome.value == "lost"
        told = []
        for _ in range(3):
            async with sandboxes.use(name, spec) as lease:
                told.append(lease.reset)
                assert await lease.session.read_file("file") == b"kept"
        assert told[1:] == [None, None]
        assert told[0]
        assert "processes and temporary files" in told[0]
    assert await comes_true(lambda: below() == []), below()


async def test_pool_tells_each_that_a_place_cannot_be_had(bench: Bench) -> None:
    spec = SandboxSpec(session="s", roots=(Root(path=bench.project),), network=Network.NONE, limits=Limits())
    async with Sandboxes(bench.backend) as sandboxes:
        for _ in range(2):
            with pytest.raises(Exception, match="cannot enforce network 'none'"):
                async with sandboxes.use("local", spec):
                    raise AssertionError
            with pytest.raises(Exception, match="no sandbox backend 'loco'"):
                async with sandboxes.use("loco", spec):
                    raise AssertionError
