"""What a task in the background is, and what it works with. Open this file first.

A task is one turn of the agent loop in the parent session's place, with a history of its own. All there is of it lies
in ``tasks/<id>/`` of the session's state directory:

``task.json``      the record: what was asked, for whom, and how it ended
``session.jsonl``  its own history
``lock``           held by the process in which it runs: who finds the record of a running task without it knows that
                   the program ended in the middle
``told``           there once the conversation was told how it ended

What came of a task is *due* until the session's own history has it. It is written there under the session's lock, and
only then marked as told; after a crash between the two it is recognised in the history. So it arrives exactly once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from bubbles.agent.limits import Limits, Model
from bubbles.bus import Address, InboundMessage, Origin, Trigger
from bubbles.tools.registry import Toolbox
from bubbles.tools.services import TaskInfo, TaskState

NOT_IN_TASKS = ("spawn", "background", "todo", "message", "cron", "find_person")
"""Tools of the conversation: a task begins no tasks, and reaches people by its report alone."""


class TaskRecord(BaseModel):
    """``task.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    label: str
    task: str
    channel: str
    chat_id: str
    sender: str
    trigger: Trigger
    """Of the turn that began it."""
    begun: str
    """UTC, ISO 8601."""
    state: TaskState = TaskState.RUNNING
    running_s: float = 0.0
    calls: int = 0
    tokens: int = 0
    result: str = ""
    told: bool = False
    """The conversation's history has it, or whoever stopped it knows."""

    @property
    def address(self) -> Address:
        return Address(channel=self.channel, chat_id=self.chat_id)

    @property
    def due(self) -> bool:
        return self.state is not TaskState.RUNNING and not self.told

    @property
    def info(self) -> TaskInfo:
        return TaskInfo(
            id=self.id,
            label=self.label,
            state=self.state,
            running_s=self.running_s,
            calls=self.calls,
            tokens=self.tokens,
            result=self.result,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a task works with: what is in force for its session when it begins to run."""

    prompt: str
    """The session's own; what a task must know besides is added to it."""
    model: Model
    tools: Toolbox
    limits: Limits
    redact: Callable[[str], str] = str


Assign = Callable[[Origin], Awaitable[Assignment]]
"""Raises as a turn's setup does."""
Held = Callable[[Origin], AbstractAsyncContextManager[None]]
"""A place to run, waited for: how many tasks of all sessions run at a time."""
Nudge = Callable[[InboundMessage], Awaitable[None]]
"""Tells the dispatcher that a task has ended."""
