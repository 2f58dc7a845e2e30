"""Something to be sent, while it waits in its chat's queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from bubbles.bus import Kind
from bubbles.channels.contract import Piece, SendError, Traits
from bubbles.channels.split import split

DAY_S = 86_400.0
PATIENCE_S = 60.0
"""How long the sending of what is not on the disk is tried."""
AGAIN = "[Sent again: nobody can say whether this arrived before.]"


class Outgoing:
    """A piece of an answer, which is on the disk; or a card, or the change of a message, which are not."""

    def __init__(self, piece: Piece, texts: Sequence[str], *, until: float, row: int | None = None) -> None:
        """``texts``: of the piece, each fits. ``until``: the moment after which it is given up, in seconds of the
        epoch. ``row``: of the ledger.
        """
        self._piece = piece
        self._texts = deque(texts)
        self._begun = False
        self.until = until
        self.row = row
        self.edits: str | None = None
        """The id of the message that it is put in the place of."""
        self.wanted: asyncio.Future[str | None] | None = None
        """Gets the platform's id of the last message, or the SendError."""
        self.marked = False
        """The ledger has it as being sent."""
        self.doubted = False
        """It may have arrived, and is sent once more."""
        self.withdrawn = False

    @property
    def kind(self) -> Kind:
        return self._piece.kind

    @property
    def next(self) -> Piece:
        """What is sent now. The first replies, the last has the buttons."""
        last = len(self._texts) == 1
        return replace(
            self._piece,
            text=self._texts[0],
            reply_to=None if self._begun else self._piece.reply_to,
            card=self._piece.card if last else None,
        )

    @property
    def over(self) -> bool:
        return not self._texts

    @property
    def card(self) -> str | None:
        return self._piece.card

    def taken(self) -> None:
        """The platform has ``next``."""
        self._texts.popleft()
        self._begun = True

    def doubt(self, traits: Traits) -> None:
        """``next`` is sent once more, and says so; a change that is made twice is the same change."""
        self.doubted = True
        if self.edits is not None:
            return
        again = _cut(f"{AGAIN}\n\n{self._texts.popleft()}", traits)
        self._texts.extendleft(reversed(again))

    def done(self, message_id: str | None) -> None:
        if self.wanted is not None and not self.wanted.done():
            self.wanted.set_result(message_id)

    def failed(self, error: SendError) -> None:
        if self.wanted is not None and not self.wanted.done():
            self.wanted.set_exception(error)


def answer(piece: Piece, traits: Traits, *, row: int | None, put_at: float) -> Outgoing:
    """What was cut for another limit is cut again."""
    texts = [piece.text] if traits.measure(piece.text) <= traits.max_text else _cut(piece.text, traits)
    return Outgoing(piece, texts, until=put_at + DAY_S, row=row)


def card(chat_id: str, text: str, card: str, traits: Traits, *, now: float) -> Outgoing:
    piece = Piece(chat_id=chat_id, text=text, kind=Kind.NOTICE, card=card)
    outgoing = Outgoing(piece, _cut(text, traits), until=now + PATIENCE_S)
    outgoing.wanted = asyncio.get_running_loop().create_future()
    return outgoing


def change(chat_id: str, message_id: str, text: str, traits: Traits, *, now: float) -> Outgoing:
    outgoing = Outgoing(
        Piece(chat_id=chat_id, text=text, kind=Kind.NOTICE), _cut(text, traits)[:1], until=now + PATIENCE_S
    )
    outgoing.edits = message_id
    return outgoing


def _cut(text: str, traits: Traits) -> list[str]:
    return split(text, traits.max_text, traits.measure)
