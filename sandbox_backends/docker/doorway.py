"""The door through which a runner comes back out: one connection, from the expected user, with a one-time token."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.network import listen_in

SOCKET, TOKEN = "link.sock", "token"
TOKEN_CHARS = 64
TOKEN_S = 10.0
"""How long a runner may take to show its token once it is connected."""
_CREDENTIALS = struct.Struct("3i")


class Doorway:
    """Create with :func:`doorway`. The directory is for the inside of the place, read-only."""

    def __init__(self, directory: Path, listener: socket.socket, token: str) -> None:
        self._directory = directory
        self._listener = listener
        self._token = token

    async def accept(self, uid: int) -> socket.socket:
        """The connection of the runner, which must be of this user of the host. The door is shut behind the first one.

        Raises BackendUnavailableError when somebody else came.
        """
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(self._listener)
        try:
            self._listener.close()
            await asyncio.to_thread(_remove, self._directory)
            _, peer, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if peer != uid:
                raise BackendUnavailableError(f"The sandbox's runner came as uid {peer}, not as uid {uid}.")
            sock.setblocking(False)
            shown = b""
            async with asyncio.timeout(TOKEN_S):
                while len(shown) < TOKEN_CHARS:
                    piece = await loop.sock_recv(sock, TOKEN_CHARS - len(shown))
                    if not piece:
                        break
                    shown += piece
            if not hmac.compare_digest(shown, self._token.encode()):
                raise BackendUnavailableError("Something else than the sandbox's runner connected.")
        except TimeoutError:
            sock.close()
            raise BackendUnavailableError("The sandbox's runner did not show its token.") from None
        except BaseException:
            sock.close()
            raise
        return sock


@asynccontextmanager
async def doorway(directory: Path) -> AsyncIterator[Doorway]:
    """Open a door in ``directory``, which exists and lies below one that no other user can enter."""
    token = secrets.token_hex(TOKEN_CHARS // 2)
    listener = await asyncio.to_thread(_prepare, directory, token)
    try:
        yield Doorway(directory, listener, token)
    finally:
        listener.close()


def _prepare(directory: Path, token: str) -> socket.socket:
    path = directory / TOKEN
    path.write_text(token)
    os.chmod(path, 0o644)  # read inside by a uid that may be any; outside, the directory above is ours alone
    return listen_in(directory, SOCKET)


def _remove(directory: Path) -> None:
    for name in (SOCKET, TOKEN):
        (directory / name).unlink(missing_ok=True)
