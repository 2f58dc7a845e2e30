"""Counts what a task's requests cost, and ends it when it has had enough."""

from __future__ import annotations

from bubbles.agent.asking import SpecCosts
from bubbles.errors import BubblesError
from bubbles.providers.contract import ModelReply, ModelRequest, Provider, TextSink
from bubbles.sessions.tokens import estimate, of_message


class SpentError(BubblesError):
    """One more request would take more tokens than are left."""


class MeteredProvider:
    """``Provider``: the one given, as long as all its requests together stay within ``most`` tokens.

    The last one may go over by its reply. Where the provider does not say what it counted, that is estimated.
    """

    def __init__(self, provider: Provider, most: int) -> None:
        self._provider = provider
        self._most = most
        self.spent = 0
        self._last = 0
        self._costs = SpecCosts()

    @property
    def scarce(self) -> bool:
        """What is left is hardly enough for more than one further request like the last, which grow."""
        return self.spent + 2 * self._last > self._most

    @property
    def name(self) -> str:
        return self._provider.name

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """Raises ``SpentError`` besides what the provider raises."""
        asked = size(request, self._costs)
        if self.spent + asked > self._most:
            raise SpentError(f"its {self._most:,} tokens are used up")
        reply = await self._provider.complete(request, on_text=on_text)
        self._last = (reply.usage.input_tokens or asked) + (reply.usage.output_tokens or of_message(reply.message))
        self.spent += self._last
        return reply

    async def aclose(self) -> None:
        """It is the pool's to close."""


def size(request: ModelRequest, costs: SpecCosts) -> int:
    """Estimated tokens of a whole request."""
    return estimate(request.system) + costs.of(request.tools) + sum(map(of_message, request.messages))
