"""How much of something may come at once, and how much a second from then on."""

from __future__ import annotations

import time
from collections.abc import Callable


class Bucket:
    def __init__(self, burst: float, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._left, self._counted_at = burst, clock()

    def take(self, amount: float) -> bool:
        """Whether there was as much; what was taken is gone either way."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._counted_at) * self._per_s) - amount
        self._counted_at = now
        return self._left >= 0
