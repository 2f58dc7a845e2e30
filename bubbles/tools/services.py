"""What some tools need of the program around them. A program without it does not offer the tool.

The terminal has no chats to write to; the gateway brings all of these.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from bubbles.bus import Address, Origin
from bubbles.errors import BubblesError


class ServiceError(BubblesError):
    """What was asked for was not done; one sentence for the model that says why, and what to do instead."""


class Courier(Protocol):
    """Writes to chats (TOOL-04)."""

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of those that are on now."""
        ...

    async def send(self, address: Address, text: str, origin: Origin) -> None:
        """Returns once the message is on its way: queued where a crash does not lose it. Raises ``ServiceError`` for a
        channel that is not on, or a chat that its owner has not let in.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Somebody in a group, as the channel knows them. Texts are the platform's: anybody may have chosen them."""

    id: str
    """What stands in ``<@id>`` (CHAN-06)."""
    names: tuple[str, ...]
    """Display name first, then others: a user name, a nickname in this group."""


class Members(Protocol):
    """Who is in a chat (TOOL-08)."""

    async def of(self, address: Address) -> tuple[Member, ...] | None:
        """None: it is no group. Raises ``ServiceError`` if the platform does not say."""
        ...


class TaskState(enum.StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    LIMIT = "limit"
    """One of its bounds was reached: time, tokens or steps."""
    INTERRUPTED = "interrupted"
    """The program ended in the middle; found at the session's next turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task in the background, as it is now."""

    id: str
    """Such as ``t3``; unique in its session."""
    label: str
    state: TaskState
    running_s: float
    calls: int
    tokens: int
    result: str = ""
    """Its last words, or why there are none; empty while it runs."""


class Tasks(Protocol):
    """Tasks in the background: sub-agents (TOOL-05)."""

    async def begin(self, task: str, label: str, origin: Origin) -> TaskInfo:
        """Starts one. Raises ``ServiceError`` when there are enough, or the origin is a task itself."""
        ...

    async def of(self, session_key: str) -> tuple[TaskInfo, ...]:
        """Those that run and the last few that ended, oldest first."""
        ...

    async def stop(self, session_key: str, task: str, *, told: bool = False) -> bool:
        """Whether it ran, and now ends. ``told``: the model knows of it by this very call."""
        ...
