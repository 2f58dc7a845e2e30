"""The way out of a hard place: the allow-list proxy, on a unix socket that the place can see (SBX-07)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_backends.contract import Network, SandboxSpec

PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
"""Where a command finds the bridge to the proxy."""
EGRESS_SOCKET = "egress.sock"


@asynccontextmanager
async def egress(
    spec: SandboxSpec, directory: Path, inside: str, on_refusal: Callable[[str], None]
) -> AsyncIterator[tuple[str, ...]]:
    """The egress proxy of one session on ``directory/egress.sock`` while the context lasts, if it has an allow-list.

    Gives the arguments for ``runner/bridge.py``, or ``()``. ``inside`` is where the place sees ``directory``, which
    must lie below one that no other user can enter: the socket itself is open, since a place may run as any uid.
    Raises InvalidSpecError for an entry of the allow-list that cannot be used.
    """
    if spec.network is not Network.ALLOWLIST:
        yield ()
        return
    from sandbox_backends.egress import AllowList, EgressProxy

    proxy = EgressProxy(AllowList.parse(spec.allow), on_refusal)
    listener = await asyncio.to_thread(listen_in, directory, EGRESS_SOCKET)
    async with proxy.serve(listener):
        yield ("--listen", str(PROXY_PORT), "--unix", f"{inside}/{EGRESS_SOCKET}")


def listen_in(directory: Path, name: str) -> socket.socket:
    """A listening unix socket ``directory/name`` that every uid may connect to. Raises OSError.

    The path in a socket's address ends after 108 bytes (104 on macOS), which a deep data directory exceeds: on Linux
    the directory is reached by descriptor instead.
    """
    path = directory / name
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if sys.platform == "linux":
            holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                listener.bind(f"/proc/self/fd/{holder}/{name}")
            finally:
                os.close(holder)
        else:
            listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
