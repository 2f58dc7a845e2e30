"""A stream of bytes in lines, none of them longer than may be."""

from __future__ import annotations


class TooLongError(Exception):
    """A line has no end within the bound."""


class Lines:
    """Bounded: what it keeps is one unfinished line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole by now, without their ends. Raises ``TooLongError``; nothing works after it."""
        first, *rest = data.split(b"\n")
        self._keep(first)
        if not rest:
            return []
        whole = [b"".join(self._pieces), *rest[:-1]]
        self._pieces, self._size = [], 0
        self._keep(rest[-1])
        return whole

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._pieces = []
            raise TooLongError
        if piece:
            self._pieces.append(piece)
