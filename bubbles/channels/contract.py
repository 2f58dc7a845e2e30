"""What a channel is, and what it gets of the program. Open this file first.

A channel moves messages and decides nothing: who may write, what belongs to which conversation, how a long text is cut
and when it may be sent is done once, for all of them. ``take`` returns when the message is on the disk, or was turned
away; only then the platform is told that it has arrived.

ChannelError (a BubblesError)
├── FatalChannelError   it can only be mended by a person: a wrong token, say. The channel stays off.
└── SendError           a message was not sent
    ├── NotSentError    for certain, and it may be tried again
    ├── MaybeSentError  nobody knows whether the platform has it
    ├── SlowDownError   not yet: the platform says when
    └── RefusedError    never: the chat is gone, the assistant was blocked, the text is not taken
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bubbles.bus import Kind
from bubbles.errors import BubblesError


class ChannelError(BubblesError):
    """The root. Messages name the channel's setting and the mend where there is one, and never a token."""


class FatalChannelError(ChannelError):
    """Trying again changes nothing."""


class SendError(ChannelError):
    """The root of what may become of a message that was not sent."""


class NotSentError(SendError):
    """It did not leave this machine, or the platform said so."""


class MaybeSentError(SendError):
    """The connection was lost after the message had left."""


class SlowDownError(SendError):
    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the platform takes nothing for {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class RefusedError(SendError):
    """The reason is the platform's, shortened, without anything secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message. Nothing is fetched before the sender is known to be let in."""

    name: str
    """As the platform says: hostile."""
    mime: str = ""
    size: int | None = None
    """Bytes, if the platform says; nobody believes it."""
    fetch: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
    """Opens the file for reading once, in pieces. Raises ChannelError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message as it comes from a platform, of whomever."""

    chat_id: str
    """Equal ids are one conversation: a topic of a group that has topics is one of its own."""
    message_id: str
    """The platform's own: the same message has the same id, and no other in this chat has it (CHAN-07)."""
    sender: str
    """The platform's stable id of who wrote it, never a display name."""
    aliases: tuple[str, ...] = ()
    """Other stable ids of the same person."""
    name: str = ""
    """Display name: hostile, shown only."""
    text: str = ""
    """Mentions as ``<@id>``; one of the assistant at the beginning is left out."""
    is_group: bool = False
    """CHAN-04."""
    addressed: bool = True
    """In a group: it mentions the assistant, replies to it, or is a command for it."""
    reply_to: str | None = None
    """Id of the message that it replies to."""
    attachments: tuple[Attachment, ...] = ()
    press: bool = False
    """It is no writing but a button of an approval card; ``text`` is the slash command that the button stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message for a platform: it fits there."""

    chat_id: str
    text: str
    """Markdown, with mentions as ``<@id>``. The channel makes its platform's own formatting of it (CHAN-08)."""
    kind: Kind
    reply_to: str | None = None
    """Id of the platform's message that it answers, in a group."""
    card: str | None = None
    """Id of the approval card that it shows, or whose last part it is: it gets buttons where the platform has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What there is on a platform."""

    max_text: int
    """Of one message, as ``measure`` counts, after the platform's formatting has been taken out."""
    measure: Callable[[str], int] = len
    pause_s: float = 1.0
    """At least between two messages of one chat."""
    group_pause_s: float = 1.0
    per_second: float = 20.0
    """Messages of all chats together."""
    buttons: bool = False
    edits: bool = False
    typing_s: float | None = None
    """How long the sign that somebody writes lasts; None: there is none."""
    max_file_bytes: int = 20_000_000
    progress: bool = True
    """Whether text on the way may be sent at all: some platforms count every message."""
    rising_ids: bool = False
    """Ids of messages are numbers, and of two in a chat the later one has the higher: it is then known what was written
    before a card was to be seen (APPR-03)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A member of a group. Texts are the platform's."""

    id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Who is in a group."""

    people: tuple[Person, ...]
    complete: bool = True
    """False: the platform tells of some only."""


class Memory(Protocol):
    """A few small texts that a channel must know again after a restart, such as how far it has read."""

    async def load(self, key: str) -> str | None: ...
    async def save(self, key: str, value: str) -> None:
        """Returns once a kill -9 cannot undo it."""
        ...


class Link(Protocol):
    """What a running channel has of the program."""

    async def take(self, message: Incoming) -> None:
        """Returns once the message is on the disk, or was turned away: the platform need not offer it again. Waits
        while too much waits already. Raises what hinders the disk; the platform must then offer it again.
        """
        ...

    def connected(self, who: str) -> None:
        """The platform has let us in, as ``who``."""
        ...

    def alive(self) -> None:
        """The platform has answered, whatever it said. Who says nothing for ``stall_s`` is started anew."""
        ...


class Channel(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def stall_s(self) -> float:
        """Seconds without a word from the platform after which the connection is taken for dead."""
        ...

    async def run(self, link: Link) -> None:
        """Move messages until cancelled. Returning or raising means that it is to be started again, after a while;
        FatalChannelError, that it is not. Everything it opened is closed when it ends, however it ends.
        """
        ...

    async def send(self, piece: Piece) -> str | None:
        """Send one message; the platform's id of it, if it has one. Raises SendError. Only while ``run`` is at work;
        else NotSentError.
        """
        ...

    async def edit(self, message_id: str, piece: Piece) -> None:
        """Put ``piece`` in the place of a message that was sent, without buttons unless it has a card. Only if
        ``traits.edits``. Raises SendError.
        """
        ...

    async def typing(self, chat_id: str) -> None:
        """Show that somebody writes. Only if ``traits.typing_s``. Raises SendError, which does not matter."""
        ...

    async def members(self, chat_id: str) -> Roster | None:
        """None: it is no group. Raises ChannelError if the platform does not say."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A channel as it is known before its library is imported."""

    name: str
    extra: str | None
    """Of the package, ``pip install 'bubbles[extra]'``; None: it needs nothing more."""
    requires: tuple[str, ...] = ()
    """Modules of that extra."""
    module: str
    """Where ``make(settings, memory) -> Channel`` is."""
