"""What must outlive the process: messages that have no answer yet, answers that have not arrived (OPS-02, CHAN-07).

A message is durable before its platform is told that it has arrived. Its answer, and that it is answered, are one
transaction: after a kill at any instant there is the one or the other. Texts are erased once they are not needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bubbles.bus import Address, InboundMessage
from bubbles.channels.contract import Piece
from bubbles.gateway.keeping import codec, tables
from bubbles.gateway.keeping.database import Database, LedgerError
from bubbles.gateway.keeping.tables import Chat
from bubbles.sessions.history import completed

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["Asked", "Chat", "Kept", "Ledger", "LedgerError", "Memory", "Parcel", "Row"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A message that has no answer yet."""

    message: InboundMessage
    tries: int
    """Turns that began for it."""
    taken_at: float
    """Seconds of the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an answer needs to know of the message that it answers."""

    address: Address
    message_id: str
    is_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A piece, and where it goes."""

    address: Address
    piece: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A piece that has not arrived."""

    id: int
    parcel: Parcel
    sending: bool
    """It was being sent: nobody knows whether it arrived."""
    put_at: float
    """Seconds of the epoch."""


class Ledger:
    """Use as an async context, in one process at a time. All calls belong to one event loop.

    A call that is cancelled is first brought to its end. All raise LedgerError if the disk does not take it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds of the epoch."""
        self._database = Database(path, tables.SCHEMA)
        self._clock = clock
        self._epoch = ""
        self._open: dict[str, Asked] = {}
        """By ticket, what is not dealt with."""
        self._chats: dict[Address, Chat] = {}
        self.warnings: list[str] = []
        """Sentences for the person who runs this."""

    async def __aenter__(self) -> Self:
        await completed(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await completed(self._database.close())

    async def _enter(self) -> None:
        try:
            if (warning := await self._database.open()) is not None:
                self.warnings.append(warning)
            self._epoch = await self._database.run(tables.epoch, durable=True)
            self._chats = {chat.address: chat for chat in await self._database.run(tables.chats, durable=False)}
            for kept in await self._waiting():
                self._know(kept.message, kept.message.ticket)
        except BaseException:
            await self._database.close()
            raise

    @property
    def undone(self) -> int:
        """How many messages have no answer yet."""
        return len(self._open)

    async def known(self, address: Address, message_id: str) -> bool:
        """Whether it was taken before; never of one without an id."""
        if not message_id:
            return False
        return await completed(self._database.run(lambda db: tables.known(db, address, message_id), durable=False))

    async def take(self, message: InboundMessage, name: str = "") -> str | None:
        """A ticket, once the loss of power cannot undo it; None if it was taken before. ``name``: of the sender."""
        return await completed(self._take(message, name))

    async def _take(self, message: InboundMessage, name: str) -> str | None:
        now = self._clock()
        seq = await self._database.run(lambda db: tables.take(db, message, name, now), durable=True)
        if seq is None:
            return None
        self._chats.pop(message.address, None)  # the last that wrote is the last to be forgotten
        self._chats[message.address] = Chat(message.address, message.is_group, message.sender, name, now)
        while len(self._chats) > tables.MAX_CHATS:
            del self._chats[next(iter(self._chats))]
        ticket = f"{self._epoch}.{seq}"
        self._know(message, ticket)
        return ticket

    def _know(self, message: InboundMessage, ticket: str) -> None:
        self._open[ticket] = Asked(address=message.address, message_id=message.message_id, is_group=message.is_group)

    def asked(self, ticket: str) -> Asked | None:
        """What a ticket stands for, until it is settled."""
        return self._open.get(ticket)

    async def begun(self, ticket: str) -> None:
        """A turn begins for it: one more try, whatever becomes of this process."""
        if (seq := self._seq(ticket)) is not None:
            await completed(self._database.run(lambda db: tables.begun(db, seq), durable=False))

    async def waiting(self) -> list[Kept]:
        """What is not dealt with, oldest first, as messages that were resumed."""
        return await completed(self._waiting())

    async def _waiting(self) -> list[Kept]:
        found = []
        for seq, body, tries, taken_at in await self._database.run(tables.waiting, durable=False):
            try:
                message = codec.read_inbound(body, f"{self._epoch}.{seq}")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                _log.warning("message %d of the ledger makes no sense and is passed over: %r", seq, error)
                continue
            found.append(Kept(message=message, tries=tries, taken_at=taken_at))
        return found

    async def settle(self, tickets: Sequence[str], parcels: Sequence[Parcel]) -> list[int]:
        """The messages are dealt with, and the parcels are on the disk: both or neither, and durable. Their rows.

        Tickets that are unknown, or settled, change nothing.
        """
        due = [ticket for ticket in tickets if ticket in self._open]
        return await completed(self._settle(due, parcels)) if due or parcels else []

    async def _settle(self, tickets: Sequence[str], parcels: Sequence[Parcel]) -> list[int]:
        now = self._clock()
        seqs = [seq for ticket in tickets if (seq := self._seq(ticket)) is not None]
        pieces = [(parcel.address, parcel.piece) for parcel in parcels]

        def work(db: Connection) -> list[int]:
            tables.settle(db, seqs)
            return tables.put(db, pieces, now)

        rows = await self._database.run(work, durable=True)
        for ticket in tickets:
            self._open.pop(ticket, None)
        return rows

    async def parcels(self) -> list[Row]:
        """All that have not arrived, in the order in which they came."""
        found = []
        for row, channel, body, sending, put_at in await completed(self._database.run(tables.parcels, durable=False)):
            try:
                piece = codec.read_piece(body)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                _log.warning("answer %d of the ledger makes no sense and is passed over: %r", row, error)
                continue
            parcel = Parcel(address=Address(channel=channel, chat_id=piece.chat_id), piece=piece)
            found.append(Row(id=row, parcel=parcel, sending=bool(sending), put_at=put_at))
        return found

    async def sending(self, row: int) -> None:
        """From now on nobody can know whether it arrived, unless ``not_sent`` or ``remove`` follows."""
        await completed(self._database.run(lambda db: tables.mark(db, row, sending=True), durable=False))

    async def not_sent(self, row: int) -> None:
        """It did not arrive, for certain."""
        await completed(self._database.run(lambda db: tables.mark(db, row, sending=False), durable=False))

    async def remove(self, rows: Sequence[int]) -> None:
        """They have arrived, or were given up."""
        await completed(self._database.run(lambda db: tables.remove(db, rows), durable=False))

    async def expire(self, before: float) -> list[str]:
        """Give up what was put before that moment; the channel of each."""
        return await completed(self._database.run(lambda db: tables.expire(db, before), durable=False))

    async def chats(self, channel: str | None = None) -> list[Chat]:
        """Those in which a message was taken, the last that wrote first."""
        return [chat for chat in reversed(self._chats.values()) if channel in (None, chat.address.channel)]

    def chat(self, address: Address) -> Chat | None:
        """If a message was taken from it."""
        return self._chats.get(address)

    def known_chat(self, address: Address) -> bool:
        """Whether a message was taken from it."""
        return address in self._chats

    def is_group(self, address: Address) -> bool:
        """As far as it is known."""
        chat = self._chats.get(address)
        return chat is not None and chat.is_group

    async def load(self, channel: str, key: str) -> str | None:
        return await completed(self._database.run(lambda db: tables.load(db, channel, key), durable=False))

    async def save(self, channel: str, key: str, value: str) -> None:
        await completed(self._database.run(lambda db: tables.save(db, channel, key, value), durable=False))

    def memory(self, channel: str) -> Memory:
        return Memory(self, channel)

    def _seq(self, ticket: str) -> int | None:
        """None for what is no ticket of this ledger, such as a job's."""
        epoch, _, seq = ticket.partition(".")
        return int(seq) if epoch == self._epoch and seq.isdecimal() else None


class Memory:
    """``channels.contract.Memory`` of one channel."""

    def __init__(self, ledger: Ledger, channel: str) -> None:
        self._ledger = ledger
        self._channel = channel

    async def load(self, key: str) -> str | None:
        return await self._ledger.load(self._channel, key)

    async def save(self, key: str, value: str) -> None:
        await self._ledger.save(self._channel, key, value)
