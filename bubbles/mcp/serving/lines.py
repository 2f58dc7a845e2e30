"""Lines over two open files, with every size bounded.

Neither file is changed: whoever else has it open, such as the shell of a terminal, must not find it non-blocking. So
each read follows a look that says there is something, and each write one that says there is room, of no more than
always fits then (``select.PIPE_BUF``).
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

MAX_LINE_BYTES = 16 << 20
CHUNK = 1 << 16
ROOMY_BYTES = 1 << 20
"""What may wait for a slow reader before the next line has to wait itself."""


class OverlongError(Exception):
    """A line of over ``MAX_LINE_BYTES``; the next one can be read as ever."""


class LinesIn:
    """All calls belong to one event loop. It reads ahead, at most a line's largest size, so that it knows of the end
    while nobody asks for lines.
    """

    def __init__(self, fd: int, on_end: Callable[[], None], max_bytes: int = MAX_LINE_BYTES) -> None:
        """``on_end`` is called once, when nothing more will come; lines may be left then."""
        self.ended = False
        self._fd = fd
        self._on_end = on_end
        self._max_bytes = max_bytes
        self._read = bytearray()
        self._searched = 0
        self._skipping = False
        self._reading = False
        self._pollable = True
        self._changed = asyncio.Event()
        self._resume()

    async def next(self) -> bytes | None:
        """Without its end; None after the last. Raises OverlongError."""
        while (line := self._take()) is None and not self.ended:
            self._changed.clear()
            self._resume()
            await self._changed.wait()
        return line

    def close(self) -> None:
        """Read no more."""
        self._pause()
        if not self.ended:
            self.ended = True
            self._changed.set()
            self._on_end()

    def _take(self) -> bytes | None:
        while (end := self._read.find(b"\n", self._searched)) >= 0:
            line = bytes(self._read[:end])
            del self._read[: end + 1]
            self._searched = 0
            if not self._skipping:
                return self._checked(line)
            self._skipping = False
        if self._skipping or len(self._read) > self._max_bytes:
            begun, self._skipping = not self._skipping, True
            self._read.clear()
            self._searched = 0
            if begun:
                raise OverlongError
        self._searched = len(self._read)
        if self.ended and self._read:
            line = bytes(self._read)
            self._read.clear()
            self._searched = 0
            return self._checked(line)
        return None

    def _checked(self, line: bytes) -> bytes:
        if len(line) > self._max_bytes:
            raise OverlongError
        return line

    def _resume(self) -> None:
        if self._reading or self.ended or len(self._read) > self._max_bytes:
            return
        loop = asyncio.get_running_loop()
        self._reading = True
        if self._pollable:
            try:
                loop.add_reader(self._fd, self._readable)
            except PermissionError:  # a file, or /dev/null: always readable, and no selector takes it
                self._pollable = False
        if not self._pollable:
            loop.call_soon(self._readable)

    def _pause(self) -> None:
        if self._reading and self._pollable:
            asyncio.get_running_loop().remove_reader(self._fd)
        self._reading = False

    def _readable(self) -> None:
        if not self._reading:
            return
        try:
            data = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the terminal, or the other end of the socket, is gone
            data = b""
        if not data:
            self.close()
            return
        self._read += data
        self._changed.set()
        if not self._pollable or len(self._read) > self._max_bytes:
            self._pause()
            self._resume()


class LinesOut:
    """All calls belong to one event loop. A line goes out whole, whatever becomes of the call that sends it."""

    def __init__(self, fd: int, on_gone: Callable[[], None], roomy_bytes: int = ROOMY_BYTES) -> None:
        """``on_gone`` is called once, when nobody reads any more."""
        self.gone = False
        self._fd = fd
        self._on_gone = on_gone
        self._roomy_bytes = roomy_bytes
        self._waiting = bytearray()
        self._turn = asyncio.Lock()
        self._roomy = asyncio.Event()
        self._roomy.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._writing = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    async def roomy(self) -> None:
        """Return when a line would not have to wait, or nobody reads any more."""
        await self._roomy.wait()

    async def idle(self) -> None:
        """Return when all is written, or nobody reads any more."""
        await self._idle.wait()

    async def send(self, line: bytes) -> None:
        """Returns once the line is on its way. Raises BrokenPipeError."""
        async with self._turn:
            await self._roomy.wait()
            if self.gone:
                raise BrokenPipeError
            self._waiting += line
            self._waiting += b"\n"
            self._idle.clear()
            self._flush()

    def close(self) -> None:
        """Write no more: what still waits is dropped."""
        self._stop()
        if not self.gone:
            self.gone = True
            self._waiting.clear()
            self._roomy.set()
            self._idle.set()
            self._on_gone()

    def _flush(self) -> None:
        try:
            while self._waiting and self._poll.poll(0):
                del self._waiting[: os.write(self._fd, bytes(self._waiting[: select.PIPE_BUF]))]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if len(self._waiting) <= self._roomy_bytes:
            self._roomy.set()
        else:
            self._roomy.clear()
        if not self._waiting:
            self._idle.set()
            self._stop()
        elif not self._writing:
            asyncio.get_running_loop().add_writer(self._fd, self._flush)
            self._writing = True

    def _stop(self) -> None:
        if self._writing:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._writing = False
