"""What tests see behind a sandbox's back: its processes, as the host has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import psutil

from sandbox_backends.contract import SandboxSession
from sandbox_backends.runner.processes import carries, process_table
from tests.docker_engine import container_of, engine_client


def marked(ident: str) -> set[int]:
    """Processes that were started by a command of this sandbox."""
    return {pid for pid in process_table() if carries(pid, f"{ident}.")}


def below(pid: int | None = None) -> list[psutil.Process]:
    """All that descends from ``pid``, else from this process."""
    return psutil.Process(pid).children(recursive=True)


def runner_of(name: str, session: SandboxSession, controller: int | None = None) -> psutil.Process:
    """The runner's process on the host. There must be one sandbox only below this controller."""
    if name == "docker":
        with engine_client() as client:
            return psutil.Process(client.inspect_container(container_of(client, session.id))["State"]["Pid"])
    (found,) = runners(below(controller))
    return found


def runners(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """A command that is just being started looks like the runner that starts it, so children of one are left out."""
    found = {one.pid: one for one in processes if _looks_like_a_runner(one)}
    return [one for one in found.values() if _parent(one) not in found]


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def _looks_like_a_runner(process: psutil.Process) -> bool:
    try:
        return "python" in process.name() and any("runner/start.py" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def named(pids: Iterable[int], name: str) -> list[int]:
    """Those that run the program ``name``."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).name() == name:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a number that was given to another process since does not count."""
    return [one for one in processes if _runs(one)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two looks
        return False


async def comes_true(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Whether it does in time. Asked in a thread: the test's event loop goes on."""
    deadline = time.monotonic() + within_s
    while not await asyncio.to_thread(condition):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
