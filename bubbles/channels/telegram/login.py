"""Who a token is of, and who writes to that bot: for the one who sets it up. Nothing that was written is used up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bubbles.channels.telegram import updates
from bubbles.channels.telegram.channel import opened, signed_in
from bubbles.channels.telegram.polling import AT_ONCE, asked
from bubbles.channels.telegram.updates import Me, Seen

if TYPE_CHECKING:
    from bubbles.channels.telegram.wire import Wire
    from bubbles.config.channels import TelegramSettings

POLL_S = 10
LATE_S = 15.0
LOOK_S = 1.0
"""Between two looks at what waits, where something does: to wait for more, one would have to take it."""


async def whose(settings: TelegramSettings) -> Me:
    """The bot of this token. Raises ChannelError."""
    async with await opened(settings) as wire:
        return await signed_in(wire)


class Newcomers:
    """Those who write to the bot alone, from the first look on: what waits already may be of anybody, and is passed
    over. It stays where it is, for the gateway; only if it is more than one request shows, it is given up.
    """

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._known: set[int] | None = None
        self._offset: int | None = None

    async def next(self, within_s: float) -> Seen | None:
        """The next one; None if nobody came in that time. Raises ChannelError; SecondPollerError for a gateway."""
        async with await opened(self._settings) as wire:
            try:
                async with asyncio.timeout(within_s):
                    return await self._next(wire)
            except TimeoutError:
                return None

    async def _next(self, wire: Wire) -> Seen | None:
        if self._known is None:
            batch = await asked(wire.call, None, 0, LATE_S)
            self._known = {update["update_id"] for update in batch}
            if len(batch) >= AT_ONCE:
                self._offset = max(self._known) + 1
        waits = False
        while True:
            poll_s = 0 if waits else POLL_S
            batch = await asked(wire.call, self._offset, poll_s, poll_s + LATE_S)
            for update in batch:
                if update["update_id"] not in self._known:
                    self._known.add(update["update_id"])
                    if (person := _alone(update)) is not None:
                        return person
            waits = bool(batch)
            await asyncio.sleep(LOOK_S if waits else 0)


def _alone(update: updates.Json) -> Seen | None:
    try:
        message = update["message"]
        return updates.author(message) if message["chat"]["type"] == "private" else None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
