"""One task at work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bubbles.agent.contract import Arrival, TurnOutcome
from bubbles.agent.loop import AgentLoop
from bubbles.agent.subagents import words
from bubbles.agent.subagents.contract import Assign, Assignment, TaskRecord
from bubbles.agent.subagents.meter import MeteredProvider, SpentError
from bubbles.agent.subagents.shelf import Place, opened
from bubbles.bus import Origin
from bubbles.config.schema import TaskSettings
from bubbles.controller.places import SandboxError
from bubbles.errors import BubblesError
from bubbles.providers.contract import ToolCall, UserMessage
from bubbles.sessions.contract import Author, TurnEnd
from bubbles.tools.contract import ToolResult
from bubbles.tools.services import TaskInfo, TaskState

MAX_LAST = 4_000
"""Characters of its last words that are kept while it runs."""
NEARLY = 0.85
"""Of its time: it is told to come to an end."""
BROKEN = "It broke off for an internal reason, which is in the log."

_log = logging.getLogger(__name__)

Came = tuple[TaskState, str]
"""How it ended, and what came of it."""


@dataclass(slots=True)
class Watch:
    """The ``TurnObserver`` of a task: nobody looks on, but it can be asked how far it is."""

    task: str
    calls: int = field(default=0, init=False)
    last: str = field(default="", init=False)
    """The end of what it said last."""
    _text: str = field(default="", init=False)

    def text(self, piece: str) -> None:
        self._text = (self._text + piece)[-MAX_LAST:]

    def withdrawn(self) -> None:
        self._text = ""

    def reply_ended(self) -> None:
        self.last, self._text = self._text.strip() or self.last, ""

    def tool(self, call: ToolCall, hint: str) -> None:
        del call, hint
        self.calls += 1

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None: ...
    def notice(self, sentence: str) -> None:
        _log.info("task %s: %s", self.task, sentence)


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A task of this process, while it runs. ``record`` is as it was when it began."""

    record: TaskRecord
    place: Place
    origin: Origin
    """Of its calls."""
    settings: TaskSettings
    watch: Watch = field(init=False)
    work: asyncio.Task[Came] | None = field(default=None, init=False)
    stopped: bool = field(default=False, init=False)
    told: bool = field(default=False, init=False)
    """Whoever stopped it was the model."""
    _meter: MeteredProvider | None = field(default=None, init=False)
    _since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(self.record.id)

    @property
    def running_s(self) -> float:
        """Since it got a place to run in."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def info(self) -> TaskInfo:
        return replace(
            self.record.info, running_s=self.running_s, calls=self.watch.calls, tokens=self._tokens, result=""
        )

    def ended(self, came: Came) -> TaskRecord:
        state, result = came
        return self.record.model_copy(
            update={
                "state": state,
                "result": result,
                "running_s": round(self.running_s, 3),
                "calls": self.watch.calls,
                "tokens": self._tokens,
                "told": self.told,
            }
        )

    async def go(self, assign: Assign) -> Came:
        """Until it ends by itself or at its bounds. Raises nothing but CancelledError."""
        self._since = time.monotonic()
        limit = asyncio.timeout(self.settings.timeout_s)
        try:
            async with limit:
                return self._came(await self._turn(await assign(self.origin)))
        except SpentError as error:
            return TaskState.LIMIT, words.with_last(f"It had to end: {error}.", self.watch.last)
        except Exception as error:  # noqa: BLE001 - an edge, as in dispatch: whatever a task raises is its own end
            if isinstance(error, TimeoutError) and limit.expired():
                why = f"It had to end: its time, {self.settings.timeout_s:,g} s, is used up."
                return TaskState.LIMIT, words.with_last(why, self.watch.last)
            return TaskState.FAILED, words.with_last(failure(error, self.record.id), self.watch.last)

    def cut_off(self) -> Came:
        """What came of it when it was cancelled."""
        if self.stopped:
            return TaskState.STOPPED, words.with_last("It was stopped before its end.", self.watch.last)
        return TaskState.INTERRUPTED, words.with_last("The program ended while it ran.", self.watch.last)

    async def _turn(self, assignment: Assignment) -> TurnOutcome:
        meter = self._meter = MeteredProvider(assignment.model.provider, self.settings.max_tokens)
        loop = AgentLoop(
            model=replace(assignment.model, provider=meter),
            tools=assignment.tools,
            limits=replace(assignment.limits, iterations=self.settings.max_iterations),
            redact=assignment.redact,
        )
        async with opened(self.place) as history:
            return await loop.run(
                history,
                UserMessage(text=self.record.task),
                author=Author.JOB,
                origin=self.origin,
                prompt=words.prompt(assignment.prompt, self.record.id),
                observer=self.watch,
                pending=_Reminder(self).pending,
            )

    def _came(self, outcome: TurnOutcome) -> Came:
        if outcome.error is not None:
            return TaskState.FAILED, words.with_last(words.no_answer(outcome.error), self.watch.last)
        return TaskState.DONE if outcome.end is TurnEnd.DONE else TaskState.LIMIT, outcome.text

    @property
    def _tokens(self) -> int:
        return 0 if self._meter is None else self._meter.spent

    @property
    def scarce(self) -> str | None:
        """What it has nearly used up."""
        if self._meter is not None and self._meter.scarce:
            return "tokens"
        return "time" if self.running_s >= NEARLY * self.settings.timeout_s else None


@dataclass(slots=True)
class _Reminder:
    """Tells a task once that it must come to an end, while it still can."""

    run: Run
    said: bool = False

    def pending(self) -> Sequence[Arrival]:
        if self.said or (what := self.run.scarce) is None:
            return ()
        self.said = True
        return (Arrival(text=words.WRAP_UP.format(what=what)),)


def failure(error: Exception, task: str) -> str:
    """For the model; what is not ours to say goes to the log."""
    if isinstance(error, BubblesError | SandboxError):
        _log.warning("task %s failed: %s", task, error)
        return f"It could not go on: {error}"
    _log.error("task %s failed", task, exc_info=error)
    return BROKEN
