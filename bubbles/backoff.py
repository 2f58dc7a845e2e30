"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable


def pause_s(failures: int, *, first_s: float, longest_s: float, chance: Callable[[], float] = random.random) -> float:
    """Seconds after so many failures in a row, from 1 on: ``first_s``, twice that, and so on, up to ``longest_s``; and
    up to a quarter more, so that many do not come back at once. ``chance`` gives a number from 0 to 1.
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30)) * (1 + chance() / 4)
