"""A person at a terminal: a real pseudo-terminal with a real program on it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

PATIENCE_S = 15.0
WHERE_IS_THE_CURSOR = b"\x1b[6n"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_=>]")


@dataclass(slots=True)
class Person:
    """``types`` and ``sees``: what is seen counts once."""

    program: asyncio.subprocess.Process
    master: int
    raw: bytearray = field(default_factory=bytearray)
    """All that came."""
    _read: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def sees(self, text: str) -> str:
        """What came up to and with ``text``, without control sequences."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                shown = self.unread
                if text in shown:
                    break
                self._news.clear()
                try:
                    await self._news.wait()
                except asyncio.CancelledError:
                    raise AssertionError(f"{text!r} is not in {shown!r}") from None
        # Up to the last byte that is needed.
        low, high = self._read, len(self.raw)
        while low < high:
            middle = (low + high) // 2
            if text in _plain(self.raw[self._read : middle]):
                high = middle
            else:
                low = middle + 1
        seen = _plain(self.raw[self._read : low])
        self._read = low
        return seen

    @property
    def unread(self) -> str:
        return _plain(self.raw[self._read :])

    def sends(self, number: signal.Signals) -> None:
        """To the program itself, as a service manager or a closing window does."""
        os.kill(self._pid(), number)

    def hangs_up(self) -> None:
        asyncio.get_running_loop().remove_reader(self.master)
        os.close(self.master)
        self.master = -1

    async def leaves(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.program.wait()

    def _pid(self) -> int:
        return os.tcgetpgrp(self.master)

    def _arrived(self) -> None:
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        for _ in range(data.count(WHERE_IS_THE_CURSOR)):
            os.write(self.master, b"\x1b[30;1R")
        self.raw += data
        self._news.set()


def _plain(data: bytes | bytearray) -> str:
    return CONTROL.sub("", data.decode("utf-8", "replace")).replace("\r", "")


@contextlib.asynccontextmanager
async def at_a_terminal(
    argv: Sequence[str], env: Mapping[str, str], *, columns: int = 100, rows: int = 40
) -> AsyncIterator[Person]:
    """The program runs in a session of its own, controlled by the terminal; it is killed at the end."""
    master, source = pty.openpty()
    fcntl.ioctl(source, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    program = await asyncio.create_subprocess_exec(
        *("setsid", "--ctty", "--wait"), *argv, stdin=source, stdout=source, stderr=source, env=env
    )
    os.close(source)
    person = Person(program, master)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, person._arrived)
    try:
        yield person
    finally:
        if person.master >= 0:
            person.hangs_up()
        with contextlib.suppress(ProcessLookupError):
            program.kill()
        await program.wait()
