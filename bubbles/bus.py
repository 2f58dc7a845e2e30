"""Who a turn speaks for: carried with every call, so that nothing keeps it as state (SPEC 5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Trigger(enum.StrEnum):
    """What began a turn."""

    USER = "user"
    """A message of a person who may use the assistant."""
    CRON = "cron"
    HEARTBEAT = "heartbeat"
    BYSTANDER = "bystander"
    """A message of somebody in a group who may not use the assistant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A place where messages go: equal addresses are one conversation."""

    channel: str
    chat_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a call comes from. A fact of the turn, never of the process or the session."""

    session_key: str
    address: Address
    sender: str
    """The channel's own id of the person, or the name of the job."""
    trigger: Trigger = Trigger.USER
