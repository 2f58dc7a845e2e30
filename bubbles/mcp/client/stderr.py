"""What a server's program says on stderr, for the log: a bounded many lines of a bounded length, without secrets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from bubbles.mcp.client.bucket import Bucket
from bubbles.mcp.client.lines import Lines, TooLongError

MAX_LINE = 400
"""Characters of a line that are shown."""
MAX_READ = 4_000
"""Bytes of it that are looked at for secrets."""
PER_MINUTE = 60
"""Lines that are logged."""
MAX_UNFINISHED = 64 << 10
BURST, PER_S = 64 << 20, 1 << 20
"""Bytes that may come at once, and in each second from then on."""

_log = logging.getLogger(__name__)


class StderrLog:
    """Of one server. ``redact`` takes its secrets out."""

    def __init__(self, name: str, redact: Callable[[str], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._redact = redact
        self._clock = clock
        self._lines = Lines(MAX_UNFINISHED)
        self._bytes = Bucket(BURST, PER_S, clock)
        self._last = b""
        self._minute, self._count = clock(), 0

    @property
    def last(self) -> str:
        """The last line that says something, or an empty text."""
        return self._shown(self._last)

    def feed(self, data: bytes) -> bool:
        """Whether it is still within what may come."""
        try:
            lines = self._lines.feed(data)
        except TooLongError:
            self._lines = Lines(MAX_UNFINISHED)
            lines = [data]
        for line in lines:
            if line and not line.isspace():
                self._last = line[:MAX_READ]
                self._write("MCP server %s: %s", line)
        return self._bytes.take(len(data))

    def odd(self, line: bytes) -> None:
        """A line on stdout that is no message."""
        if line and not line.isspace():
            self._write("MCP server %s said what is no message: %s", line)

    def _write(self, form: str, line: bytes) -> None:
        now = self._clock()
        if now - self._minute >= 60:
            self._minute, self._count = now, 0
        self._count += 1
        if self._count <= PER_MINUTE:
            _log.info(form, self._name, self._shown(line))
        elif self._count == PER_MINUTE + 1:
            _log.info("MCP server %s says more than is logged in this minute", self._name)

    def _shown(self, line: bytes) -> str:
        text = line[:MAX_READ].decode("utf-8", "replace").strip()
        return self._redact("".join(c if c.isprintable() else "\ufffd" for c in text))[:MAX_LINE]
