"""Frames: what controller and runner say to each other, and the parser that both use.

A frame is ``type (1 byte), request id (4), length of meta (4), length of data (4)``, big-endian, then *meta* (a JSON
object in ASCII) and *data* (raw bytes).
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Meta = Dict[str, Any]
    Frame = Tuple[int, int, Meta, bytes]


VERSION = 1
HEADER = struct.Struct("!BIII")
MAX_DATA = 1 << 20
MAX_META_TO_RUNNER = 4 << 20
MAX_META_FROM_RUNNER = 64 << 10
CHUNK = 256 << 10
MAX_READ = 16 << 20
MAX_ENTRIES = 10_000

# Controller to runner.
INIT, EXEC, STDIN, SIGNAL, READ, WRITE, DATA, LIST, STAT, PING = range(1, 11)
# Runner to controller.
HELLO, READY, OUT, DONE, FAIL, ACK = range(65, 71)


class FrameError(Exception):
    """The byte stream is not a sequence of frames within the limits."""


class Failure(Exception):
    """A request that was not done: ``code`` as ``errors.FileError`` has it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def pack(kind: int, request: int, meta: Optional[Meta] = None, data: bytes = b"") -> bytes:
    """One frame as bytes."""
    head = json.dumps(meta).encode("ascii") if meta else b""
    return HEADER.pack(kind, request, len(head), len(data)) + head + data


class FrameParser:
    """Bytes in, frames out. Lengths are checked before anything is kept for them."""

    def __init__(self, max_meta: int) -> None:
        self.max_meta = max_meta
        self.buffer = bytearray()

    def feed(self, chunk: bytes) -> List[Frame]:
        """A list of ``(kind, request, meta, data)``; raises FrameError, after which the stream is useless."""
        buffer = self.buffer
        buffer += chunk
        frames: List[Frame] = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            kind, request, n_meta, n_data = HEADER.unpack_from(buffer, at)
            if n_meta > self.max_meta or n_data > MAX_DATA:
                raise FrameError("a frame of %d + %d bytes is over the limit" % (n_meta, n_data))
            body = at + HEADER.size
            end = body + n_meta + n_data
            if len(buffer) < end:
                break
            frames.append((kind, request, self._meta(body, n_meta), bytes(buffer[body + n_meta : end])))
            at = end
        if at:
            del buffer[:at]
        return frames

    def _meta(self, at: int, length: int) -> Meta:
        if not length:
            return {}
        try:
            meta = json.loads(bytes(self.buffer[at : at + length]).decode("ascii"))
        except (ValueError, RecursionError) as error:
            raise FrameError("the header of a frame is not JSON") from error
        if not isinstance(meta, dict):
            raise FrameError("the header of a frame is not a JSON object")
        return meta


class HeadTail:
    """Keeps the first and the last half of ``limit`` bytes of a stream and counts the rest."""

    def __init__(self, limit: int) -> None:
        self.head_limit = limit - limit // 2
        self.tail_limit = limit // 2
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def feed(self, chunk: bytes) -> None:
        """Take more of the stream."""
        room = self.head_limit - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self.tail += chunk
        # Trimming at twice the size keeps the cost of a flood linear.
        if len(self.tail) > 2 * self.tail_limit + CHUNK:
            self._trim()

    def _trim(self) -> None:
        extra = len(self.tail) - self.tail_limit
        if extra > 0:
            del self.tail[:extra]
            self.dropped += extra

    def value(self) -> bytes:
        """What is kept, head and tail together; ``dropped`` is then the number of bytes between them."""
        self._trim()
        return bytes(self.head + self.tail)
