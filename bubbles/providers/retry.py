"""When a request is sent again, written once for all provider paths (PROV-05, PROV-06, B088, B091)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from bubbles.backoff import pause_s
from bubbles.providers.contract import ModelReply, ModelRequest, Provider, ProviderError, TextSink

FIRST_WAIT_S = 1.0
LONGEST_BACK_OFF_S = 60.0


class Retrying:
    """A provider that asks another one again when that fails for a passing reason, and only then.

    It waits 1 s, 2 s, 4 s, … (up to a quarter more, so that many do not come back at once), or as long as the server
    asks for. What was handed on of a reply that broke off is withdrawn, whether it is asked for again or given up. The
    error that is raised in the end says how often the request was sent.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``retries``: how often after the first time. ``jitter`` gives a number from 0 to 1."""
        self._provider = provider
        self._retries = retries
        self._sleep = sleep
        self._jitter = jitter

    @property
    def name(self) -> str:
        return self._provider.name

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        sink = None if on_text is None else _Watched(on_text)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._provider.complete(request, on_text=sink)
            except ProviderError as error:
                if sink is not None:
                    sink.take_back()
                if not error.retryable or attempt > self._retries:
                    error.attempts = attempt
                    raise
                wait_s = self._wait(error, attempt)
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        await self._provider.aclose()

    def _wait(self, error: ProviderError, attempt: int) -> float:
        """Seconds before the next try, after this many."""
        if error.retry_after_s is not None:
            return error.retry_after_s + self._jitter() / 2  # never earlier than the server asks for
        return pause_s(attempt, first_s=FIRST_WAIT_S, longest_s=LONGEST_BACK_OFF_S, chance=self._jitter)


class _Watched:
    """Passes text on, and knows whether there was any."""

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink
        self._given = False

    def text(self, piece: str) -> None:
        self._given = self._given or bool(piece)
        self._sink.text(piece)

    def withdrawn(self) -> None:
        self.take_back()

    def take_back(self) -> None:
        if self._given:
            self._given = False
            self._sink.withdrawn()
