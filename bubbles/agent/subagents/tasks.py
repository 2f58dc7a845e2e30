"""All tasks in the background of this program: begun, looked at, stopped, and their reports brought to where they
belong (TOOL-05).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bubbles.agent.contract import Arrival
from bubbles.agent.subagents import words
from bubbles.agent.subagents.contract import Assign, Held, Nudge, TaskRecord
from bubbles.agent.subagents.run import Came, Run
from bubbles.agent.subagents.shelf import Place, TaskShelf
from bubbles.bus import InboundMessage, Origin, Trigger
from bubbles.config.schema import TaskSettings
from bubbles.errors import BubblesError
from bubbles.sessions.contract import Author, History
from bubbles.sessions.history import completed
from bubbles.tools.services import ServiceError, TaskInfo

MAX_CHAIN = 5
"""Turns in a row that nobody but reports began. A turn after them begins no task: else one could go on for ever."""
MAX_RESULT = 200_000
"""Characters of a report that are kept."""
NESTED = "A task in the background begins no tasks: do it here."
ENDING = "The program is ending: nothing is begun any more."
CHAINED = (
    f"{MAX_CHAIN} reports of tasks have followed each other without anybody writing anything: no further task is begun "
    "now. Say what there is to say, and wait for the person."
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """What tasks need of the program while it runs."""

    group: asyncio.TaskGroup
    assign: Assign
    nudge: Nudge


class BackgroundTasks:
    """``Tasks`` for the tools, and what the dispatcher and turns need. All calls belong to one event loop."""

    def __init__(self, settings: TaskSettings, shelf: TaskShelf, held: Held) -> None:
        """``held`` gives a place to run, apart from those of turns: tasks never keep a conversation waiting."""
        self._settings = settings
        self._shelf = shelf
        self._held = held
        self._at: _At | None = None
        self._running: dict[str, dict[str, Run]] = {}
        self._ended: dict[str, dict[str, TaskRecord]] = {}
        """Of this process, and due: a nudge for each is on its way, or was."""
        self._chains: dict[str, int] = {}
        self._beginning = asyncio.Lock()

    @asynccontextmanager
    async def at_work(self, assign: Assign, nudge: Nudge) -> AsyncIterator[None]:
        """While the context lasts tasks can be begun; leaving it interrupts those that run."""
        group = asyncio.TaskGroup()
        await group.__aenter__()
        self._at = _At(group=group, assign=assign, nudge=nudge)
        try:
            yield
        finally:
            self._at = None
            for runs in self._running.values():
                for run in runs.values():
                    _cancel(run)
            await group.__aexit__(None, None, None)  # not told of an error: it would be wrapped in a group

    # Tasks, for the tools

    async def begin(self, task: str, label: str, origin: Origin) -> TaskInfo:
        if origin.task:
            raise ServiceError(NESTED)
        if self._settings.at_once == 0:
            raise ServiceError("tools.tasks.atOnce is 0: no tasks are begun here. Do it in this turn.")
        if self._chains.get(origin.session_key, 0) >= MAX_CHAIN:
            raise ServiceError(CHAINED)
        # Not to be cut in two: what has begun is known, and what is known has begun.
        return await completed(self._begin(task, label, origin))

    async def of(self, session_key: str) -> tuple[TaskInfo, ...]:
        running = {task.id: task for task in self.running(session_key)}
        records = await asyncio.to_thread(self._shelf.records, session_key, tuple(running))
        ended = self._ended.get(session_key, {})
        found = {record.id: ended.get(record.id, record).info for record in records}
        return tuple(sorted({**found, **running}.values(), key=lambda task: int(task.id[1:])))

    async def stop(self, session_key: str, task: str, *, told: bool = False) -> bool:
        run = self._running.get(session_key, {}).get(task)
        if run is None:
            return False
        run.stopped, run.told = True, told
        return _cancel(run)

    # For the dispatcher

    def running(self, session_key: str) -> tuple[TaskInfo, ...]:
        return tuple(run.info for run in self._running.get(session_key, {}).values())

    @property
    def count(self) -> int:
        """Of those that run, in all sessions."""
        return sum(map(len, self._running.values()))

    def due(self, session_key: str, task: str) -> bool:
        """Whether the conversation has not had the report of this task, which ended in this program."""
        return task in self._ended.get(session_key, {})

    # For turns

    async def opening(self, message: InboundMessage, origin: Origin, history: History) -> list[TaskRecord]:
        """Those whose reports are due when the turn of this message begins: for ``arrival``. The turn has the
        session's lock.
        """
        key = origin.session_key
        if not message.task:
            self.spoken(key)
        running = tuple(self._running.get(key, {}))
        records = await asyncio.to_thread(self._shelf.records, key, running, untold=True)
        ours = self._ended.get(key, {})
        for task in ours.keys() - {record.id for record in records}:
            self._forget(key, task)  # another program has told of it
        due = [ours.get(record.id, record) for record in records if record.id not in running]
        due = [record for record in due if record.due and self._fits(record, origin)]
        fresh = []
        for record in due:
            if _known(record, history):
                await self._told(key, record)  # the program ended before it could be marked
            else:
                fresh.append(record)
        if message.task and fresh:
            self._chains[key] = self._chains.get(key, 0) + 1
        return fresh

    def arrived(self, message: InboundMessage, origin: Origin) -> TaskRecord | None:
        """What a nudge that came during a turn stands for, if that is still due."""
        return self._ended.get(origin.session_key, {}).get(message.task)

    def spoken(self, session_key: str) -> None:
        """Somebody, or a job, has written."""
        self._chains.pop(session_key, None)

    def arrival(self, session_key: str, record: TaskRecord, author: Author) -> Arrival:
        async def written() -> None:
            await self._told(session_key, record)

        return Arrival(text=words.report(record), author=author, written=written)

    # Inner

    async def _begin(self, task: str, label: str, origin: Origin) -> TaskInfo:
        async with self._beginning:
            at = self._at
            if at is None:
                raise ServiceError(ENDING)
            running = self._running.setdefault(origin.session_key, {})
            if len(running) >= self._settings.at_once:
                raise ServiceError(
                    f"{len(running)} tasks run here already ({', '.join(running)}), and no more may: go on with "
                    "something else until one has ended, or stop one."
                )
            record, place = await self._created(task, label, origin)
            run = Run(record=record, place=place, origin=replace(origin, task=record.id), settings=self._settings)
            running[record.id] = run
            if self._at is None:  # the program began to end meanwhile
                await self._settle(run, run.cut_off())
                raise ServiceError(ENDING)
            run.work = at.group.create_task(self._work(run, at))
            at.group.create_task(self._follow(run, run.work, at))
            return run.info

    async def _created(self, task: str, label: str, origin: Origin) -> tuple[TaskRecord, Place]:
        def make(ident: str) -> TaskRecord:
            return TaskRecord(
                id=ident,
                label=label,
                task=task,
                channel=origin.address.channel,
                chat_id=origin.address.chat_id,
                sender=origin.sender,
                trigger=origin.trigger,
                begun=datetime.now(UTC).isoformat(timespec="milliseconds"),
            )

        try:
            return await asyncio.to_thread(self._shelf.create, origin.session_key, make)
        except (OSError, BubblesError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ServiceError(f"The task cannot be written down ({why}), so it was not begun.") from error

    async def _work(self, run: Run, at: _At) -> Came:
        async with self._held(run.origin):
            return await run.go(at.assign)

    async def _follow(self, run: Run, work: asyncio.Task[Came], at: _At) -> None:
        """To its end, whatever that is. Never cancelled while the program goes on."""
        await asyncio.wait({work})
        came = run.cut_off() if work.cancelled() else work.result()
        record = await self._settle(run, came)
        if record.due and not run.stopped and self._at is not None:
            trigger = Trigger.TASK if record.trigger.by_person else record.trigger
            await at.nudge(
                InboundMessage(
                    address=record.address,
                    sender=record.sender,
                    text=words.ended(record),
                    trigger=trigger,
                    session_key=run.origin.session_key,
                    task=record.id,
                )
            )

    async def _settle(self, run: Run, came: Came) -> TaskRecord:
        """Write down how it ended; from then on its report is due."""
        key, record = run.origin.session_key, run.ended((came[0], came[1][:MAX_RESULT]))

        def write() -> None:
            try:
                self._shelf.save(key, record)
            except OSError as error:
                _log.warning("how task %s of session %s ended is not on the disk: %s", record.id, key, error)
            finally:
                run.place.lock.release()

        await completed(asyncio.to_thread(write))
        runs = self._running.get(key, {})
        runs.pop(record.id, None)
        if not runs:
            self._running.pop(key, None)
        if record.due:
            self._ended.setdefault(key, {})[record.id] = record
        return record

    def _fits(self, record: TaskRecord, origin: Origin) -> bool:
        """Whether a turn of this origin is one that its report belongs to.

        One of this program comes where it was begun, by a nudge of its own if need be. What an earlier one left goes
        to the next turn of a person, or of such a job as began it: there may never be another in the same chat.
        """
        alike = _alike(record.trigger, origin.trigger)
        if self.due(origin.session_key, record.id):
            return alike and record.address == origin.address
        return alike or origin.trigger.by_person

    async def _told(self, key: str, record: TaskRecord) -> None:
        try:
            await asyncio.to_thread(self._shelf.tell, key, record.id)
        except OSError as error:  # the history is what counts: it is recognised there
            _log.warning("that task %s of session %s was reported is not on the disk: %s", record.id, key, error)
        self._forget(key, record.id)

    def _forget(self, key: str, task: str) -> None:
        ended = self._ended.get(key, {})
        ended.pop(task, None)
        if not ended:
            self._ended.pop(key, None)


def _alike(one: Trigger, other: Trigger) -> bool:
    return one.by_person is other.by_person if one.by_person else one is other


def _cancel(run: Run) -> bool:
    return run.work is not None and run.work.cancel()


def _known(record: TaskRecord, history: History) -> bool:
    """Whether the history has its report: it then begins as none but it does, and no person wrote it."""
    head = words.head(record)
    return any(
        unit.author in (Author.JOB, Author.PROGRAM) and unit.messages[0].text.startswith(head) for unit in history.units
    )
