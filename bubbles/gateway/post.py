"""Brings what the program says to its chats, in order, at each platform's pace, until it has arrived (SPEC 7.1).

An answer is on the disk before it is sent. Nothing here waits for a platform but ``card``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Self

from bubbles.bus import Address, Kind, OutboundMessage
from bubbles.channels.contract import Channel, NotSentError, Piece, RefusedError
from bubbles.channels.split import split
from bubbles.gateway import outgoing
from bubbles.gateway.lane import MAX_WAITING, Lane, Rows, Ways
from bubbles.gateway.ledger import Ledger, LedgerError, Parcel
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.outgoing import DAY_S, Outgoing
from bubbles.gateway.pacing import Rate, Timing
from bubbles.gateway.presence import Presence
from bubbles.sessions.history import completed

LAST_WORDS_S = 2.0
"""How long leaving gives what is queued."""
LAST_SEND_S = 1.0
"""And then what is being sent: what is cut off there is sent twice."""
MAX_CARDS = 1_000

_log = logging.getLogger(__name__)


class Post:
    """Use as an async context: what an earlier process left is sent; leaving it keeps what is left for the next one.
    All calls belong to one event loop.
    """

    def __init__(
        self, ledger: Ledger, channels: Mapping[str, Channel], metrics: Metrics, timing: Timing | None = None
    ) -> None:
        """``channels``: those that are on, by name."""
        self._ledger = ledger
        self._metrics = metrics
        self._timing = timing or Timing()
        self._channels = channels
        self._moved = asyncio.Event()
        rows = Rows(ledger)
        self._ways = {name: self._ways_of(channel, rows) for name, channel in channels.items()}
        self._lanes: dict[Address, Lane] = {}
        self._presences: dict[Address, Presence] = {}
        self._cards: dict[tuple[Address, str], str] = {}
        self._owed: list[str] = []
        """Tickets that are settled, but not on the disk."""
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._leaving = False

    def _ways_of(self, channel: Channel, rows: Rows) -> Ways:
        return Ways(
            channel=channel,
            rows=rows,
            metrics=self._metrics,
            timing=self._timing,
            rate=Rate(channel.traits.per_second, self._timing.ticks),
            shown=self._shown,
            moved=self._moved.set,
            in_group=self._ledger.is_group,
        )

    async def __aenter__(self) -> Self:
        await self._give_up_the_old()
        left = await self._ledger.parcels()
        await self._tasks.__aenter__()
        for row in left:
            address = row.parcel.address
            if (channel := self._channels.get(address.channel)) is not None:
                again = outgoing.answer(row.parcel.piece, channel.traits, row=row.id, put_at=row.put_at)
                if row.sending:
                    again.marked = True
                    again.doubt(channel.traits)
                await self._queue(address, [again])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for presence in self._presences.values():
                presence.leave()
            await self._passes(LAST_WORDS_S, lambda: any(lane.waiting and not lane.failing for lane in self._at_work))
            self._leaving = True
            for lane in self._lanes.values():
                lane.leave()
            await self._passes(LAST_SEND_S, lambda: bool(self._at_work))
        finally:
            self._leaving = True
            for lane in self._lanes.values():
                lane.abandon()
            for task in self._running:
                task.cancel()
            # Not told of the error: it would be wrapped in a group.
            await self._tasks.__aexit__(None, None, None)

    @property
    def _at_work(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.at_work]

    async def _passes(self, at_most_s: float, going_on: Callable[[], bool]) -> None:
        """Wait until it does not go on any more."""
        end = self._timing.ticks() + at_most_s
        while going_on() and (left := end - self._timing.ticks()) > 0:
            self._moved.clear()
            await self._timing.wait(self._moved, left)

    @property
    def waiting(self) -> int:
        """Messages that are to be sent, in chats of channels that are on."""
        return sum(lane.waiting for lane in self._lanes.values())

    def connected(self, channel: str) -> None:
        """The channel is back: what it could not send is tried at once."""
        for lane in self._lanes.values():
            if lane.address.channel == channel:
                lane.connected()

    async def put(self, message: OutboundMessage) -> None:
        """Returns once it is on the disk. To a chat of which nothing is known, and whose channel is not on, nothing is
        sent; what it settles is settled.
        """
        address = message.address
        match message.kind:
            case Kind.REPLY | Kind.NOTICE:
                if (message.kind is Kind.REPLY or message.settles) and (lane := self._lanes.get(address)) is not None:
                    lane.end_progress()
                # A cancellation must not come between the disk and the queue: it would lie there until the next start.
                await completed(self._keep(message, self._pieces(message)))
            case Kind.PROGRESS | Kind.HINT:
                if (found := self._lane(address)) is not None:
                    found.show(message.text)
                    self._start(found)
            case Kind.WORKING:
                self._begin(message)
            case Kind.END:
                await self._end(message)
            case Kind.TASK:
                pass

    async def card(self, address: Address, text: str, card: str) -> str | None:
        """Show an approval card, behind what waits for that chat. Returns once the platform has all of it: its id of
        the message with the buttons. Cancelling takes out what is not sent yet. Raises SendError.
        """
        lane = self._lane(address)
        if lane is None or self._leaving:
            raise RefusedError(f"the channel {address.channel} is not on")
        if lane.waiting >= MAX_WAITING:
            raise NotSentError(f"{lane.waiting} messages wait for this chat already")
        shown = outgoing.card(
            address.chat_id, text, card, self._channels[address.channel].traits, now=self._timing.clock()
        )
        if shown.wanted is None or shown.over:
            raise RefusedError("the card is blank")
        try:
            await self._queue(address, [shown])
            return await shown.wanted
        finally:
            lane.withdraw(shown)

    async def retouch(self, address: Address, message_id: str, text: str) -> None:
        """Put another text in the place of a message, without buttons: in its turn, and only where the platform can."""
        channel = self._channels.get(address.channel)
        if channel is None or not channel.traits.edits:
            return
        changed = outgoing.change(address.chat_id, message_id, text, channel.traits, now=self._timing.clock())
        await self._queue(address, [changed])

    def card_of(self, address: Address, message_id: str) -> str | None:
        """The approval card that a message of the platform shows, if it is one of the last thousand."""
        return self._cards.get((address, message_id))

    def written_before_card(self, address: Address, message_id: str) -> bool:
        """Whether this message was written before the newest card of its chat was there, where the platform tells."""
        channel = self._channels.get(address.channel)
        card = next((ident for where, ident in reversed(self._cards) if where == address), "")
        known = channel is not None and channel.traits.rising_ids and card.isdecimal() and message_id.isdecimal()
        return known and int(message_id) < int(card)

    def _shown(self, address: Address, message_id: str, card: str) -> None:
        self._cards[address, message_id] = card
        while len(self._cards) > MAX_CARDS:
            del self._cards[next(iter(self._cards))]

    def _pieces(self, message: OutboundMessage) -> list[Piece]:
        address = message.address
        channel = self._channels.get(address.channel)
        if channel is not None:
            texts = split(message.text, channel.traits.max_text, channel.traits.measure)
        elif self._ledger.known_chat(address) and message.text.strip():
            texts = [message.text]  # its channel may be on again tomorrow, and is asked for its limit then
        else:
            texts = []
        reply_to = self._reply_to(message)
        return [
            Piece(chat_id=address.chat_id, text=text, kind=message.kind, reply_to=None if number else reply_to)
            for number, text in enumerate(texts)
        ]

    def _reply_to(self, message: OutboundMessage) -> str | None:
        """In a group it must be seen which message is answered: the one that began the turn."""
        for ticket in message.settles:
            asked = self._ledger.asked(ticket)
            if asked is not None and asked.is_group and asked.message_id and asked.address == message.address:
                return asked.message_id
        return None

    async def _keep(self, message: OutboundMessage, pieces: Sequence[Piece]) -> None:
        """On the disk, then in the queue. An answer that the disk does not take is sent all the same; what it settles
        is settled with the next.
        """
        address, put_at = message.address, self._timing.clock()
        tickets, self._owed = [*self._owed, *message.settles], []
        rows: Sequence[int | None]
        try:
            rows = await self._ledger.settle(tickets, [Parcel(address=address, piece=piece) for piece in pieces])
        except LedgerError as error:
            _log.warning("an answer in %s is not on the disk: %s", address.channel, error)
            self._owed += tickets
            rows = [None] * len(pieces)
        channel = self._channels.get(address.channel)
        if channel is None:
            if pieces:
                await self._give_up_the_old()
            return
        traits = channel.traits
        await self._queue(
            address,
            [outgoing.answer(piece, traits, row=row, put_at=put_at) for piece, row in zip(pieces, rows, strict=True)],
        )

    async def _end(self, message: OutboundMessage) -> None:
        address = message.address
        presence = self._presences.get(address)
        if presence is not None:
            presence.end(message.settles)
        if (presence is None or not presence.working) and (lane := self._lanes.get(address)) is not None:
            lane.end_progress()
        self._tidy(address)
        await completed(self._keep(message, ()))

    def _begin(self, message: OutboundMessage) -> None:
        address = message.address
        channel = self._channels.get(address.channel)
        if channel is None or self._leaving:
            return
        presence = self._presences.get(address)
        if presence is None:
            presence = self._presences[address] = Presence(channel, address.chat_id, self._timing)
        if not presence.working and (lane := self._lanes.get(address)) is not None:
            lane.end_progress()  # of a turn that ended without a word
        presence.begin(message.settles)
        if channel.traits.typing_s is not None and not presence.at_work:
            presence.at_work = True
            self._run(presence.run, address)

    async def _queue(self, address: Address, items: Sequence[Outgoing]) -> None:
        lane = self._lane(address)
        if lane is None or self._leaving:
            return
        gone = lane.add([item for item in items if not item.over])
        self._start(lane)
        if gone:
            _log.warning("%d messages to chat %r of %s were given up: too many wait", len(gone), *_named(address))
            for _ in gone:
                self._metrics.count("bubbles_dropped_total", channel=address.channel)
            await self._ways[address.channel].rows.gone([item.row for item in gone if item.row is not None])

    def _lane(self, address: Address) -> Lane | None:
        """None: its channel is not on."""
        lane = self._lanes.get(address)
        if lane is None and (ways := self._ways.get(address.channel)) is not None:
            lane = self._lanes[address] = Lane(address, ways)
        return lane

    def _start(self, lane: Lane) -> None:
        if not lane.at_work and not self._leaving:
            lane.at_work = True
            self._run(lane.run, lane.address)

    def _run(self, work: Callable[[], Coroutine[None, None, None]], address: Address) -> None:
        task = self._tasks.create_task(self._watched(work, address))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _watched(self, work: Callable[[], Coroutine[None, None, None]], address: Address) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - an edge: what breaks in one chat must not end the others
            _log.exception("sending to chat %r of %s broke", *_named(address))
        self._tidy(address)

    def _tidy(self, address: Address) -> None:
        """Forget a chat in which nothing goes on."""
        presence, lane = self._presences.get(address), self._lanes.get(address)
        if presence is not None and not presence.working and not presence.at_work:
            del self._presences[address]
        if lane is not None and lane.idle:
            del self._lanes[address]

    async def _give_up_the_old(self) -> None:
        gone = await self._ledger.expire(self._timing.clock() - DAY_S)
        if gone:
            _log.warning("%d messages could not be sent for a day and were given up", len(gone))
        for channel in gone:
            self._metrics.count("bubbles_dropped_total", channel=channel)


def _named(address: Address) -> tuple[str, str]:
    return address.chat_id, address.channel
