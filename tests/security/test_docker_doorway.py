"""The door that a container's runner comes through: one connection, of one user, with one token."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_backends.docker.doorway import SOCKET, TOKEN, Doorway, doorway
from sandbox_backends.errors import BackendUnavailableError

pytestmark = [pytest.mark.needs("linux"), pytest.mark.req("SBX-05")]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Doorway]:
    async with doorway(tmp_path) as made:
        yield made


async def knock(path: Path, said: bytes) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, str(path / SOCKET))
    except OSError:
        sock.close()
        raise
    await asyncio.get_running_loop().sock_sendall(sock, said)
    return sock


async def hung_up(sock: socket.socket) -> None:
    try:
        assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionResetError:
        pass  # closed before all was read


async def token(path: Path) -> bytes:
    return await asyncio.to_thread((path / TOKEN).read_bytes)


async def test_right_user_with_the_token_is_let_in_and_the_door_is_shut(door: Doorway, tmp_path: Path) -> None:
    with (
        await knock(tmp_path, await token(tmp_path) + b"and more") as outside,
        await door.accept(os.getuid()) as inside,
    ):
        assert await asyncio.get_running_loop().sock_recv(inside, 100) == b"and more"
        assert await asyncio.to_thread(os.listdir, tmp_path) == []
        with pytest.raises(FileNotFoundError):
            (await knock(tmp_path, b"")).close()
        assert outside.fileno() >= 0


@pytest.mark.parametrize("shown", [b"", b"x", b"0" * 64, "first half", b"\0" * 64])
async def test_wrong_token_is_turned_away(door: Doorway, tmp_path: Path, shown: bytes | str) -> None:
    said = (await token(tmp_path))[:32] if isinstance(shown, str) else shown
    with await knock(tmp_path, said) as outside:
        outside.shutdown(socket.SHUT_WR)
        with pytest.raises(BackendUnavailableError, match="Something else"):
            await door.accept(os.getuid())
        await hung_up(outside)


async def test_another_user_with_the_token_is_turned_away(door: Doorway, tmp_path: Path) -> None:
    with await knock(tmp_path, await token(tmp_path)) as outside:
        with pytest.raises(BackendUnavailableError, match=f"as uid {os.getuid()}, not as uid {os.getuid() + 1}"):
            await door.accept(os.getuid() + 1)
        await hung_up(outside)


async def test_tokens_are_of_one_use(tmp_path: Path) -> None:
    found = set()
    for _ in range(3):
        async with doorway(tmp_path):
            found.add(await token(tmp_path))
        await asyncio.to_thread((tmp_path / SOCKET).unlink)
    assert len(found) == 3
    assert {len(text) for text in found} == {64}
