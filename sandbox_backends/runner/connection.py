"""The runner's end of the stream: frames in, frames out, nothing that waits."""

from __future__ import annotations

import collections
import selectors
import socket

from . import wire

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Callable, Deque, List, Optional


HIGH_WATER = 4 << 20  # bytes waiting to be sent above which no command's output is read


class Disconnected(Exception):
    """The controller is gone."""


class Connection:
    """Sends what the socket takes and tells ``on_pressure`` when too much waits."""

    def __init__(
        self, sock: socket.socket, selector: selectors.BaseSelector, on_frame: Callable[[wire.Frame], None]
    ) -> None:
        sock.setblocking(False)
        self.on_frame = on_frame
        self.on_pressure: Optional[Callable[[bool], None]] = None
        self.pressed = False
        self._sock = sock
        self._selector = selector
        self._parser = wire.FrameParser(wire.MAX_META_TO_RUNNER)
        self._waiting: Deque[memoryview] = collections.deque()
        self._waiting_bytes = 0
        self._wanted = selectors.EVENT_READ
        selector.register(sock, selectors.EVENT_READ, self._on_ready)

    def send(self, kind: int, request: int, meta: Optional[wire.Meta] = None, data: bytes = b"") -> None:
        """Queue a frame; ``flush`` sends it together with others."""
        frame = wire.pack(kind, request, meta, data)
        self._waiting.append(memoryview(frame))
        self._waiting_bytes += len(frame)

    def flush(self) -> None:
        """Send what can be sent. Raises Disconnected."""
        try:
            while self._waiting:
                batch: List[memoryview] = [self._waiting[i] for i in range(min(len(self._waiting), 64))]
                self._forget(self._sock.sendmsg(batch))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            raise Disconnected from error
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        if want != self._wanted:
            self._wanted = want
            self._selector.modify(self._sock, want, self._on_ready)
        pressed = self._waiting_bytes > HIGH_WATER
        if pressed != self.pressed:
            self.pressed = pressed
            if self.on_pressure is not None:
                self.on_pressure(pressed)

    def _forget(self, sent: int) -> None:
        self._waiting_bytes -= sent
        while sent:
            first = self._waiting.popleft()
            if len(first) > sent:
                self._waiting.appendleft(first[sent:])
                return
            sent -= len(first)

    def _on_ready(self, mask: int) -> None:
        if not mask & selectors.EVENT_READ:
            return  # the loop flushes before it waits again
        try:
            chunk = self._sock.recv(wire.CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Disconnected from error
        if not chunk:
            raise Disconnected
        for frame in self._parser.feed(chunk):
            self.on_frame(frame)
