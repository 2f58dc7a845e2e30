"""Keeps one channel at work: starts it again when it was lost, and says how it is (CHAN-07, SPEC 7.2)."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from bubbles.backoff import pause_s
from bubbles.channels.contract import Channel, ChannelError, FatalChannelError, Incoming

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
HEALTHY_S = 60.0
"""What was connected for as long begins with the first pause again."""
END_S = 2.0
"""How long a channel may take to end."""
MAX_WHY = 300
"""Characters."""

_log = logging.getLogger(__name__)


class Phase(enum.StrEnum):
    STARTING = "starting"
    UP = "up"
    WAITING = "waiting"
    """It was lost, and is started again after a pause."""
    OFF = "off"
    """It was stopped, or only a person can mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a channel is. Moments are seconds since 1970."""

    phase: Phase
    since: float
    who: str = ""
    """As whom the platform has let us in."""
    why: str = ""
    """A sentence, when it is not up: what happened last. Holds nothing secret."""
    restarts: int = 0
    last_alive: float | None = None
    """When the platform was heard last."""


class Supervisor:
    """Runs a channel, and is its ``Link``. Whatever the channel raises ends here: the others go on."""

    def __init__(
        self,
        channel: Channel,
        take: Callable[[Incoming], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        on_phase: Callable[[Phase], object] = lambda _: None,
    ) -> None:
        """``clock`` and ``sleep`` go by the same seconds; ``random`` gives a number from 0 to 1. Each new phase is told
        to ``on_phase``.
        """
        self._channel = channel
        self._deliver = take
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._on_phase = on_phase
        self._phase, self._since = Phase.STARTING, time.time()
        self._who = self._why = self._last_reason = ""
        self._restarts = self._failures = self._taking = 0
        self._heard_at = self._connected_at = clock()
        self._last_alive: float | None = None

    @property
    def state(self) -> State:
        return State(
            phase=self._phase,
            since=self._since,
            who=self._who,
            why=self._why,
            restarts=self._restarts,
            last_alive=self._last_alive,
        )

    async def run(self) -> None:
        """Until it is cancelled, or only a person can mend the channel."""
        try:
            while True:
                self._set(Phase.STARTING, self._why)
                if not await self._attempt():
                    return
                await self._sleep(self._pause_s())
                self._restarts += 1
        finally:
            self._set(Phase.OFF, self._why)

    # -- what the channel has of it --

    async def take(self, message: Incoming) -> None:
        self.alive()
        self._taking += 1
        try:
            await self._deliver(message)
        finally:
            self._taking -= 1
            self.alive()

    def connected(self, who: str) -> None:
        if self._phase is not Phase.STARTING:
            return  # it says so again, or while it is being ended
        self._who = who
        self._set(Phase.UP, "")
        self._connected_at = self._clock()
        self.alive()
        _log.info("channel %s is up as %s", self._channel.name, who)

    def alive(self) -> None:
        self._heard_at = self._clock()
        self._last_alive = time.time()

    # -- one start --

    async def _attempt(self) -> bool:
        """Start it and stay until it is lost. Whether it is worth another try."""
        self._heard_at = self._clock()
        work = asyncio.create_task(self._channel.run(self), name=f"channel {self._channel.name}")
        work.add_done_callback(_noticed)
        silence = asyncio.create_task(self._silence())
        try:
            await asyncio.wait({work, silence}, return_when=asyncio.FIRST_COMPLETED)
            stalled = not work.done()
            if stalled:
                self._lost(f"the platform said nothing for {self._channel.stall_s:g} s", None)
                if not await self._end(work):
                    await asyncio.wait({work})  # two at a time would take each other's messages
        finally:
            silence.cancel()
            await asyncio.wait({silence})
            if not work.done():
                await self._end(work)
        error = None if work.cancelled() else work.exception()
        fatal = next((each for each in _leaves(error) if isinstance(each, FatalChannelError)), None)
        if fatal is not None:
            self._why = _sentence(str(fatal))
            _log.error("channel %s is off: %s", self._channel.name, self._why)
            return False
        if not stalled:
            self._lost(_reason(error), error)
        return True

    async def _silence(self) -> None:
        """Returns once the platform has said nothing for too long. While we let it wait, it is not to blame."""
        while True:
            quiet_s = 0.0 if self._taking else self._clock() - self._heard_at
            left_s = self._channel.stall_s - quiet_s
            if left_s <= 0:
                return
            await self._sleep(left_s)

    async def _end(self, work: asyncio.Task[None]) -> bool:
        """Have it end, but do not wait for ever; whether it did."""
        work.cancel()
        limit = asyncio.ensure_future(self._sleep(END_S))
        try:
            await asyncio.wait({work, limit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        if not work.done():
            _log.error("channel %s does not end within %g s of being told to", self._channel.name, END_S)
        return work.done()

    def _lost(self, why: str, error: BaseException | None) -> None:
        """Say so; what is new and unforeseen, with where it happened."""
        was_up = self._phase is Phase.UP
        lived_s = self._heard_at - self._connected_at if was_up else 0.0
        self._failures = 1 if lived_s >= HEALTHY_S else self._failures + 1
        unforeseen = error is not None and not all(isinstance(each, ChannelError) for each in _leaves(error))
        traced = error if unforeseen and why != self._last_reason else None
        self._last_reason = why
        self._set(Phase.WAITING, _sentence(why))
        _log.warning("channel %s was lost: %s", self._channel.name, self._why, exc_info=traced)

    def _pause_s(self) -> float:
        return pause_s(self._failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, chance=self._random)

    def _set(self, phase: Phase, why: str) -> None:
        self._why = why
        if phase is not self._phase:
            self._phase, self._since = phase, time.time()
            self._on_phase(phase)


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    """What is in groups of exceptions."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    elif error is not None:
        yield error


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "the connection ended"
    leaf = next(_leaves(error))
    if isinstance(leaf, ChannelError):
        return str(leaf)
    return f"it failed in a way that nobody foresaw ({type(leaf).__name__}); the log says more"


def _sentence(text: str) -> str:
    return " ".join(text.split())[:MAX_WHY]


def _noticed(work: asyncio.Task[None]) -> None:
    """One that ended after nobody waited for it any more has told whom it may concern."""
    if not work.cancelled():
        work.exception()
