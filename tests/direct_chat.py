"""A person who talks to a dispatcher without a gateway between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage, Trigger

Deliver = Callable[[InboundMessage], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class DirectChat:
    """``say`` is a person who writes; what comes back is in ``sent``, and ``heard`` waits for it."""

    name: str = "fake"
    sent: list[OutboundMessage] = field(default_factory=list)
    _deliver: asyncio.Future[Deliver] | None = None
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self, deliver: Deliver) -> None:
        self._connected().set_result(deliver)
        await asyncio.Event().wait()

    async def send(self, message: OutboundMessage) -> None:
        async with self._news:
            self.sent.append(message)
            self._news.notify_all()

    async def say(
        self,
        text: str,
        *,
        chat: str = "1",
        sender: str = "ann",
        is_group: bool = False,
        trigger: Trigger = Trigger.USER,
    ) -> None:
        deliver = await asyncio.shield(self._connected())
        address = Address(channel=self.name, chat_id=chat)
        await deliver(InboundMessage(address=address, sender=sender, text=text, is_group=is_group, trigger=trigger))

    async def heard(
        self, count: int = 1, *, chat: str = "1", kinds: tuple[Kind, ...] = (Kind.REPLY, Kind.NOTICE)
    ) -> list[str]:
        """The texts of these kinds in a chat, once there are ``count``."""

        def there() -> list[str]:
            return [said.text for said in self.sent if said.address.chat_id == chat and said.kind in kinds]

        async with self._news:
            await self._news.wait_for(lambda: len(there()) >= count)
            return there()

    def _connected(self) -> asyncio.Future[Deliver]:
        if self._deliver is None:
            self._deliver = asyncio.get_running_loop().create_future()
        return self._deliver
