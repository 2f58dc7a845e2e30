"""What is sent to one chat: one after the other, at the platform's pace, until it has arrived (CHAN-08).

Each chat has a lane of its own, so that a slow or broken one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bubbles.bus import Address, Kind
from bubbles.channels.contract import (
    Channel,
    ChannelError,
    MaybeSentError,
    NotSentError,
    Piece,
    RefusedError,
    SendError,
    SlowDownError,
)
from bubbles.gateway.ledger import Ledger, LedgerError
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.outgoing import Outgoing
from bubbles.gateway.pacing import Rate, Timing
from bubbles.gateway.progress import EDIT_EVERY_S, Progress

MAX_WAITING = 200
"""Messages that wait for one chat. Beyond that the oldest notices go, then the oldest answers."""
LONG = 3
"""So many that wait leave no room for what is only of use while a turn runs."""
LONGEST_HOLD_S = 3_600.0
"""Whatever a platform says."""

_log = logging.getLogger(__name__)


class Rows:
    """The ledger's rows, for whom a disk that takes nothing just now must not keep an answer from being sent."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._owed: list[int] = []
        """Gone, but still on the disk."""

    async def sending(self, row: int) -> None:
        try:
            await self._ledger.sending(row)
        except LedgerError as error:
            _log.warning("%s", error)

    async def not_sent(self, row: int) -> None:
        try:
            await self._ledger.not_sent(row)
        except LedgerError as error:
            _log.warning("%s", error)

    async def gone(self, rows: Sequence[int]) -> None:
        due = [*self._owed, *rows]
        self._owed = []
        try:
            await self._ledger.remove(due)
        except LedgerError as error:
            self._owed += due
            _log.warning("%s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What all lanes of a channel work with."""

    channel: Channel
    rows: Rows
    metrics: Metrics
    timing: Timing
    rate: Rate
    shown: Callable[[Address, str, str], None]
    """An approval card is to be seen: where, the platform's id of the message, the card."""
    moved: Callable[[], None]
    """Something was sent, or was not."""
    in_group: Callable[[Address], bool]


class Lane:
    """``run`` is at work while there is something to send; all calls belong to one event loop."""

    def __init__(self, address: Address, ways: Ways) -> None:
        self.address = address
        self._ways = ways
        self._traits = ways.channel.traits
        self._queue: deque[Outgoing] = deque()
        self._now_sent: Outgoing | None = None
        self._progress = Progress(self._traits)
        self._failures = 0
        self._free_at = -math.inf
        """In ticks, as the next: before that nothing is sent."""
        self._show_at = -math.inf
        self._woken = asyncio.Event()
        self._ending = False
        self.at_work = False
        """``run`` is."""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def failing(self) -> bool:
        """The last try failed: the channel, or the chat, is down."""
        return self._failures > 0

    @property
    def idle(self) -> bool:
        """Nothing is lost if it is forgotten."""
        return not self.at_work and not self._queue and self._progress.idle

    def add(self, outgoing: Iterable[Outgoing]) -> list[Outgoing]:
        """To the end of the queue. What had to make room for it has gone and is returned."""
        self._queue.extend(outgoing)
        gone = []
        while len(self._queue) > MAX_WAITING and (least := self._least()) is not None:
            self._queue.remove(least)
            gone.append(least)
        self._woken.set()
        return gone

    def _least(self) -> Outgoing | None:
        """What the chat can best do without: never a card, nor what is being sent."""
        rest = [each for each in self._queue if each is not self._now_sent and each.wanted is None]
        return next((each for each in rest if each.kind is Kind.NOTICE), next(iter(rest), None))

    def withdraw(self, outgoing: Outgoing) -> None:
        """It is not sent any more, unless it is being sent just now."""
        outgoing.withdrawn = True
        if outgoing in self._queue and outgoing is not self._now_sent:
            self._queue.remove(outgoing)
        self._woken.set()

    def show(self, text: str) -> None:
        """Text on the way; left out where it would be in the way."""
        if not self.failing and len(self._queue) < LONG:
            self._progress.add(text)
            self._woken.set()

    def end_progress(self) -> None:
        """The turn's answer comes now, or nothing more."""
        self._progress.end()
        self._woken.set()

    def connected(self) -> None:
        """The channel is back: what waits for that goes on."""
        if self.failing:
            self._failures = 0
            self._free_at = self._ways.timing.ticks()
            self._woken.set()

    def leave(self) -> None:
        """After what is being sent, ``run`` ends."""
        self._ending = True
        self._woken.set()

    def abandon(self) -> None:
        """Whoever waits for a card learns that it does not come."""
        for outgoing in self._queue:
            outgoing.failed(NotSentError("the program ends"))

    async def run(self) -> None:
        """Until there is nothing to send, and the pause after the last message is over."""
        self.at_work = True
        try:
            while (moment := self._next()) is not None:
                if await self._reached(moment) and await self._slot():
                    await self._one()
                    self._ways.moved()
        finally:
            self.at_work = False
            self._ways.moved()

    def _next(self) -> float | None:
        if self._ending:
            return None
        if self._queue:
            return self._free_at
        if self._progress.waits:
            return max(self._free_at, self._show_at)
        return self._free_at if self._free_at > self._ways.timing.ticks() else None

    async def _reached(self, moment: float) -> bool:
        """Whether it is that moment, after some waiting: there may be something else to do by then."""
        left = moment - self._ways.timing.ticks()
        if left <= 0:
            return True
        self._woken.clear()
        await self._ways.timing.wait(self._woken, left)
        return False

    async def _slot(self) -> bool:
        """Wait for one of the channel's, if there is anything to send. Whether it was not all over meanwhile."""
        if not self._queue and not self._progress.waits:
            return False
        moment = self._ways.rate.reserve()
        while not self._ending:
            if await self._reached(moment):
                return True
        return False

    async def _one(self) -> None:
        if self._queue:
            await self._give(self._queue[0])
        elif self._progress.waits:
            await self._show()

    async def _give(self, outgoing: Outgoing) -> None:
        if outgoing.row is not None and self._ways.timing.clock() >= outgoing.until:
            await self._drop(outgoing, NotSentError("it could not be sent for a day"))
            return
        self._now_sent = outgoing
        try:
            if outgoing.row is not None and not outgoing.marked:
                outgoing.marked = True
                await self._ways.rows.sending(outgoing.row)
            message_id = await self._tried(outgoing.next, outgoing.edits)
        except SendError as error:
            await self._not_taken(outgoing, error)
        else:
            await self._taken(outgoing, message_id)
        finally:
            self._now_sent = None

    async def _tried(self, piece: Piece, edits: str | None) -> str | None:
        """The platform's id of the message. Raises SendError, whatever goes wrong."""
        channel = self._ways.channel
        try:
            async with asyncio.timeout(self._ways.timing.send_timeout_s):
                if edits is None:
                    return await channel.send(piece)
                await channel.edit(edits, piece)
                return edits
        except SendError:
            raise
        except ChannelError as error:
            raise NotSentError(str(error)) from error
        except TimeoutError as error:
            raise MaybeSentError("the platform did not answer in time") from error
        except Exception as error:  # a fault in a channel costs this message, not the chat
            _log.exception("%s could not send a message", self.address.channel)
            raise MaybeSentError("the channel broke") from error

    async def _taken(self, outgoing: Outgoing, message_id: str | None) -> None:
        self._failures = 0
        self._rest()
        outgoing.taken()
        self._ways.metrics.count("bubbles_sent_total", channel=self.address.channel)
        if outgoing.card is not None and message_id is not None:
            self._ways.shown(self.address, message_id, outgoing.card)
        if outgoing.over:
            await self._end(outgoing)
            outgoing.done(message_id)
        elif outgoing.withdrawn:
            await self._end(outgoing)

    async def _not_taken(self, outgoing: Outgoing, error: SendError) -> None:
        self._ways.metrics.count("bubbles_send_failures_total", channel=self.address.channel)
        refused, maybe = isinstance(error, RefusedError), isinstance(error, MaybeSentError)
        self._hold(error)
        late = not isinstance(error, SlowDownError) and self._ways.timing.clock() >= outgoing.until
        if refused or late or outgoing.withdrawn or (maybe and outgoing.doubted):
            await self._drop(outgoing, error)
        elif maybe:
            outgoing.doubt(self._traits)
        elif outgoing.row is not None and not outgoing.doubted:
            outgoing.marked = False
            await self._ways.rows.not_sent(outgoing.row)

    def _hold(self, error: SendError) -> None:
        """When the next try is, after this one."""
        if isinstance(error, SlowDownError):
            wait_s = error.retry_after_s if math.isfinite(error.retry_after_s) else LONGEST_HOLD_S
            self._rest(min(wait_s, LONGEST_HOLD_S))
        elif isinstance(error, RefusedError):
            self._failures = 0
            self._rest()
        else:
            self._failures += 1
            self._rest(self._ways.timing.back_off_s(self._failures))

    def _rest(self, at_least_s: float = 0.0) -> None:
        self._free_at = self._ways.timing.ticks() + max(at_least_s, self._pause_s)

    @property
    def _pause_s(self) -> float:
        return self._traits.group_pause_s if self._ways.in_group(self.address) else self._traits.pause_s

    async def _drop(self, outgoing: Outgoing, error: SendError) -> None:
        channel = self.address.channel
        if not outgoing.withdrawn:
            _log.warning("a message to chat %r of %s was given up: %s", self.address.chat_id, channel, error)
            self._ways.metrics.count("bubbles_dropped_total", channel=channel)
        await self._end(outgoing)
        outgoing.failed(error)

    async def _end(self, outgoing: Outgoing) -> None:
        """It leaves the queue, and the disk."""
        if outgoing in self._queue:
            self._queue.remove(outgoing)
        if outgoing.row is not None:
            await self._ways.rows.gone((outgoing.row,))

    async def _show(self) -> None:
        progress = self._progress
        piece = Piece(chat_id=self.address.chat_id, text=progress.take(), kind=Kind.PROGRESS)
        turn = progress.turn
        try:
            message_id = await self._tried(piece, progress.message_id)
        except SendError as error:
            self._ways.metrics.count("bubbles_send_failures_total", channel=self.address.channel)
            self._hold(error)
            if isinstance(error, SlowDownError):
                progress.wait(turn)
            else:  # never a second time: it may be there, or it is of no use
                progress.give_up(turn)
            return
        self._failures = 0
        self._rest()
        self._ways.metrics.count("bubbles_sent_total", channel=self.address.channel)
        self._show_at = self._ways.timing.ticks() + max(EDIT_EVERY_S, self._pause_s)
        progress.shown(message_id, turn)
