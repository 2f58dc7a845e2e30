"""A platform in memory and the channel to it, for tests of what stands above: the same contract, no socket.

It outlives those who run it, as a platform does: what nobody has taken is offered again to the next ``run``.

    channel = FakeChannel()
    await channel.say("hello", chat="7", sender="ann")    # returns once the program has taken it
    (piece,) = await channel.heard(1, chat="7", kinds={Kind.REPLY})
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bubbles.bus import Kind
from bubbles.channels.contract import (
    Attachment,
    ChannelError,
    FatalChannelError,
    Incoming,
    Link,
    NotSentError,
    Piece,
    RefusedError,
    Roster,
    SendError,
    Traits,
)

_NUMBERS = itertools.count(1)
"""No two fakes of a process give the same id: a ledger that outlives one of them would take it for a duplicate."""


def attached(name: str, *parts: bytes, mime: str = "", size: int | None = None, lost: bool = False) -> Attachment:
    """A file that comes in these parts; ``lost``: its platform breaks off after them."""

    @asynccontextmanager
    async def fetch() -> AsyncIterator[AsyncIterator[bytes]]:
        async def stream() -> AsyncIterator[bytes]:
            for part in parts:
                yield part
            if lost:
                raise ChannelError("the file broke off")

        yield stream()

    return Attachment(name=name, mime=mime, size=size, fetch=fetch)


@dataclass(slots=True, kw_only=True)
class FakeChannel:
    """Everything that was sent is in ``sent``, oldest first; ``shown`` is what people see of it now."""

    name: str = "fake"
    traits: Traits = field(
        default_factory=lambda: Traits(max_text=4_096, pause_s=0.0, group_pause_s=0.0, per_second=1e6)
    )
    stall_s: float = 3_600.0
    who: str = "fakebot"
    rosters: dict[str, Roster] = field(default_factory=dict)
    """Members, by chat id; a chat that is not here is no group."""
    sent: list[tuple[str, Piece]] = field(default_factory=list, init=False)
    """The platform's id of the message, and what it took."""
    edited: list[tuple[str, Piece]] = field(default_factory=list, init=False)
    typed: list[str] = field(default_factory=list, init=False)
    """Chat ids."""
    runs: int = field(default=0, init=False)
    """How often ``run`` was begun."""
    members_error: ChannelError | None = field(default=None, init=False)
    open_for_sends: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Cleared: a send stays under way until it is set, or cancelled."""
    _plans: deque[tuple[SendError | None, bool]] = field(default_factory=deque, init=False)
    _offers: deque[tuple[Incoming, asyncio.Event]] = field(default_factory=deque, init=False)
    _link: Link | None = field(default=None, init=False)
    _down: bool = field(default=False, init=False)
    _fault: BaseException | None = field(default=None, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self.open_for_sends.set()

    # -- what a test does --

    async def say(
        self,
        text: str,
        *,
        chat: str = "1",
        sender: str = "ann",
        message_id: str | None = None,
        is_group: bool = False,
        addressed: bool = True,
        name: str = "",
        aliases: tuple[str, ...] = (),
        reply_to: str | None = None,
        attachments: tuple[Attachment, ...] = (),
        press: bool = False,
    ) -> str:
        """Somebody writes; returns the message's id once the program has taken it, which may need a restart or two."""
        message = Incoming(
            chat_id=chat,
            message_id=str(next(_NUMBERS)) if message_id is None else message_id,
            sender=sender,
            aliases=aliases,
            name=name,
            text=text,
            is_group=is_group,
            addressed=addressed,
            reply_to=reply_to,
            attachments=attachments,
            press=press,
        )
        await self.offer(message).wait()
        return message.message_id

    def offer(self, message: Incoming) -> asyncio.Event:
        """The platform has a message; the event is set once it was taken."""
        taken = asyncio.Event()
        self._offers.append((message, taken))
        self._news.set()
        return taken

    async def heard(
        self, count: int, *, chat: str | None = None, kinds: Collection[Kind] | None = None, within_s: float = 10.0
    ) -> list[Piece]:
        """All that was sent to ``chat`` (else anywhere) of these kinds, once it is at least ``count``.

        TimeoutError says what there was instead.
        """

        def found() -> list[Piece]:
            pieces = [piece for _, piece in self.sent]
            return [
                piece
                for piece in pieces
                if (chat is None or piece.chat_id == chat) and (kinds is None or piece.kind in kinds)
            ]

        try:
            await self.until(lambda: len(found()) >= count, within_s=within_s)
        except TimeoutError:
            raise TimeoutError(f"waited for {count} of {[piece for _, piece in self.sent]}") from None
        return found()

    async def until(self, is_so: Callable[[], bool], *, within_s: float = 10.0) -> None:
        """Wait for something that changes with what is done here. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def shown(self, chat: str) -> list[str]:
        """The texts that stand in a chat, after all edits."""
        texts = {ident: piece.text for ident, piece in self.sent if piece.chat_id == chat}
        texts.update((ident, piece.text) for ident, piece in self.edited if ident in texts)
        return list(texts.values())

    def fail_sends(self, *errors: SendError | None, arrived: bool = False) -> None:
        """What becomes of the next sends and edits, one after another; None: it goes well. ``arrived``: people see it
        all the same, as after a connection that broke too early.
        """
        self._plans.extend((error, arrived) for error in errors)

    def down(self) -> None:
        """The connection breaks, and there is none until ``up``."""
        self._down = True
        self._news.set()

    def up(self) -> None:
        self._down = False

    def fail(self, fault: BaseException | None = None) -> None:
        """``run`` raises this once: now, or when it is begun the next time."""
        self._fault = FatalChannelError("the fake has a wrong token") if fault is None else fault
        self._news.set()

    @property
    def running(self) -> bool:
        return self._link is not None

    # -- what the program does --

    async def run(self, link: Link) -> None:
        if self._link is not None:
            raise AssertionError("it is run twice at a time")
        self.runs += 1
        try:
            self._check()
            self._link = link
            link.connected(self.who)
            link.alive()
            self._news.set()
            while True:
                self._check()
                if self._offers:
                    message, taken = self._offers[0]
                    await link.take(message)
                    self._offers.popleft()
                    taken.set()
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            self._link = None
            self._news.set()

    async def send(self, piece: Piece) -> str | None:
        ident = str(next(_NUMBERS))
        await self._try(lambda: self.sent.append((ident, piece)), piece)
        return ident

    async def edit(self, message_id: str, piece: Piece) -> None:
        if not any(ident == message_id and known.chat_id == piece.chat_id for ident, known in self.sent):
            raise RefusedError("there is no such message in this chat")
        await self._try(lambda: self.edited.append((message_id, piece)), piece)

    async def typing(self, chat_id: str) -> None:
        if self._link is None:
            raise NotSentError("the fake is not connected")
        self.typed.append(chat_id)
        self._news.set()

    async def members(self, chat_id: str) -> Roster | None:
        if self.members_error is not None:
            raise self.members_error
        return self.rosters.get(chat_id)

    async def _try(self, arrive: Callable[[], None], piece: Piece) -> None:
        if self._link is None:
            raise NotSentError("the fake is not connected")
        if not piece.text.strip() or self.traits.measure(piece.text) > self.traits.max_text:
            raise RefusedError("the text is empty or too long")
        await self.open_for_sends.wait()
        error, arrived = self._plans.popleft() if self._plans else (None, False)
        if error is None or arrived:
            arrive()
            self._news.set()
        if error is not None:
            raise error

    def _check(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        if self._down:
            raise ChannelError("the fake is not reached")
