"""``bubbles gateway`` around the gateway itself: its unit, what the service manager hears, what hinders it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.cli.gateway import watched
from bubbles.cli.gateway_unit import own_program, quoted, unit
from bubbles.config.load import find_places
from bubbles.errors import BubblesError
from bubbles.gateway.lock import gateway_lock
from bubbles.gateway.notify import Announcer

pytestmark = pytest.mark.req("OPS-02")


def fields(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def test_the_unit_starts_this_very_program_with_its_own_data() -> None:
    plain = fields(unit(find_places({"HOME": "/home/ann"})))
    program = own_program()
    assert Path(program[0]).is_absolute()
    assert plain["ExecStart"] == f"{' '.join(program)} gateway"
    assert plain["Type"] == "notify"
    assert "Environment" not in plain
    moved = fields(unit(find_places({"HOME": "/home/ann", "BUBBLES_HOME": "~/my data"})))
    assert moved["Environment"] == '"BUBBLES_HOME=/home/ann/my data"'


@pytest.mark.req("SBX-02")
def test_the_unit_takes_nothing_that_a_sandbox_needs() -> None:
    taken = """NoNewPrivileges PrivateUsers ProtectSystem ProtectHome PrivateTmp PrivateDevices RestrictNamespaces
    SystemCallFilter ProtectKernelTunables ProtectProc LockPersonality RestrictSUIDSGID MemoryDenyWriteExecute UMask"""
    assert not fields(unit(find_places({"HOME": "/home/ann"}))).keys() & set(taken.split())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/usr/bin/bubbles", "/usr/bin/bubbles"),
        ("/a b", '"/a b"'),
        ('/a"b\\c', '"/a\\"b\\\\c"'),
        ("/100%h", '"/100%%h"'),
        ("/a\nExecStartPre=/bin/x", '"/a\\x0aExecStartPre=/bin/x"'),
        ("", '""'),
    ],
)
def test_no_path_can_say_more_than_a_path(text: str, word: str) -> None:
    assert quoted(text) == word


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    hostile = ("/usr/bin/env", 'a $b %n "c" \\ ü')
    places = find_places({"HOME": str(tmp_path), "BUBBLES_HOME": str(tmp_path / "a %n b")})
    for number, program in enumerate((own_program(), hostile)):
        file = tmp_path / f"bubbles{number}.service"
        file.write_text(unit(places, program))
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(
            ["systemd-analyze", "verify", "--user", str(file)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        # Two of its words are younger than some systemd that are in use.
        left = [line for line in done.stderr.splitlines() if "Restart" not in line or "ignoring" not in line]
        assert (done.returncode, [line for line in left if str(file) in line or "bubbles" in line]) == (0, [])


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[Announcer, socket.socket]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listens:
        listens.bind(path)
        listens.setblocking(False)
        yield Announcer({"NOTIFY_SOCKET": path}), listens


async def test_the_service_manager_hears_of_the_end_while_it_is_still_going_on(
    manager: tuple[Announcer, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    told, listens = manager
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    ended = False

    async def serve(on_ready: object) -> None:
        nonlocal ended
        assert callable(on_ready)
        on_ready("http://127.0.0.1:18790; channels: fake\x1b")
        try:
            await asyncio.Event().wait()
        finally:
            await ending.wait()
            ended = True

    work = asyncio.create_task(watched(serve, told))
    async with asyncio.timeout(5):
        assert await loop.sock_recv(listens, 99) == b"READY=1"
        work.cancel()
        assert await loop.sock_recv(listens, 99) == b"STOPPING=1"
        assert not ended
        ending.set()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert ended
    ready, stopping = capsys.readouterr().err.splitlines()
    assert ready == "bubbles gateway: ready, http://127.0.0.1:18790; channels: fake\\x1b"
    assert stopping == "bubbles gateway: stopping"


async def test_what_the_gateway_fails_with_is_what_the_person_is_told(
    manager: tuple[Announcer, socket.socket],
) -> None:
    async def serve(_: object) -> None:
        raise ExceptionGroup("of a task group", [BubblesError("gateway.port 18790 is in use.")])

    told, listens = manager
    with pytest.raises(BubblesError, match=r"gateway\.port 18790 is in use\."):
        await watched(serve, told)
    assert listens.recv(99) == b"STOPPING=1"


async def test_a_gateway_that_ends_by_itself_ends_the_command(manager: tuple[Announcer, socket.socket]) -> None:
    async def serve(_: object) -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await watched(serve, manager[0])


def bubbles(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bubbles", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_second_gateway_is_told_which_one_runs_and_leaves_it_alone(tmp_path: Path) -> None:
    with gateway_lock(tmp_path / ".bubbles", "127.0.0.1", 18790):
        done = bubbles(tmp_path, "gateway")
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith(
            f"bubbles: A gateway runs for {tmp_path / '.bubbles'} already (process {os.getpid()}, on"
        )
        assert "Traceback" not in done.stderr


def test_check_says_what_would_hinder_it_and_starts_nothing(tmp_path: Path) -> None:
    data = tmp_path / ".bubbles"
    data.mkdir()
    (data / "config.json").write_text(
        '{"gateway": {"host": "0.0.0.0"}, "channels": {"telegram": {"enabled": true, "allowFrom": ["*"]}},'
        ' "agents": {"defaults": {"model": "custom/x"}}, "providers": {"custom": {"baseUrl": "http://127.0.0.1:9/v1"}}}'
    )
    done = bubbles(tmp_path, "gateway", "--check")
    assert done.returncode == 1
    assert "gateway.token is not set" in done.stderr
    assert "channels.telegram.token is not set" in done.stderr
    assert "channels.telegram.allowFrom has '*'" in done.stderr
    mended = {
        "BUBBLES_GATEWAY__PORT": "0",
        "BUBBLES_CHANNELS__TELEGRAM__TOKEN": "1:x",
        "BUBBLES_CHANNELS__TELEGRAM__ALLOW_FROM": "7",
    }
    done = bubbles(tmp_path, "gateway", "--check", **mended)
    assert (done.returncode, done.stdout) == (0, "Nothing hinders the gateway. Channels that are on: telegram.\n")


@pytest.mark.req("OPS-02")
@pytest.mark.parametrize(("hangs_s", "status"), [(60.0, 1), (0.0, 0)])
def test_an_end_that_hangs_is_over_all_the_same(hangs_s: float, status: int) -> None:
    code = (
        "import time; from bubbles.cli.gateway import over_in_time\n"
        f"with over_in_time(0.2) as begins: begins(); time.sleep({hangs_s})"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=10, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
