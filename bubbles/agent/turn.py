"""The state of one turn, and what is written into its history."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

from bubbles.agent.contract import Arrival, TurnObserver
from bubbles.agent.usage import total
from bubbles.bus import Origin, Trigger
from bubbles.providers.contract import NO_USAGE, AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from bubbles.sessions.contract import Author, History, SessionError, TurnEnd
from bubbles.sessions.history import completed

STOPPED = "The turn was stopped while this call ran. How far it got is not known: look before you repeat it."
FAILED = "The turn broke off while this call ran. How far it got is not known: look before you repeat it."
NOT_RUN = {
    TurnEnd.STOPPED: "This call was not run: the turn was stopped before it.",
    TurnEnd.FAILED: "This call was not run: the turn broke off before it.",
}
NEW_MESSAGE = "This call was not run: a new message of the person came before it. Read it, then decide how to go on."
NEW_NOTE = "This call was not run: a note of the program came before it. Read it, then make the call if it still helps."

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Turn:
    history: History
    origin: Origin
    observer: TurnObserver
    model: str
    """The name of it, for the record."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    since: int = field(default=0, init=False)
    """The ``seq`` with which it began."""
    usage: Usage = field(default=NO_USAGE, init=False)
    calls: int = field(default=0, init=False)
    """How many ran."""
    last_tools: deque[str] = field(default_factory=lambda: deque(maxlen=5), init=False)
    running: str | None = field(default=None, init=False)
    """Id of the call that has begun and has no result yet."""
    silent: bool = field(default=False, init=False)
    """It ends without a word, and nothing of it is seen again (TOOL-10)."""

    async def begin(
        self, message: UserMessage | None, author: Author, before: Sequence[Arrival] = (), ticket: str = ""
    ) -> None:
        units = self.history.units
        self.since = units[-1].seq + 1 if units else 0
        for arrival in before:
            await completed(self._hear(arrival))
        if message is not None:
            await self.history.add_user(message, author=author, origin=self.origin, turn=self.id, ticket=ticket)
        if begun := self.history.units[len(units) :]:
            self.since = begun[0].seq

    async def note(self, text: str) -> None:
        """For the model, of the program."""
        message = UserMessage(text=f"[Note of the program, not of the person: {text}]")
        await self.history.add_user(message, author=Author.PROGRAM, origin=self.origin, turn=self.id)

    async def keep(self, message: AssistantMessage, usage: Usage, *, begin: bool = False) -> None:
        """``begin``: and its first call begins."""
        await self.history.add_reply(message, usage=usage, model=self.model, turn=self.id, begin=begin)

    async def say(self, text: str) -> str:
        """A last word of the program, in place of the model's."""
        self.observer.text(text)
        self.observer.reply_ended()
        await self.keep(AssistantMessage(text=text), NO_USAGE)
        return text

    def spend(self, usage: Usage) -> None:
        self.usage = total(self.usage, usage)

    async def answer(self, call: ToolCall, text: str) -> None:
        """Instead of running it."""
        message = ToolMessage(call_id=call.id, name=call.name, text=text, is_error=True)
        await self.history.add_result(message, turn=self.id)

    async def answer_open(self, text: str) -> None:
        for call in tuple(self.history.open_calls):
            await self.answer(call, text)

    async def take_in(
        self, messages: Sequence[UserMessage | Arrival], *, after: Coroutine[None, None, None] | None = None
    ) -> None:
        """What came meanwhile, each message by itself (B060); calls that have not begun give way.

        Not to be cut by a cancellation: whoever had the messages has given them away. ``after`` is what must be written
        before them.
        """
        await completed(self._take_in(messages, after))

    async def _take_in(
        self, messages: Sequence[UserMessage | Arrival], after: Coroutine[None, None, None] | None
    ) -> None:
        if after is not None:
            await after
        notes = all(isinstance(message, Arrival) and message.author is not Author.PERSON for message in messages)
        await self.answer_open(NEW_NOTE if notes else NEW_MESSAGE)
        for message in messages:
            if isinstance(message, Arrival):
                await self._hear(message)
            else:
                await self.history.add_user(message, author=Author.PERSON, origin=self.origin, turn=self.id)

    async def _hear(self, arrival: Arrival) -> None:
        message = UserMessage(text=arrival.text)
        await self.history.add_user(
            message, author=arrival.author, origin=self.origin, turn=self.id, ticket=arrival.ticket
        )
        await arrival.written()

    async def close(self, end: TurnEnd) -> None:
        """Settle what is open and write how the turn ended. What hinders that goes to the log: the turn is over."""
        try:
            await completed(self._close(end))
        except SessionError as error:
            _log.warning("the end of turn %s is not in the history: %s", self.id, error)

    async def _close(self, end: TurnEnd) -> None:
        for call in tuple(self.history.open_calls):
            unknown = STOPPED if end is TurnEnd.STOPPED else FAILED
            await self.answer(call, unknown if call.id == self.running else NOT_RUN.get(end, NOT_RUN[TurnEnd.FAILED]))
        # A job that fails all night would pile up messages without an answer before whatever a person says next.
        in_vain = end is TurnEnd.FAILED and not self.calls and self.origin.trigger in (Trigger.CRON, Trigger.HEARTBEAT)
        await self.history.end_turn(end, turn=self.id, discard=self.silent or in_vain)
