"""What tools need of the chats around them: writing to one (TOOL-04), and who is in one (TOOL-08)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from bubbles.bus import Address, Kind, Origin, OutboundMessage
from bubbles.channels.access import EVERYBODY
from bubbles.channels.contract import Channel, ChannelError
from bubbles.config.channels import ChannelSettings
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.post import Post
from bubbles.tools.services import Member, ServiceError

FRESH_S = 60.0
"""How long the members of a chat are taken to be the same."""
MAX_CHATS = 100
PATIENCE_S = 20.0
"""For a platform to say who is in a chat."""
MAX_SHOWN = 40


class ChatCourier:
    """``tools.services.Courier``. ``access`` holds the settings of the channels that are on."""

    def __init__(self, post: Post, ledger: Ledger, access: Mapping[str, ChannelSettings]) -> None:
        self._post = post
        self._ledger = ledger
        self._access = access

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self._access)

    async def send(self, address: Address, text: str, origin: Origin) -> None:
        del origin
        if address.channel not in self._access:
            on = f"take one of {', '.join(self._access)}" if self._access else "there is none"
            raise ServiceError(f"The channel {address.channel[:MAX_SHOWN]!r} is not on: {on}.")
        if not self._is_let_in(address):
            raise ServiceError(
                f"Nobody who may use the assistant has written in the chat {address.chat_id[:MAX_SHOWN]!r} of "
                f"{address.channel}, so nothing is sent there: let them write first, or look for a mistake in the id."
            )
        await self._post.put(OutboundMessage(address=address, text=text, kind=Kind.REPLY))

    def _is_let_in(self, address: Address) -> bool:
        """``*`` lets everybody write to the assistant; it does not let the assistant write to everybody."""
        allowed = self._access[address.channel].allow_from
        if address.chat_id != EVERYBODY and address.chat_id in allowed:
            return True
        return self._ledger.known_chat(address) and not is_put_out(address, self._ledger, self._access)


def is_put_out(address: Address, ledger: Ledger, access: Mapping[str, ChannelSettings]) -> bool:
    """Whether it is the chat of one person who was let in once and is not any more (CHAN-02). Of a channel that is off
    nobody knows. By which other id somebody was let in is not known.
    """
    chat, settings = ledger.chat(address), access.get(address.channel)
    if chat is None or settings is None or chat.is_group:
        return False
    return not {EVERYBODY, chat.sender, address.chat_id} & set(settings.allow_from)


class ChatMembers:
    """``tools.services.Members``. All calls belong to one event loop."""

    def __init__(self, channels: Mapping[str, Channel], clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds."""
        self._channels = channels
        self._clock = clock
        self._known: OrderedDict[Address, tuple[float, tuple[Member, ...] | None]] = OrderedDict()

    async def of(self, address: Address) -> tuple[Member, ...] | None:
        found = self._known.get(address)
        if found is not None and self._clock() - found[0] < FRESH_S:
            return found[1]
        channel = self._channels.get(address.channel)
        if channel is None:
            raise ServiceError(f"The channel {address.channel[:MAX_SHOWN]!r} is not on: nobody knows who is there.")
        members = await _members(channel, address.chat_id)
        self._known.pop(address, None)
        self._known[address] = (self._clock(), members)
        if len(self._known) > MAX_CHATS:
            self._known.popitem(last=False)
        return members


async def _members(channel: Channel, chat_id: str) -> tuple[Member, ...] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            roster = await channel.members(chat_id)
    except TimeoutError:
        raise ServiceError(f"{channel.name} did not say within {PATIENCE_S:g} seconds who is here.") from None
    except ChannelError as error:
        raise ServiceError(f"{channel.name} does not say who is here: {error}") from None
    if roster is None:
        return None
    return tuple(Member(id=person.id, names=person.names) for person in roster.people)
