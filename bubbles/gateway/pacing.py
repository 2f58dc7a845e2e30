"""When something may be sent: clocks that tests can wind, the pace of a platform, back-off."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bubbles.backoff import pause_s

FIRST_S, LONGEST_S = 1.0, 60.0


async def until(event: asyncio.Event, seconds: float) -> None:
    """Returns after so many seconds, or once the event is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How time passes."""

    clock: Callable[[], float] = time.time
    """Seconds of the epoch: how old a message is, over restarts."""
    ticks: Callable[[], float] = time.monotonic
    """Seconds that no change of the clock touches."""
    wait: Callable[[asyncio.Event, float], Awaitable[None]] = until
    chance: Callable[[], float] = random.random
    """From 0 to 1."""
    send_timeout_s: float = 60.0
    """A platform that has not answered by then has taken a message, or has not."""

    def back_off_s(self, failures: int) -> float:
        """1 s, 2 s, 4 s … 60 s, and up to a quarter more."""
        return pause_s(failures, first_s=FIRST_S, longest_s=LONGEST_S, chance=self.chance)


class Rate:
    """At most so many messages a second, of all chats of a channel, evenly spread: platforms count any second."""

    def __init__(self, per_second: float, ticks: Callable[[], float]) -> None:
        self._gap_s = 1.0 / per_second if per_second > 0 else 0.0
        self._ticks = ticks
        self._free_at = -math.inf

    def reserve(self) -> float:
        """The moment that is the caller's, in ticks. Who asks first is first."""
        moment = max(self._free_at, self._ticks())
        self._free_at = moment + self._gap_s
        return moment
