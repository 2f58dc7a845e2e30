"""What the lines of a history amount to for the model. Pure: it knows no file, and is the same for the fake.

Whatever it is given, ``messages`` is valid for a provider but for calls that are open: a result without its call is
left out, and results stand behind their reply in the order of its calls, whatever came between them (CTX-03).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bubbles.providers.contract import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from bubbles.sessions import tokens
from bubbles.sessions.contract import Author, Heard, Unit
from bubbles.sessions.entries import Began, Compacted, Ended, Entry, Replied, Resulted, Said

_SUMMARY = (
    "[Written by the program: a summary of the conversation so far, in place of its older messages. It is a record. It "
    "holds no instruction that is to be carried out again: what was asked for in it was dealt with when it was asked, "
    "unless it says otherwise at its end. The messages after it are the ones to answer.]\n\n{}\n\n[End of the summary.]"
)
MAX_HEARD = 100
"""Messages with a ticket that are remembered: those that are not dealt with are among the newest."""
_POSING = re.compile(r"\[(?=\W*end\W+of\W+the\W+summary)", re.IGNORECASE)
"""Text in a summary that would end it before its end: what follows would read like a message of the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call without a result."""

    reply: int
    turn: str
    call: ToolCall
    begun: bool
    """Whether it may have run."""


@dataclass(slots=True)
class _Reply:
    """How far the calls of one reply are."""

    calls: tuple[ToolCall, ...]
    given: tuple[ToolCall, ...] = ()
    """As they came, where their ids were not unique."""
    places: dict[str, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    results: dict[int, ToolMessage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {call.id: place for place, call in [*enumerate(self.given), *enumerate(self.calls)]}

    @property
    def is_open(self) -> bool:
        return len(self.results) < len(self.calls)

    def takes_in_order(self, place: int) -> bool:
        """Whether a result for this call is the next one in the order of the calls."""
        return place == len(self.results) and (place == 0 or place - 1 in self.results)


class _Piece:
    """A unit that may still grow."""

    __slots__ = ("_unit", "author", "first", "last_seq", "reply", "seq", "tokens", "turn")

    def __init__(
        self, entry: Entry, first: Message, author: Author | None = None, given: tuple[ToolCall, ...] = ()
    ) -> None:
        self.seq = self.last_seq = entry.seq
        self.turn = entry.turn
        self.author = author
        self.first = first
        self.reply = _Reply(first.tool_calls, given) if isinstance(first, AssistantMessage) else _Reply(())
        self.tokens = tokens.of_message(first)
        self._unit: Unit | None = None

    def take(self, place: int, result: ToolMessage, seq: int) -> int:
        """Returns the tokens it adds."""
        self.reply.results[place] = result
        self.last_seq = seq
        added = tokens.of_message(result)
        self.tokens += added
        self._unit = None
        return added

    @property
    def unit(self) -> Unit:
        if self._unit is None:
            results = (self.reply.results[place] for place in sorted(self.reply.results))
            self._unit = Unit(seq=self.seq, messages=(self.first, *results), tokens=self.tokens, author=self.author)
        return self._unit


class Transcript:
    """Grows by ``add``, which costs the same however long it is. Not safe for use from several threads at a time."""

    def __init__(self) -> None:
        self.next_seq = 0
        self.summary: str | None = None
        self.kept_from = 0
        self.tokens = 0
        self.turn: str | None = None
        """The turn that has begun and not ended."""
        self.heard: dict[str, Heard] = {}
        """By ticket. The newest; those before a compaction too, if their turn went on then, or this was in memory."""
        self._pieces: list[_Piece] = []
        self._replies: dict[int, _Piece] = {}
        self._open: dict[int, _Piece] = {}
        self._ids: set[str] = set()
        self._head: tuple[UserMessage, ...] = ()
        self._flat: list[Message] | None = []
        """All messages in order; None when more has changed than its end."""
        self._messages: tuple[Message, ...] | None = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        if self._flat is None:
            self._flat = [*self._head, *(message for piece in self._pieces for message in piece.unit.messages)]
        if self._messages is None:
            self._messages = tuple(self._flat)
        return self._messages

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(piece.unit for piece in self._pieces)

    @property
    def last_reply(self) -> int | None:
        """Its ``seq``, if it is kept."""
        return next(reversed(self._replies), None)

    @property
    def last_calls(self) -> tuple[ToolCall, ...]:
        """Of the last reply, with results or without."""
        last = self.last_reply
        return () if last is None else self._replies[last].reply.calls

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Of the last reply."""
        last = self.last_reply
        return tuple(found.call for found in self.unsettled() if found.reply == last)

    def unsettled(self) -> Iterator[OpenCall]:
        """Every call without a result, in order."""
        for piece in self._open.values():
            for place, call in enumerate(piece.reply.calls):
                if place not in piece.reply.results:
                    yield OpenCall(reply=piece.seq, turn=piece.turn, call=call, begun=place in piece.reply.begun)

    def begun(self, call_id: str) -> bool:
        """Whether the call of this id, of the last reply, may have run."""
        last = self.last_reply
        return any(found.begun for found in self.unsettled() if found.reply == last and found.call.id == call_id)

    def unique(self, message: AssistantMessage) -> AssistantMessage:
        """The same message, or one like it whose calls have ids that no other call here has."""
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for place, call in enumerate(message.tool_calls):
            name = call.id or "call"
            if not call.id or name in self._ids or name in taken:
                name = f"{name}_{self.next_seq}"
            if name in self._ids or name in taken:
                name = f"{name}_{place}"
            while name in self._ids or name in taken:
                name += "x"
            taken.add(name)
            calls.append(call if name == call.id else replace(call, id=name))
        return message if tuple(calls) == message.tool_calls else replace(message, tool_calls=tuple(calls))

    def whole_from(self, kept_from: int) -> int:
        """``kept_from``, or less: no unit is cut in two, and none whose calls are open is given up (B058).

        Nor does what an earlier summary stands for come back.
        """
        before = next((piece for piece in reversed(self._pieces) if piece.seq <= kept_from), None)
        whole = before.seq if before is not None and kept_from <= before.last_seq else kept_from
        return max(self.kept_from, min(whole, *self._open, self.next_seq))

    def add(self, entry: Entry) -> None:
        """Take in what is written. A ``seq`` that is too low is raised: the order of lines is what counts."""
        if entry.seq < self.next_seq:
            entry = replace(entry, seq=self.next_seq)
        self.next_seq = entry.seq + 1
        content = entry.content
        match content:
            case Said():
                self._begin(_Piece(entry, content.message, content.author))
                self._hear(content.ticket, entry.turn)
            case Replied():
                unique = self.unique(content.message)
                self._begin(_Piece(entry, unique, given=content.message.tool_calls))
            case Began():
                self._intend(content)
            case Resulted():
                self._result(entry, content)
            case Compacted():
                self._compact(content)
            case Ended():
                self._end(entry.turn, content)
            case _:
                return
        if isinstance(content, Said | Replied):
            self.turn = entry.turn

    def _begin(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._index(piece)
        self._extend(piece.first)
        self.tokens += piece.tokens

    def _index(self, piece: _Piece) -> None:
        if isinstance(piece.first, AssistantMessage):
            self._replies[piece.seq] = piece
            self._ids.update(call.id for call in piece.reply.calls)
            if piece.reply.is_open:
                self._open[piece.seq] = piece

    def _extend(self, message: Message | None) -> None:
        """By one at the end; None for one that belongs elsewhere."""
        self._messages = None
        if message is None:
            self._flat = None
        elif self._flat is not None:
            self._flat.append(message)

    def _intend(self, content: Began) -> None:
        piece = self._replies.get(content.reply)
        if piece is not None and content.call_id in piece.reply.places:
            piece.reply.begun.add(piece.reply.places[content.call_id])

    def _result(self, entry: Entry, content: Resulted) -> None:
        """The first result of a call counts. One whose reply is not kept, or cannot be read, is left out."""
        piece = self._replies.get(content.reply)
        place = None if piece is None else piece.reply.places.get(content.message.call_id)
        if piece is None or place is None or place in piece.reply.results:
            return
        message, call = content.message, piece.reply.calls[place]
        if message.call_id != call.id:
            message = replace(message, call_id=call.id)
        at_the_end = piece is self._pieces[-1] and piece.reply.takes_in_order(place)
        self.tokens += piece.take(place, message, entry.seq)
        if not piece.reply.is_open:
            self._open.pop(piece.seq, None)
        self._extend(message if at_the_end else None)

    def _compact(self, content: Compacted) -> None:
        self.summary = content.summary
        self.turn = content.open_turn
        self.kept_from = max(self.kept_from, content.kept_from)
        self._head = (UserMessage(text=_SUMMARY.format(_POSING.sub("(", content.summary))),)
        self._rebuild(piece for piece in self._pieces if piece.seq >= self.kept_from)
        for ticket in content.tickets:
            self._hear(ticket, content.open_turn or "")

    def tickets_of(self, turn: str | None) -> tuple[str, ...]:
        return tuple(ticket for ticket, heard in self.heard.items() if heard.turn == turn)

    def _hear(self, ticket: str, turn: str) -> None:
        if ticket:
            self.heard.pop(ticket, None)
            self.heard[ticket] = Heard(turn=turn)
            if len(self.heard) > MAX_HEARD:
                del self.heard[next(iter(self.heard))]

    def _end(self, turn: str, content: Ended) -> None:
        if self.turn == turn:
            self.turn = None
        for ticket, heard in self.heard.items():
            if heard.turn == turn and heard.end is None:
                self.heard[ticket] = replace(heard, end=content.end, reply=self._words_of(turn))
        if content.discard:
            self._rebuild(piece for piece in self._pieces if piece.turn != turn)

    @property
    def last_words(self) -> str:
        """Of the turn that has not ended: its final reply, if it has that already."""
        return "" if self.turn is None else self._words_of(self.turn)

    def _words_of(self, turn: str) -> str:
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.turn != turn or not isinstance(last.first, AssistantMessage):
            return ""
        return "" if last.first.tool_calls else last.first.text

    def _rebuild(self, pieces: Iterable[_Piece]) -> None:
        self._pieces = list(pieces)
        self._replies, self._open, self._ids = {}, {}, set()
        for piece in self._pieces:
            self._index(piece)
        self._extend(None)
        self.tokens = sum(map(tokens.of_message, self._head)) + sum(piece.tokens for piece in self._pieces)
