"""The event loop of every command."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from bubbles.tools.web.threads import Threads

MAX_LOOKUPS = 32


class Loop(asyncio.SelectorEventLoop):
    """One that looks names up aside. A name that nobody answers for takes half a minute: left to itself the loop would
    not end before, and a few of them would take the threads in which everything else waits for the disk.
    """

    def __init__(self, lookup: Callable[..., Any] = socket.getaddrinfo) -> None:
        super().__init__()
        self._lookup = lookup
        self._lookups = Threads(MAX_LOOKUPS)

    async def getaddrinfo(self, *where: Any, **how: Any) -> Any:
        """As ``socket.getaddrinfo``."""
        return await self._lookups.run(partial(self._lookup, *where, **how))
