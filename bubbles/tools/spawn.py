"""Begins tasks in the background, looks at them and stops them (TOOL-05)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bubbles.bus import Origin
from bubbles.controller.approvals.card import shown_line
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.files import quoted
from bubbles.tools.services import ServiceError, TaskInfo, Tasks, TaskState

MAX_TASK = 32_000
MAX_LABEL = 60


class SpawnArgs(Args):
    task: Annotated[str, Field(min_length=1, max_length=MAX_TASK)]
    """All that must be known to do it, as to somebody who was not here: what, where, and what to report."""
    label: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
    """A few words by which the person knows it."""


class Spawn:
    name = "spawn"
    description = (
        "Begin a task in the background: it is done by another you, with the same tools in the same directories, who "
        "sees nothing of this conversation. For what takes long and can be done apart. Its report reaches you as a "
        "message by itself: do not wait for it and do not ask again and again; go on, or end your turn and say what "
        "is under way."
    )
    args = SpawnArgs

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def offered(self, origin: Origin) -> bool:
        return not origin.task

    def hint(self, args: SpawnArgs) -> str:
        return f"spawn({quoted(args.label)})"

    async def run(self, args: SpawnArgs, origin: Origin) -> ToolResult:
        label = shown_line(" ".join(args.label.split()))[: 2 * MAX_LABEL]
        if not args.task.strip() or not label:
            raise ToolError("task and label must say something: nothing was begun.")
        try:
            begun = await self._tasks.begin(args.task, label, origin)
        except ServiceError as error:
            raise ToolError(str(error)) from None
        return ToolResult(text=f"Task {begun.id} has begun. Its report will reach you by itself.")


class BackgroundArgs(Args):
    action: Literal["list", "result", "stop"] = "list"
    """list: all tasks. result: how far one is, or all of what came of it. stop: end it."""
    id: Annotated[str, Field(max_length=20)] = ""
    """Of the task, for result and stop."""


class Background:
    name = "background"
    description = (
        "Look at tasks that spawn began, or stop one. There is no need to ask whether one has ended: its report comes "
        "by itself."
    )
    args = BackgroundArgs

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def offered(self, origin: Origin) -> bool:
        return not origin.task

    def hint(self, args: BackgroundArgs) -> str:
        return f"background({args.action}{f', {args.id}' if args.id else ''})"

    async def run(self, args: BackgroundArgs, origin: Origin) -> ToolResult:
        tasks = await self._tasks.of(origin.session_key)
        if args.action == "list":
            return ToolResult(text="\n".join(map(told, tasks)) or "There are no tasks.")
        found = next((task for task in tasks if task.id == args.id), None)
        if found is None:
            there = ", ".join(task.id for task in tasks) or "none"
            raise ToolError(f"No task {args.id!r} is known in this session; there are: {there}.")
        if args.action == "result":
            return ToolResult(text=f"{told(found)}\n\n{found.result}" if found.result else told(found))
        if not await self._tasks.stop(origin.session_key, found.id, told=True):
            elsewhere = found.state is TaskState.RUNNING
            raise ToolError(f"{'It runs in another program' if elsewhere else 'It has ended'}: {told(found)}")
        return ToolResult(text=f"Task {found.id} ends now. What it did so far stays done.")


def told(task: TaskInfo) -> str:
    """On one line, for the model and for people."""
    how = "runs" if task.state is TaskState.RUNNING else str(task.state)
    return f"{task.id} {task.label}: {how}, {spent(task)}"


def spent(task: TaskInfo) -> str:
    calls = f"{task.calls} call{'' if task.calls == 1 else 's'}"
    return f"{task.running_s:,.0f} s, {calls}, {task.tokens:,} tokens"
