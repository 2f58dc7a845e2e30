"""Whom the gateway turned away: so that its owner finds the id to allow. In memory, bounded, and nobody is answered."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from bubbles.channels.access import Refusal
from bubbles.channels.contract import Incoming
from bubbles.controller.approvals.card import shown_line
from bubbles.gateway.wording import MAX_ID, shown_name

MAX_KEPT = 20
"""People of one channel."""
QUIET_S = 3_600.0
"""One line in the log for each sender in this time."""
MAX_QUIET = 1_000
"""Senders of one channel that are remembered for it. Are there more in that time, their lines are left out."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Somebody who was turned away. Texts are fit for one line of a terminal."""

    id: str
    """What would have to be in ``allow_from``."""
    name: str
    at: float
    """Seconds since 1970, of the last time."""
    why: Refusal


class TurnedAway:
    """Of one channel."""

    def __init__(self, channel: str, clock: Callable[[], float]) -> None:
        self._channel = channel
        self._clock = clock
        self._visitors: OrderedDict[tuple[str, Refusal], Visitor] = OrderedDict()
        self._told: OrderedDict[str, float] = OrderedDict()

    @property
    def newest(self) -> tuple[Visitor, ...]:
        """Each once for each reason, newest first."""
        return tuple(reversed(self._visitors.values()))

    def add(self, incoming: Incoming, why: Refusal) -> None:
        sender = incoming.sender[:MAX_ID]
        visitor = Visitor(id=shown_line(sender), name=shown_name(incoming.name), at=self._clock(), why=why)
        self._visitors.pop((sender, why), None)
        self._visitors[sender, why] = visitor
        if len(self._visitors) > MAX_KEPT:
            del self._visitors[self._least()]
        if why is Refusal.STRANGER and self._is_due(sender, visitor.at):
            _log.warning(
                "%s: %s wrote and is not let in: if you know them, put '%s' into channels.%s.allowFrom and start anew",
                self._channel,
                visitor.name or "somebody",
                visitor.id,
                self._channel,
            )

    def _least(self) -> tuple[str, Refusal]:
        """The oldest, those first who only talk in a group: they must not hide who wants to be let in."""
        chatter = (key for key in self._visitors if key[1] is not Refusal.STRANGER)
        return next(chatter, next(iter(self._visitors)))

    def _is_due(self, sender: str, now: float) -> bool:
        while self._told and now - next(iter(self._told.values())) >= QUIET_S:
            self._told.popitem(last=False)
        if sender in self._told or len(self._told) >= MAX_QUIET:
            return False
        self._told[sender] = now
        return True
