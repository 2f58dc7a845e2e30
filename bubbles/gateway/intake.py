"""What a channel has heard becomes a message that is kept, and is handed on (CHAN-02 to CHAN-07, OPS-02).

The order is the promise: who is not let in costs nothing; what is known is dropped; files come before the message that
names them; the message is on the disk before anything is done about it, and before its platform is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage, Trigger
from bubbles.channels.access import Refusal, judge
from bubbles.channels.contract import Channel, Incoming
from bubbles.config.channels import ChannelSettings
from bubbles.controller.approvals.answers import understood
from bubbles.gateway.ledger import Kept, Ledger
from bubbles.gateway.media import Fetched, Files
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from bubbles.gateway.turned_away import TurnedAway, Visitor
from bubbles.gateway.wording import composed, excerpt, shown_name, speaking
from bubbles.sessions.history import completed

MAX_UNDONE = 500
"""Messages of all chats that wait to be dealt with. A platform keeps what is beyond that."""
SPARE = 100
"""More that are taken of what can make room: an answer to a question that a turn waits for, or ``/stop``."""
LOOK_S = 1.0
"""After which who waits for room looks by itself."""
KEPT_S = 86_400.0
"""How long a message waits for its channel to be on again, as answers do."""
MAX_TRIES = 3
GIVEN_UP = (
    "I was interrupted {tries} times while working on: «{text}». I do not try it again by myself: send it again if it "
    "is still wanted."
)
TAKEN_UP = "I was interrupted while working on: «{text}»; I take it up again."
ASK_AGAIN = "I was interrupted before I had answered: «{text}». Send it again if it is still wanted."
VOID = (
    "The program was restarted, and what it had asked is gone with it: «{text}» was not counted as an answer, and "
    "nothing was run by it. If you meant something else, say it again."
)
NOT_COUNTED = "«{text}» was not counted as an answer to the question that waits here: it {why}."
ELSEWHERE = "replies to another message"
TOO_EARLY = "was written before that was to be seen"
BROKEN = "Something went wrong on this side. The log says what; please try again."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Whom the intake works with. By channel: those that are on."""

    channels: Mapping[str, Channel]
    access: Mapping[str, ChannelSettings]
    ledger: Ledger
    post: Post
    files: Files
    metrics: Metrics
    key_of: Callable[[InboundMessage], str]
    deliver: Callable[[InboundMessage], Awaitable[None]]
    """The dispatcher's."""
    is_command: Callable[[str], bool]
    """Whether this text of somebody who may use the assistant is a slash command: the model does not see those."""
    asked: Callable[[Address], bool]
    """Whether a question waits for an answer in a chat."""


class Intake:
    """All calls belong to one event loop."""

    def __init__(self, near: Neighbours, clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds since 1970."""
        self._near = near
        self._clock = clock
        self._chats: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        self._eased = asyncio.Event()
        self._turned_away = {name: TurnedAway(name, clock) for name in near.channels}

    def turned_away(self, channel: str) -> tuple[Visitor, ...]:
        """The last few, newest first."""
        return self._turned_away[channel].newest

    async def take(self, channel: str, incoming: Incoming) -> None:
        """Returns once the message is on the disk, or was turned away or dropped. Waits while too much waits already.

        Raises what hinders the disk: LedgerError. The platform must then offer it again.
        """
        verdict = judge(incoming, self._near.access[channel])
        if verdict.trigger is None:
            self._turn_away(channel, incoming, verdict.refusal or Refusal.STRANGER)
            return
        if incoming.press and not _is_answer(incoming.text):
            _log.warning("%s: a button that is none of ours was pressed, and is not obeyed", channel)
            return
        address = Address(channel=channel, chat_id=incoming.chat_id)
        message = InboundMessage(
            address=address,
            sender=incoming.sender,
            text=incoming.text,
            message_id=incoming.message_id,
            is_group=incoming.is_group,
            trigger=verdict.trigger,
            reply_to=incoming.reply_to and self._near.post.card_of(address, incoming.reply_to),
        )
        direct = not incoming.attachments and self._is_for_program(message)
        async with self._in_order(address, direct):
            if await self._near.ledger.known(address, incoming.message_id):
                self._near.metrics.count("bubbles_duplicates_total", channel=channel)
                return
            await self._room(MAX_UNDONE + (SPARE if direct else 0))
            fetched = await self._fetched(message, incoming)
            speaker = speaking(incoming.name, incoming.sender) if incoming.is_group and not direct else ""
            message = replace(message, text=composed(incoming.text, fetched.lines, speaker))
            # Once it may be on the disk it is handed on, even if its channel is stopped: it would not come again.
            await completed(self._keep(message, incoming, fetched))

    def eased(self) -> None:
        """Something was dealt with: whoever waits for room looks whether there is any."""
        self._eased.set()

    async def resume(self) -> None:
        """Hand on what an earlier process of this program had taken and not dealt with. Before any channel runs.

        What came by a channel that is not on now waits for a later start, for a day.
        """
        taken = []
        for kept in await self._near.ledger.waiting():
            message = kept.message
            settings = self._near.access.get(message.address.channel)
            if settings is None and self._clock() - kept.taken_at < KEPT_S:
                continue
            last_words = _last_words(kept, settings)
            if last_words is not None:
                await self._settle(message, last_words)
                continue
            if kept.tries and message.trigger is Trigger.USER:
                said = TAKEN_UP.format(text=excerpt(message))
                await self._near.post.put(OutboundMessage(address=message.address, text=said, kind=Kind.NOTICE))
            taken.append(message)
        for message in taken:  # in one go: those that were one turn are one again
            await self._deliver(message)

    def _turn_away(self, channel: str, incoming: Incoming, why: Refusal) -> None:
        self._turned_away[channel].add(incoming, why)
        self._near.metrics.count("bubbles_turned_away_total", channel=channel)

    def _is_for_program(self, message: InboundMessage) -> bool:
        """Whether the program itself answers it: such a text is left as it is, and waits for nothing."""
        if message.trigger is not Trigger.USER:
            return False
        word = understood(message.text)
        if word is None:
            return self._near.is_command(message.text.strip())
        return word.card is not None or message.reply_to is not None or self._near.asked(message.address)

    def _in_order(self, address: Address, direct: bool) -> AbstractAsyncContextManager[None]:
        """One after the other in each chat, in the order in which they came: files take their time."""
        if direct:
            return nullcontext()
        lock = self._chats.get(address)
        if lock is None:
            lock = self._chats[address] = asyncio.Lock()
        return lock

    async def _room(self, most: int) -> None:
        while self._near.ledger.undone >= most:
            self._eased.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._eased.wait()

    async def _fetched(self, message: InboundMessage, incoming: Incoming) -> Fetched:
        if not incoming.attachments:
            return Fetched()
        most = self._near.channels[message.address.channel].traits.max_file_bytes
        return await self._near.files.fetch(incoming.attachments, self._near.key_of(message), most)

    async def _keep(self, message: InboundMessage, incoming: Incoming, fetched: Fetched) -> None:
        try:
            ticket = await self._near.ledger.take(message, shown_name(incoming.name))
        except BaseException:
            await self._near.files.discard(fetched)
            raise
        if ticket is None:
            await self._near.files.discard(fetched)
            self._near.metrics.count("bubbles_duplicates_total", channel=message.address.channel)
            return
        self._near.metrics.count("bubbles_messages_total", channel=message.address.channel)
        message = replace(message, ticket=ticket)
        # What waited on its way here may only now look like an answer: nothing may come between this and the next line.
        why = self._answers_something_else(message, incoming)
        await self._deliver(message if why is None else _not_counted(message, incoming, why))
        if why is not None:
            said = NOT_COUNTED.format(text=excerpt(message), why=why)
            await self._near.post.put(OutboundMessage(address=message.address, text=said, kind=Kind.NOTICE))

    def _answers_something_else(self, message: InboundMessage, incoming: Incoming) -> str | None:
        """Why a bare word is no answer to the question that waits: who wrote it meant another message, or had not seen
        the question (APPR-03). With a card's id, and as a reply to a card, it says itself what it means.
        """
        word = understood(message.text)
        if word is None or word.card or message.reply_to is not None or not self._near.asked(message.address):
            return None
        if incoming.reply_to is not None:
            return ELSEWHERE
        return TOO_EARLY if self._near.post.written_before_card(message.address, message.message_id) else None

    async def _deliver(self, message: InboundMessage) -> None:
        try:
            await self._near.deliver(message)
        except Exception:  # noqa: BLE001 - an edge: it does not come again, so whatever is wrong with it ends here
            _log.exception("a message of %s was not handed on", message.address.channel)
            await self._settle(message, BROKEN)

    async def _settle(self, message: InboundMessage, said: str) -> None:
        """Deal with it by a sentence; in silence if there is none to say, or nobody waits for one (ERR-02)."""
        aloud = bool(said) and message.trigger is Trigger.USER
        await self._near.post.put(
            OutboundMessage(
                address=message.address,
                text=said if aloud else "",
                kind=Kind.NOTICE if aloud else Kind.END,
                failed=True,
                settles=(message.ticket,),
            )
        )
        self.eased()


def _not_counted(message: InboundMessage, incoming: Incoming, why: str) -> InboundMessage:
    """It goes to the model, which must not take it for an answer either."""
    speaker = speaking(incoming.name, incoming.sender) if incoming.is_group else ""
    note = f"[{NOT_COUNTED.format(text=excerpt(message), why=why)}]"
    return replace(message, text=composed(incoming.text, (note,), speaker))


def _is_answer(text: str) -> bool:
    """Whether it is what a button of a card stands for: a slash command that names one."""
    word = understood(text)
    return word is not None and bool(word.card)


def _last_words(kept: Kept, settings: ChannelSettings | None) -> str | None:
    """What is said in place of trying it once more, empty for nothing; None: it is tried.

    Whom the owner has put out since then is not obeyed any more. By which other id somebody was let in is not known. An
    "OK" with which a turn began was no answer to a card, but a message like any other.
    """
    message = kept.message
    refusal = Refusal.GROUPS_OFF if settings is None else judge(_heard(message), settings).refusal
    if refusal is not None:
        _log.warning("a message of %s is not taken up again: %s", message.address.channel, refusal)
        return ASK_AGAIN.format(text=excerpt(message)) if refusal is Refusal.STRANGER else ""
    if kept.tries >= MAX_TRIES:
        return GIVEN_UP.format(tries=kept.tries, text=excerpt(message))
    if message.trigger is Trigger.USER and not kept.tries and understood(message.text) is not None:
        return VOID.format(text=excerpt(message))
    return None


def _heard(message: InboundMessage) -> Incoming:
    return Incoming(
        chat_id=message.address.chat_id,
        message_id=message.message_id,
        sender=message.sender,
        is_group=message.is_group,
        addressed=message.trigger is Trigger.USER,
    )
