"""Why a connection ended."""

from __future__ import annotations

from collections.abc import Callable


class Closing:
    """Of one connection, shared by whoever can end it. The first reason stands."""

    def __init__(self) -> None:
        self._told: list[Callable[[], None]] = []
        self.reason: str | None = None
        """As a part of a sentence: "the program ended with status 1"."""
        self.hint = ""
        """What was odd before, such as the last HTTP status: said where nothing better is known."""
        self.unheard: set[object] = set()
        """Ids of requests that the server has certainly not read: they may be sent again."""

    def on_end(self, told: Callable[[], None]) -> None:
        """``told`` is called once, when it ends."""
        self._told.append(told)

    def end(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            for told in self._told:
                told()
