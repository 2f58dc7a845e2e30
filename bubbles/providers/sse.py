"""Server-sent events, as far as chat completions use them (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator

from bubbles.providers.contract import ProviderError
from bubbles.providers.failures import broken

MAX_LINE_BYTES = 8 * 2**20
"""A tool call that comes whole holds all of a file that is to be written."""
MAX_EVENT_BYTES = 16 * 2**20
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Gives the data of events, out of bytes as they come.

    Lines end in LF, CR LF or CR. Comments, ids, names of events and unknown fields are passed over. Raises
    ``ProviderError`` for a line or an event that is too long.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of the events that these bytes complete. To be read to the end before the next call."""
        if not self._begun:
            chunk = bytes(self._rest) + chunk
            self._rest.clear()
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._rest += chunk
                return
            self._begun = True
            chunk = chunk.removeprefix(_BOM)
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if end:
            self._after_cr = chunk.endswith(b"\r")
            whole = bytes(self._rest) + chunk[:end]
            self._rest.clear()
            for line in whole.splitlines():
                yield from self._line(line)
        self._rest += chunk[end:]
        if len(self._rest) > MAX_LINE_BYTES:
            raise _too_long()

    def finish(self) -> Iterator[str]:
        """At the end of the bytes: an event that lacks only its blank line counts, as many servers leave it out."""
        if self._rest:
            yield from self._line(bytes(self._rest))
            self._rest.clear()
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        if len(line) > MAX_LINE_BYTES:
            raise _too_long()
        if not line:
            if self._data:
                whole = b"\n".join(self._data)
                self._data = []
                self._size = 0
                yield whole.decode("utf-8", "replace")
        elif line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            self._size += len(value) + 1
            if self._size > MAX_EVENT_BYTES:
                raise _too_long()
            self._data.append(value)


def _too_long() -> ProviderError:
    return broken(f"an event of the stream is longer than {MAX_LINE_BYTES} bytes")
