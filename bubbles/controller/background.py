"""Puts the end of what runs in the background on record."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from bubbles.controller.timeline.events import Ending, Subject
from bubbles.controller.timeline.writing import Timeline
from sandbox_backends.contract import BackgroundProcess
from sandbox_backends.errors import SandboxError

HOLD_S = 12 * 3600.0
"""How long a background process keeps its sandbox open while nothing else is done there."""


class BackgroundWatch:
    """Use as an async context, entered before the sandboxes and so left after them: what runs on ends with its sandbox
    at the latest, and leaving the watch waits until each end is on record.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not told of the error: it would cancel what is being recorded, and wrap the error in a group.
        await self._tasks.__aexit__(None, None, None)

    def follow(self, subject: Subject, process: BackgroundProcess, hold: AsyncExitStack) -> None:
        """Record the end of ``process`` when it comes. ``hold`` keeps its sandbox from being closed as idle: it is left
        when the process has ended, or after ``HOLD_S``.
        """
        self._tasks.create_task(self._record(subject, process, hold))

    async def _record(self, subject: Subject, process: BackgroundProcess, hold: AsyncExitStack) -> None:
        try:
            async with hold:
                result = await process.wait(HOLD_S)
            if result is None:
                result = await process.wait()
        except SandboxError as error:
            await self._timeline.finished(subject, Ending(outcome="error", error=str(error)))
            return
        if result is not None:
            ending = Ending(outcome=str(result.outcome), exit_code=result.exit_code, duration_s=result.duration_s)
            await self._timeline.finished(subject, ending)
