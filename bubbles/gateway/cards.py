"""Approval cards in chats (APPR-01): the same text as at a terminal, as code, so that no platform makes anything of it.

What a button or a word answers goes the way of all messages. Here a card is only shown, and marked as closed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping

from bubbles.bus import Address, Origin
from bubbles.channels.contract import Channel, ChannelError
from bubbles.channels.split import split
from bubbles.controller.approvals.broker import TIMEOUT_S
from bubbles.controller.approvals.card import how_to_answer, how_to_answer_in_group, render, shown_line
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.errors import BubblesError
from bubbles.gateway.post import Post
from bubbles.gateway.wording import IN_IDS, MAX_ID

WIDTH = 60
"""Columns; a telephone shows fewer, and breaks rows by itself."""
MAX_PIECES = 4
"""Messages that a card may take. Nobody reads a longer one to its end."""
CLOSE_S = 1.8
"""The broker waits for two seconds."""
MAX_COMMAND = 60
MIN_FENCE = 3
SAID = {
    Outcome.APPROVED: "Approved",
    Outcome.DENIED: "Declined",
    Outcome.UNCLEAR: "Declined: the answer was none",
    Outcome.TIMED_OUT: "Declined: nobody answered in time",
    Outcome.NOBODY: "Declined: nobody could be asked",
    Outcome.NOT_SHOWN: "Declined: it could not be shown",
    Outcome.CANCELLED: "Not run: the turn was ended",
    Outcome.LOST: "Not run: the program was restarted",
}

_log = logging.getLogger(__name__)


class CardTooLongError(BubblesError):
    """It would not be read to its end."""


class ChatApprover:
    """The broker's ``Approver`` for the chats of one channel. All calls belong to one event loop."""

    def __init__(self, post: Post, channel: Channel, in_group: Callable[[Address], bool] = lambda _: False) -> None:
        self._post = post
        self._channel = channel
        self._in_group = in_group
        self._shown: dict[str, tuple[Address, str]] = {}
        """By card: its last message, which has the buttons."""

    async def show(self, card: ApprovalCard, origin: Origin) -> None:
        """Returns once the platform has all of it. Raises CardTooLongError, SendError."""
        timeout_s = TIMEOUT_S if card.timeout_s is None else card.timeout_s
        how = how_to_answer_in_group if self._in_group(origin.address) else how_to_answer
        text = f"{fenced(render(card, WIDTH))}\n{how(card, timeout_s)}"
        traits = self._channel.traits
        pieces = len(split(text, traits.max_text, traits.measure))
        if pieces > MAX_PIECES:
            raise CardTooLongError(f"Card {card.id} would take {pieces} messages, {MAX_PIECES} are the most.")
        message_id = await self._post.card(origin.address, text, card.id)
        if message_id is not None:
            self._shown[card.id] = (origin.address, message_id)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        """Its buttons go, where the platform can change a message. That it cannot just now does not matter."""
        place = self._shown.pop(card.id, None)
        if place is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._post.retouch(*place, closing_line(card, answer))
        except (ChannelError, TimeoutError) as error:
            _log.warning("%s: card %s is not marked as closed: %s", self._channel.name, card.id, error)


def chat_approvers(
    post: Post, channels: Mapping[str, Channel], in_group: Callable[[Address], bool] = lambda _: False
) -> Callable[[Origin], ChatApprover | None]:
    """The broker's ``approver_for``: None where no person is there to be asked."""
    approvers = {name: ChatApprover(post, channel, in_group) for name, channel in channels.items()}

    def approver_for(origin: Origin) -> ChatApprover | None:
        return approvers.get(origin.address.channel) if origin.trigger.by_person else None

    return approver_for


def fenced(text: str, least: int = MIN_FENCE) -> str:
    """As a block of code that nothing in ``text`` can end."""
    fence = "`" * _ticks(text, least)
    return f"{fence}\n{text}\n{fence}"


def closing_line(card: ApprovalCard, answer: Answer) -> str:
    """What stands in the place of a card that is closed: how it ended, by whom, and what it was about."""
    by = f" by <@{IN_IDS.sub('_', answer.by[:MAX_ID])}>" if answer.by else ""
    whole = shown_line(" ".join(card.command.split()))
    command = whole if len(whole) <= MAX_COMMAND else f"{whole[:MAX_COMMAND].rstrip()}…"
    tick = "`" * _ticks(command, 1)
    return f"{SAID[answer.outcome]}{by} [{shown_line(card.id)}]: {tick} {command} {tick}"


def _ticks(text: str, least: int) -> int:
    return max([least, *(len(run) + 1 for run in re.findall("`+", text))])
