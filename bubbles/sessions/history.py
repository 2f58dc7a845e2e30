"""A history that is written before it is seen: the contract's methods on top of whatever writes the lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from bubbles.bus import Origin
from bubbles.providers.contract import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from bubbles.sessions import wellformed
from bubbles.sessions.contract import Author, Heard, SessionError, TurnEnd, Unit
from bubbles.sessions.entries import Began, Compacted, Content, Ended, Entry, Replied, Resulted, Said
from bubbles.sessions.transcript import Transcript

T = TypeVar("T")
Write = Callable[[Sequence[Entry]], Awaitable[None]]
"""Puts entries on the disk, all or none; raises ``SessionDamagedError``."""

UNKNOWN = (
    "[Written by the program: this call was cut off while it ran, and its result is lost. Whether it took effect, "
    "wholly or in part, is not known. Do not simply repeat it: look first at what is there.]"
)
NOT_RUN = "[Written by the program: this call was not run. The turn ended before it.]"
INTERRUPTED = (
    "[Note of the program, not of the person: the turn above was interrupted when the program ended. Nothing of it "
    "goes on by itself: act on the next message.]"
)


class WrittenHistory:
    """``History``. Calls from several tasks at once are written one after another.

    A method that is cancelled is first brought to its end, so that what is on the disk and what is known here agree.
    """

    def __init__(self, transcript: Transcript, write: Write) -> None:
        self._transcript = transcript
        self._write = write
        self._writing = asyncio.Lock()
        self._given: list[str] = []
        """Ids of the last reply's calls as they came, where one had to be changed."""
        self._closed = False

    @property
    def messages(self) -> Sequence[Message]:
        return self._transcript.messages

    @property
    def units(self) -> Sequence[Unit]:
        return self._transcript.units

    @property
    def tokens(self) -> int:
        return self._transcript.tokens

    @property
    def summary(self) -> str | None:
        return self._transcript.summary

    @property
    def open_calls(self) -> Sequence[ToolCall]:
        """Their ids are unique; where a vendor used one again, they differ from those in the reply."""
        return self._transcript.open_calls

    def heard(self, ticket: str) -> Heard | None:
        return self._transcript.heard.get(ticket)

    def tickets(self, turn: str) -> tuple[str, ...]:
        return self._transcript.tickets_of(turn)

    async def add_user(
        self, message: UserMessage, *, author: Author, origin: Origin, turn: str, ticket: str = ""
    ) -> None:
        """Text over 8 Mi characters is shortened in the middle."""
        said = Said(message=wellformed.message(message), author=author, origin=origin, ticket=ticket)
        await self._append(turn, lambda: (said,))

    async def add_reply(
        self, message: AssistantMessage, *, usage: Usage, model: str, turn: str, begin: bool = False
    ) -> None:
        """ValueError while calls of the reply before are open. What ``messages`` holds differs from ``message`` if
        that was not well formed or used an id again.
        """
        cleaned = wellformed.reply(message)

        def contents() -> Sequence[Content]:
            if self._transcript.open_calls:
                raise ValueError("calls of the last reply have no result yet")
            unique = self._transcript.unique(cleaned)
            self._given = [] if unique is cleaned else [call.id for call in cleaned.tool_calls]
            replied = Replied(message=unique, usage=usage, model=model)
            if not begin:
                return (replied,)
            first = unique.tool_calls[0]
            return (replied, Began(reply=self._transcript.next_seq, call_id=first.id, name=first.name))

        await self._append(turn, contents)

    async def begin_call(self, call: ToolCall, *, turn: str) -> None:
        """ValueError if it is not open."""

        def contents() -> Sequence[Content]:
            known = self._known(call.id, begun=False)
            return (Began(reply=self._last_reply(), call_id=known.id, name=known.name),)

        await self._append(turn, contents)

    async def add_result(self, message: ToolMessage, *, turn: str, full_text: str | None = None) -> None:
        """ValueError if its call is not open. Text over 8 Mi characters is shortened in the middle."""
        cleaned = wellformed.message(message)

        def contents() -> Sequence[Content]:
            known = self._known(cleaned.call_id, begun=True)
            result = cleaned if cleaned.call_id == known.id else _renamed(cleaned, known.id)
            return (Resulted(reply=self._last_reply(), message=result, full_text=full_text),)

        await self._append(turn, contents)

    async def compact(self, summary: str, *, kept_from: int, turn: str) -> None:
        """No unit is cut in two, and a reply whose calls are open is kept, whatever ``kept_from`` says."""
        cleaned = wellformed.clean(summary)

        def contents() -> Sequence[Content]:
            if not 0 <= kept_from <= self._transcript.next_seq:
                raise ValueError(f"kept_from={kept_from}: the history has lines 0 to {self._transcript.next_seq - 1}")
            kept = self._transcript.whole_from(kept_from)
            going_on = self._transcript.turn
            tickets = self._transcript.tickets_of(going_on)
            return (Compacted(summary=cleaned, kept_from=kept, open_turn=going_on, tickets=tickets),)

        await self._append(turn, contents)

    async def end_turn(self, end: TurnEnd, *, turn: str, discard: bool = False) -> None:
        """Calls that are still open get their results here, as after a crash."""
        await self._append(turn, lambda: (*self._results_due(), Ended(end=end, discard=discard)))

    async def settle(self) -> None:
        """What a crash left open is closed, by one write; nothing if nothing is open."""
        turn = self._transcript.turn
        if turn is not None:
            await self._append(turn, lambda: (*self._results_due(), *self._ending()))
        elif (lost := next(self._transcript.unsettled(), None)) is not None:  # with a line that cannot be read
            await self._append(lost.turn, self._results_due)

    def close(self) -> None:
        """Nothing can be written any more."""
        self._closed = True

    def _results_due(self) -> list[Content]:
        return [
            Resulted(
                reply=found.reply,
                message=ToolMessage(
                    call_id=found.call.id,
                    name=found.call.name,
                    text=UNKNOWN if found.begun else NOT_RUN,
                    is_error=True,
                ),
            )
            for found in self._transcript.unsettled()
        ]

    def _ending(self) -> list[Content]:
        """A crash may have come between these two lines; or between a final reply and the end of its turn (OPS-02)."""
        if self._transcript.last_words:
            return [Ended(end=TurnEnd.DONE)]
        ended = Ended(end=TurnEnd.INTERRUPTED)
        messages = self._transcript.messages
        if messages and isinstance(messages[-1], UserMessage) and messages[-1].text == INTERRUPTED:
            return [ended]
        return [Said(message=UserMessage(text=INTERRUPTED), author=Author.PROGRAM), ended]

    def _known(self, call_id: str, *, begun: bool) -> ToolCall:
        """The open call of this id, or of the id that came with it; of equal ones, the first that is ``begun``."""
        calls = self._transcript.open_calls
        found = [call for call in calls if call.id == call_id]
        if self._given and not found:
            stored = [call.id for call in self._transcript.last_calls]
            same = {ours for ours, given in zip(stored, self._given, strict=False) if given == call_id}
            found = [call for call in calls if call.id in same]
        if not found:
            raise ValueError(f"there is no open call {call_id!r}")
        return next((call for call in found if self._transcript.begun(call.id) is begun), found[0])

    def _last_reply(self) -> int:
        reply = self._transcript.last_reply
        if reply is None:
            raise ValueError("there is no reply")
        return reply

    async def _append(self, turn: str, contents: Callable[[], Sequence[Content]]) -> None:
        await completed(self._append_now(wellformed.clean(turn), contents))

    async def _append_now(self, turn: str, contents: Callable[[], Sequence[Content]]) -> None:
        async with self._writing:
            if self._closed:
                raise SessionError("the turn is over: its history takes nothing more")
            first = self._transcript.next_seq
            entries = [Entry(seq=seq, turn=turn, content=each) for seq, each in enumerate(contents(), first)]
            await self._write(entries)
            for entry in entries:
                self._transcript.add(entry)


def _renamed(message: ToolMessage, call_id: str) -> ToolMessage:
    return ToolMessage(
        call_id=call_id, name=message.name, text=message.text, is_error=message.is_error, images=message.images
    )


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns. A cancellation waits until it has ended, and is then raised."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()
