"""Services in memory, for tests of what stands above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bubbles.bus import Address, Origin
from bubbles.tools.services import Member, ServiceError


@dataclass(slots=True)
class MemoryCourier:
    """``Courier``: what was sent is in ``sent``; only ``let_in`` may be written to."""

    channels: tuple[str, ...] = ("telegram",)
    let_in: frozenset[Address] = frozenset()
    sent: list[tuple[Address, str]] = field(default_factory=list)

    async def send(self, address: Address, text: str, origin: Origin) -> None:
        del origin
        if address not in self.let_in:
            raise ServiceError(f"The chat {address.chat_id[:40]!r} of {address.channel} is not let in.")
        self.sent.append((address, text))


@dataclass(slots=True)
class MemoryMembers:
    """``Members``: a chat that is not in ``groups`` is private."""

    groups: Mapping[Address, tuple[Member, ...]] = field(default_factory=dict)

    async def of(self, address: Address) -> tuple[Member, ...] | None:
        if address.chat_id == "down":
            raise ServiceError("The platform does not say who is here.")
        return self.groups.get(address)
