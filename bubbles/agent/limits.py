"""What a turn works with: the model, how long things may get, and what was learned of how the model counts."""

from __future__ import annotations

from dataclasses import dataclass

from bubbles.providers.contract import Provider

LEAST_ROOM = 1_000
"""Tokens that messages get at least, however long the prompt is: whether that is too much, the provider says."""
LEAST_WINDOW = 2_000
LEAST_SAMPLE = 200
"""Tokens. Shorter requests say little about how the model counts."""
FACTORS = (0.7, 4.0)
"""Between what bounds counted by estimated tokens is believed: a provider's number may be nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Whom a turn asks, and how."""

    provider: Provider
    name: str
    """As the provider knows it, without our prefix."""
    temperature: float | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    context_tokens: int = 128_000
    """How long a request may get before old messages are summarised (CTX-01)."""
    reserve_tokens: int = 16_000
    """How much of the newest history then stays word for word."""
    iterations: int = 200
    """Replies of the model in one turn (CORE-02)."""


class Gauge:
    """Estimated tokens against those that the provider counted, for one model.

    A request that the model refused as too long shows that its window is smaller than was configured: what is known
    then is the longest request that it took and the shortest that it refused.
    """

    def __init__(self, context_tokens: int) -> None:
        self._window = context_tokens
        self._taken = 0
        self._factor = 1.0

    def room(self, prompt_tokens: int) -> int:
        """Estimated tokens that the messages of a request may have beside the prompt."""
        return max(LEAST_ROOM, int(self._window / self._factor) - prompt_tokens)

    def took(self, estimated: int, counted: int) -> None:
        """``counted`` is 0 if the provider did not say."""
        if estimated < LEAST_SAMPLE or counted <= 0:
            return
        low, high = FACTORS
        self._factor = (self._factor + min(high, max(low, counted / estimated))) / 2
        self._taken = max(self._taken, int(estimated * self._factor))

    def refused(self, estimated: int) -> None:
        size = int(estimated * self._factor)
        known = self._taken if self._taken < 0.9 * size else 0
        self._window = max(LEAST_WINDOW, min(self._window, max(known, size // 2)))
