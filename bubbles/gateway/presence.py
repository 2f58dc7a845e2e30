"""The sign that somebody writes, in one chat, while a turn is at work there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bubbles.channels.contract import Channel, ChannelError
from bubbles.gateway.pacing import Timing

LONGEST_S = 600.0
TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


class Presence:
    """Several sessions may work in one chat: each beginning has its end."""

    def __init__(self, channel: Channel, chat_id: str, timing: Timing) -> None:
        self._channel = channel
        self._chat_id = chat_id
        self._timing = timing
        self._working: list[frozenset[str]] = []
        """The tickets of each, where they are known."""
        self._until = 0.0
        self._over = asyncio.Event()
        self.at_work = False
        """``run`` is."""

    @property
    def working(self) -> bool:
        return bool(self._working)

    def begin(self, tickets: Sequence[str]) -> None:
        self._working.append(frozenset(tickets))
        self._until = self._timing.ticks() + LONGEST_S
        self._over.clear()

    def end(self, tickets: Sequence[str]) -> None:
        """Of the turn that had one of the tickets, or else of the first of which none are known."""
        mine = next((each for each in self._working if not each.isdisjoint(tickets)), frozenset[str]())
        if mine in self._working:
            self._working.remove(mine)
        if not self._working:
            self._over.set()

    def leave(self) -> None:
        self._working.clear()
        self._over.set()

    async def run(self) -> None:
        """Shows it again and again, for ten minutes at most."""
        lasts_s = self._channel.traits.typing_s
        self.at_work = True
        try:
            while lasts_s is not None and self._working and (now := self._timing.ticks()) < self._until:
                await self._show()
                # A little early, so that it does not flicker.
                await self._timing.wait(self._over, min(0.9 * lasts_s, self._until - now))
        finally:
            self.at_work = False

    async def _show(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._channel.typing(self._chat_id)
        except (ChannelError, TimeoutError):
            pass  # it does not matter
        except Exception:  # noqa: BLE001 - a fault in a channel costs this sign alone
            _log.exception("%s could not show that somebody writes", self._channel.name)
