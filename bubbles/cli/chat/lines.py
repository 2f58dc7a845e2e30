"""A terminal that knows only lines: one without cursor movements, such as inside an editor."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from bubbles.cli.chat.contract import MAX_LINES, Keys, Question
from bubbles.cli.chat.text import fitting

PROMPT = "> "
MAX_READ_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True)
class _Asked:
    terminal: LineTerminal
    lines: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(MAX_LINES))

    async def answer(self, prompt: str) -> str | None:
        self.terminal.write(prompt)
        return await self.lines.get()


class LineTerminal:
    """Use as an async context. The terminal's own line editing stays in force."""

    def __init__(self, keys: Keys, source: int = 0) -> None:
        """``source`` is the descriptor of the terminal that is read."""
        self._keys = keys
        self._source = source
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(MAX_LINES)
        self._asked: _Asked | None = None
        self._typed = b""
        """The beginning of a line."""
        self._message = b""
        """The beginning of a message: lines that end in a backslash."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._source, self._read)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        return self

    async def __aexit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._source)
        loop.remove_signal_handler(signal.SIGINT)

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stdout.write(fitting(text, self.encoding))
            sys.stdout.flush()

    def live(self, text: str) -> None:
        """What is not finished cannot be shown and taken back."""

    def ready(self) -> None:
        self.write(PROMPT)

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding or "utf-8"

    def size(self) -> tuple[int, int]:
        size = shutil.get_terminal_size()
        return size.columns, size.lines

    async def line(self) -> str | None:
        return await self._lines.get()

    @asynccontextmanager
    async def asking(self, text: str) -> AsyncIterator[Question]:
        self.write(text)
        with suppress(OSError, termios.error):
            termios.tcflush(self._source, termios.TCIFLUSH)
        self._typed = self._message = b""
        self._asked = _Asked(terminal=self)
        try:
            yield self._asked
        finally:
            self._asked = None
            if not self._keys.running:  # a task in the background asked: no end of a turn will say so
                self.ready()

    def _read(self) -> None:
        try:
            data = os.read(self._source, MAX_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            if self._asked is None:
                asyncio.get_running_loop().remove_reader(self._source)
            self._put(None)
            return
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self._asked is None and line.endswith(b"\\"):
            self._message += line[:-1] + b"\n"
            return
        whole, self._message = self._message + line, b""
        self._put(whole.decode("utf-8", "replace"))

    def _interrupted(self) -> None:
        self._typed = self._message = b""
        if self._asked is not None:
            self._put(None)
        else:
            self._keys.interrupted()

    def _put(self, text: str | None) -> None:
        queue = self._lines if self._asked is None else self._asked.lines
        try:
            queue.put_nowait(text)
        except asyncio.QueueFull:
            self.write(f"{MAX_LINES} lines wait already: this one was not taken.\n")
