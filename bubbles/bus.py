"""What travels between channels and turns: addresses, messages, and who a turn speaks for (SPEC 5, 6).

An ``Origin`` is carried with every call, so that nothing keeps it as state.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

CLI = "cli"
"""The channel of the terminal: no chat, and nobody can write to it from elsewhere."""


class Trigger(enum.StrEnum):
    """What began a turn."""

    USER = "user"
    """A message of a person who may use the assistant."""
    CRON = "cron"
    HEARTBEAT = "heartbeat"
    TASK = "task"
    """What came of a task in the background of a turn that a person began: that person is there to be asked."""
    BYSTANDER = "bystander"
    """A message of somebody in a group who may not use the assistant, or who did not speak to it."""

    @property
    def by_person(self) -> bool:
        """Whether a person began it who may use the assistant: who waits for what comes of it, and can be asked."""
        return self in (Trigger.USER, Trigger.TASK)


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
    task: str = ""
    """Id of the task in the background that makes the call (TOOL-05); empty for a turn's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message that a channel has let in: its sender is on the allow-list (CHAN-02)."""

    address: Address
    sender: str
    text: str
    message_id: str = ""
    """The platform's own id, or empty."""
    is_group: bool = False
    """CHAN-04."""
    trigger: Trigger = Trigger.USER
    reply_to: str | None = None
    """Id of the approval card whose message this one replies to, on platforms that have replies (APPR-03)."""
    session_key: str | None = None
    """The session that is meant, where the sender says so (the command line); else it follows from the address."""
    task: str = ""
    """Id of a task in the background of this session that has ended: its report is in the session's state, and ``text``
    is a sentence about it for people (TOOL-05). Empty for every message that somebody wrote."""
    ticket: str = ""
    """By which whoever keeps it knows it again: it is settled once an ``OutboundMessage`` has it in ``settles``. Empty
    for what nobody keeps."""
    resumed: bool = False
    """It was taken by an earlier process of this program, which ended before it was settled (OPS-02)."""


class Kind(enum.StrEnum):
    """What an outbound message is."""

    REPLY = "reply"
    PROGRESS = "progress"
    """Text that the model wrote on the way; sent if ``channels.send_progress`` (CORE-04)."""
    HINT = "hint"
    """A tool that is about to run; sent if ``channels.send_tool_hints``."""
    NOTICE = "notice"
    """Of the program, not of the model: an error, a limit, the answer to a slash command."""
    TASK = "task"
    """A task in the background has ended, whatever else goes on just now. Only the command line gets it: elsewhere the
    reply to it says so."""
    WORKING = "working"
    """A turn has begun that a person waits for in a chat; carries no text, and settles nothing yet: its ``END``, which
    has the same ticket among others, follows."""
    END = "end"
    """The turn, or whatever else became of a message, is over; carries no text. The command line waits for it
    (ERR-04); in a chat nothing is seen of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage:
    address: Address
    text: str
    kind: Kind = Kind.REPLY
    failed: bool = False
    """What was asked for was not done: of a notice, and of the end of a turn."""
    settles: tuple[str, ...] = ()
    """Tickets of the messages that this answers: with it, they are dealt with."""
