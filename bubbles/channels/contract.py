"""What a channel is. Open this file first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bubbles.bus import InboundMessage, OutboundMessage

Deliver = Callable[[InboundMessage], Awaitable[None]]
"""Hand a message on. It returns once the message is accepted, not once it is answered."""


class Channel(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, deliver: Deliver) -> None:
        """Move messages until cancelled; only those of senders on the allow-list are delivered (CHAN-02)."""
        ...

    async def send(self, message: OutboundMessage) -> None:
        """Send one message; those to one address keep their order."""
        ...
