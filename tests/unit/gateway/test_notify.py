"""What the service manager is told."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles.gateway.notify import Announcer

pytestmark = pytest.mark.req("OPS-02")


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listens:
        listens.bind(address)
        listens.setblocking(False)
        yield listens


def test_a_service_manager_is_told_of_the_beginning_and_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        told = Announcer({"NOTIFY_SOCKET": path})
        told.ready()
        told.stopping()
        assert [manager.recv(99), manager.recv(99)] == [b"READY=1", b"STOPPING=1"]


def test_a_manager_that_listens_on_an_abstract_socket_is_told() -> None:
    name = f"bubbles-test-{os.getpid()}"
    with listening(f"\0{name}") as manager:
        Announcer({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert manager.recv(99) == b"READY=1"


@pytest.mark.parametrize("named", ["", "relative", "/not/there", "@", "vsock:2:1234", "/x" * 200])
async def test_nobody_to_tell_hinders_nothing(named: str) -> None:
    told = Announcer({"NOTIFY_SOCKET": named})
    told.ready()
    told.stopping()


async def test_a_watchdog_hears_that_the_event_loop_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        told = Announcer({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid())})
        alive = asyncio.create_task(told.stay_alive())
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            assert [await loop.sock_recv(manager, 99) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        alive.cancel()
        await asyncio.wait([alive])


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
async def test_without_a_watchdog_nothing_is_said_to_it(tmp_path: Path, more: dict[str, str]) -> None:
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        async with asyncio.timeout(5):
            await Announcer({"NOTIFY_SOCKET": path, **more}).stay_alive()
        with pytest.raises(BlockingIOError):
            manager.recv(99)
