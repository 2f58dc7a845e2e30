"""Some lines of a file, without keeping the rest of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from bubbles.sessions.tokens import estimate
from bubbles.tools.encodings import Encoding

MAX_LINE = 2_000
"""Characters of a line that are shown."""
_MAX_LINE_BYTES = 4 * MAX_LINE


@dataclass(slots=True, kw_only=True)
class LinePicker:
    """Fed with a file piece by piece; then ``lines`` are those from ``first`` on, at most ``count`` of them and about
    ``tokens`` in all. Lines are counted from 1.
    """

    encoding: Encoding
    first: int
    count: int
    tokens: int
    lines: list[str] = field(default_factory=list, init=False)
    ended: int = field(default=0, init=False)
    """Lines that have ended so far, shown or not."""
    shortened: int = field(default=0, init=False)
    """How many of ``lines`` are cut."""
    carriage_returns: bool = field(default=False, init=False)
    full: bool = field(default=False, init=False)
    """No further line is taken, only counted."""
    _line: bytearray = field(default_factory=bytearray, init=False)
    _length: int = field(default=0, init=False)

    def feed(self, data: bytes) -> None:
        at = self._skipped(data) if self.ended + 1 < self.first else 0
        while at < len(data) and not self.full:
            end = data.find(b"\n", at)
            stop = len(data) if end < 0 else end
            self._line += data[at : min(stop, at + _MAX_LINE_BYTES - len(self._line))]
            self._length += stop - at
            at = stop
            if end >= 0:
                self._end()
                at += 1
        self._count(data, at)

    def finish(self) -> None:
        """The file has ended; its last line may have no end of its own."""
        if self._length:
            self._end()

    def _skipped(self, data: bytes) -> int:
        """Where in ``data`` the first line that is wanted begins."""
        missing = self.first - 1 - self.ended
        if data.count(b"\n") < missing:
            self._count(data, 0)
            return len(data)
        at = 0
        for _ in range(missing):
            at = data.find(b"\n", at) + 1
        self.ended += missing
        self._length = 0
        return at

    def _count(self, data: bytes, at: int) -> None:
        """The lines of ``data`` from ``at`` on, which nobody wants to see."""
        last = data.rfind(b"\n", at)
        self.ended += data.count(b"\n", at)
        self._length = self._length + len(data) - at if last < 0 else len(data) - last - 1

    def _end(self) -> None:
        self.ended += 1
        if self.ended >= self.first and not self.full:
            self._take()
        self._line.clear()
        self._length = 0

    def _take(self) -> None:
        if self._line.endswith(b"\r") and self._length == len(self._line):
            self.carriage_returns = True
            del self._line[-1]
        text = self.encoding.shown(bytes(self._line))
        long = len(text) > MAX_LINE or self._length > _MAX_LINE_BYTES
        if long:
            text = f"{text[:MAX_LINE]}… [line of {self._length:,} bytes, cut]"
        cost = estimate(text) + 1
        if self.lines and cost > self.tokens:
            self.full = True
            return
        self.lines.append(text)
        self.shortened += long
        self.tokens -= cost
        self.full = len(self.lines) >= self.count
