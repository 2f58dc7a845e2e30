"""Threads and processes that are seen to their end, however often whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_backends import launch as launching
from sandbox_backends.launch import launch
from sandbox_backends.threads import in_thread
from tests.processes import comes_true


class Gated:
    """A context whose entering and leaving take as long as the test wants."""

    def __init__(self) -> None:
        self.may_enter, self.may_leave = threading.Event(), threading.Event()
        self.entering, self.leaving = threading.Event(), threading.Event()
        self.log: list[str] = []

    @contextmanager
    def open(self) -> Iterator[str]:
        self.entering.set()
        assert self.may_enter.wait(5)
        self.log.append("entered")
        try:
            yield "value"
        finally:
            self.leaving.set()
            assert self.may_leave.wait(5)
            self.log.append("left")


async def cancelled_twice(task: asyncio.Task[None]) -> None:
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.02)
    assert not task.done()  # it waits for the thread


async def test_context_that_is_cancelled_twice_while_it_enters_is_left_again() -> None:
    gate = Gated()

    async def use() -> None:
        async with in_thread(gate.open()):
            raise AssertionError

    task = asyncio.create_task(use())
    await asyncio.to_thread(gate.entering.wait, 5)
    await cancelled_twice(task)
    gate.may_enter.set()
    await asyncio.to_thread(gate.leaving.wait, 5)
    await cancelled_twice(task)
    gate.may_leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.log == ["entered", "left"]


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
async def test_context_that_is_cancelled_twice_while_it_leaves_is_left_first(error: type[Exception] | None) -> None:
    gate = Gated()
    gate.may_enter.set()

    async def use() -> None:
        async with in_thread(gate.open()) as value:
            assert value == "value"
            if error is not None:
                raise error

    task = asyncio.create_task(use())
    await asyncio.to_thread(gate.leaving.wait, 5)
    await cancelled_twice(task)
    gate.may_leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.log == ["entered", "left"]


def test_context_is_left_even_when_the_event_loop_ends_under_it() -> None:
    """asyncio.run cancels every task, not only the one that waits."""
    gate = Gated()

    async def use() -> None:
        async with in_thread(gate.open()):
            raise AssertionError

    async def main() -> None:
        gate.may_leave.set()
        asyncio.get_running_loop().call_later(0.1, gate.may_enter.set)
        task = asyncio.create_task(use())
        await asyncio.to_thread(gate.entering.wait, 5)
        assert not task.done()

    asyncio.run(main())
    assert gate.log == ["entered", "left"]


async def test_error_in_the_body_may_be_swallowed_by_the_context_as_in_any_with() -> None:
    @contextmanager
    def swallowing() -> Iterator[None]:
        try:
            yield
        except ZeroDivisionError:
            pass

    async with in_thread(swallowing()):
        raise ZeroDivisionError


# -- processes --

STUBBORN = "trap '' TERM; sleep 60 & echo $! >\"$1\"; wait"


def started(pids: Path) -> list[int]:
    return [int(word) for word in pids.read_text().split()] if pids.exists() else []


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.needs("linux")
@pytest.mark.parametrize("cancellations", [1, 2, 3])
async def test_process_whose_opener_is_cancelled_again_and_again_is_killed_and_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancellations: int
) -> None:
    monkeypatch.setattr(launching, "END_S", 60.0)
    pids, found = tmp_path / "pids", []

    async def use() -> None:
        async with launch(lambda _: ("sh", "-c", STUBBORN, "sh", str(pids)), env={}) as runner:
            found.append(runner.process)
            await asyncio.sleep(60)

    task = asyncio.create_task(use())
    assert await comes_true(lambda: bool(started(pids)))
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    if cancellations == 1:
        await asyncio.sleep(0.05)
        assert not task.done()  # it may still end by itself
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found[0].returncode == -signal.SIGKILL
    assert await comes_true(lambda: not any(map(runs, [found[0].pid, *started(pids)])))


@pytest.mark.needs("linux")
async def test_what_a_process_left_in_its_group_is_killed_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = 'sleep 60 & echo $! >"$1"'
    async with launch(lambda _: ("sh", "-c", script, "sh", str(pids)), env={}) as runner:
        await runner.process.wait()
        (left,) = await asyncio.to_thread(started, pids)
        assert await asyncio.to_thread(runs, left)
    assert await comes_true(lambda: not runs(left))


REUSED = """
import asyncio, os, subprocess
from sandbox_backends.launch import _kill_group

async def main():
    process = await asyncio.create_subprocess_exec("true", start_new_session=True)
    await process.wait()
    for _ in range(1000):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(process.pid - 1))
        stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
        if stranger.pid == process.pid:
            break
        stranger.kill()
        stranger.wait()
    else:
        raise SystemExit("the number was not given again")
    _kill_group(process)
    try:
        print("killed", stranger.wait(0.3))
    except subprocess.TimeoutExpired:
        print("spared")
    stranger.kill()
    stranger.wait()

asyncio.run(main())
"""


@pytest.mark.needs("root", "linux")
def test_group_of_a_stranger_that_was_given_the_number_is_spared() -> None:
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED]
    root = Path(__file__).parents[3]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=False, cwd=root)
    assert done.stdout.strip() == "spared", done.stderr
