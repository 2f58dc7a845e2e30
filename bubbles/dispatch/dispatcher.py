"""Takes messages in, runs turns, sends what comes of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, OutboundMessage, Trigger
from bubbles.controller.approvals.contract import Heard
from bubbles.controller.places import SandboxError
from bubbles.dispatch.contract import (
    Answers,
    Begun,
    CommandError,
    Commands,
    NoTasks,
    OutcomeObserver,
    Pending,
    Policy,
    RunningTasks,
    Send,
    Turns,
)
from bubbles.dispatch.notices import CLI, Notices, going_on, of_failure, of_provider
from bubbles.dispatch.observers import ChannelObserver, Unwatched
from bubbles.dispatch.slots import Slots
from bubbles.errors import BubblesError
from bubbles.sessions.contract import SessionBusyError, TurnEnd

MAX_WAITING = 50
"""Messages of one session that wait. A person who writes more is told so."""
MAX_OUTBOX = 1_000
FULL = f"{MAX_WAITING} messages wait here already: this one was not taken. Send it again later, or /stop."
WAITS = "A question waits above for OK or no; what you write besides comes after it."
STOPPED = "Stopped."
NOTHING_RUNS = "Nothing runs here."
STOP = "/stop"
EVERYTHING = "all"
BUSY_S = 60.0
BUSY_LOOK_S = 0.5
"""Between two tries to begin a turn of a session on which another program works."""
LAST_WORDS_S = 2.0
"""How long leaving waits for what is still to be sent."""

_log = logging.getLogger(__name__)

KeyOf = Callable[[InboundMessage], str]
ObserverFor = Callable[[Address], TurnObserver | None]
"""A way of its own to show a turn, such as a terminal's; None is the way of all channels."""


async def unkept(_ticket: str) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Whom the dispatcher works with."""

    key_of: KeyOf
    turns: Turns
    commands: Commands
    answers: Answers
    send: Send
    observer_for: ObserverFor = lambda _: None
    policy: Policy = field(default_factory=Policy)
    begun: Begun = unkept
    tasks: RunningTasks = field(default_factory=NoTasks)


@dataclass(slots=True, eq=False)
class _Worker:
    """One session's turns, one after the other."""

    waiting: deque[tuple[InboundMessage, Origin]] = field(default_factory=deque)
    turn: asyncio.Task[bool] | None = None
    tickets: list[str] = field(default_factory=list)
    """Of the messages that the running turn has taken."""
    stopped: bool = False
    """The first message that waits was stopped before its turn began."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Dispatcher:
    """Use as an async context; leaving it stops what runs. All calls belong to one event loop."""

    def __init__(self, wiring: Wiring, slots: Slots, clock: Callable[[], float] = time.monotonic) -> None:
        self._wiring = wiring
        self._slots = slots
        self._notices = Notices(clock)
        self._workers: dict[str, _Worker] = {}
        self._outbox: asyncio.Queue[OutboundMessage] = asyncio.Queue(MAX_OUTBOX)
        self._tasks = asyncio.TaskGroup()
        self._sender: asyncio.Task[None] | None = None
        self._leaving = False
        self._reminded: set[str] = set()
        """Cards of which somebody was told that they wait."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sender = self._tasks.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        for worker in self._workers.values():
            worker.waiting.clear()
            if worker.turn is not None:
                worker.turn.cancel()
        await self.idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._outbox.join()
        if self._sender is not None:
            self._sender.cancel()
        # Not told of the error: it would be wrapped in a group.
        await self._tasks.__aexit__(None, None, None)

    @property
    def running(self) -> tuple[str, ...]:
        """Keys of the sessions that have a turn or a message waiting for one."""
        return tuple(self._workers)

    async def idle(self) -> None:
        """Wait until no session has anything to do."""
        while ends := [worker.ended.wait() for worker in self._workers.values()]:
            await asyncio.gather(*ends)

    async def deliver(self, message: InboundMessage) -> None:
        """Take a message: an answer to a card, a slash command, or what the model gets. Returns once it is taken. What
        comes while this ends is left to who keeps it, for the next start.
        """
        if self._leaving:
            return
        origin = self._origin(message)
        if message.task:
            await self._report(message, origin)
            return
        settles = _tickets(message)
        heard = self._answered(message, origin)
        if heard is not None:
            await self._say(origin, Kind.NOTICE, heard.say, settles=settles)
            if origin.session_key not in self._workers:
                await self._end(origin)  # there is no turn whose end would be told
            return
        text = message.text.strip()
        if text.split(maxsplit=1)[:1] == [STOP] and origin.trigger is Trigger.USER:
            said, failed = await self._stopped(text.removeprefix(STOP).strip(), origin.session_key)
            await self._say(origin, Kind.NOTICE, said, failed=failed, settles=settles)
            if origin.session_key not in self._workers:
                await self._end(origin)  # else that of the turn follows
        elif self._is_command(message) and not self._wiring.commands.waits(text):
            await self._command(text, origin, settles)
            await self._end(origin)
        elif self._take(message, origin):
            await self._remind(origin)
        else:
            if origin.trigger is Trigger.USER:
                await self._say(origin, Kind.NOTICE, FULL, settles=settles)
            else:
                await self._end(origin, settles, failed=True)

    async def _remind(self, origin: Origin) -> None:
        """Whose message waits behind a turn that waits for an answer is told so, once for each question."""
        if origin.address.channel == CLI or origin.trigger is not Trigger.USER:
            return
        worker = self._workers.get(origin.session_key)
        if worker is None or worker.turn is None or worker.turn.done():
            return
        waiting = {card.id for card in self._wiring.answers.open_cards(origin.address)}
        if waiting - self._reminded:
            self._reminded = waiting
            await self._say(origin, Kind.NOTICE, WAITS)

    def _answered(self, message: InboundMessage, origin: Origin) -> Heard | None:
        """What an earlier process took answers nothing that is asked now: nobody had seen that yet (APPR-04)."""
        if message.resumed:
            return None
        return self._wiring.answers.answer(message.text, origin=origin, reply_to=message.reply_to)

    def stop(self, session_key: str) -> bool:
        """End the session's running turn; whether there was one. What waits behind it goes on."""
        worker = self._workers.get(session_key)
        if worker is None:
            return False
        if worker.turn is not None and worker.turn.cancel():
            return True
        worker.stopped = bool(worker.waiting)
        return worker.stopped

    async def _stopped(self, which: str, session_key: str) -> tuple[str, bool]:
        """What is said to ``/stop WHICH``, and whether it could not be done."""
        tasks, running = self._wiring.tasks, self._wiring.tasks.running(session_key)
        if which and which != EVERYTHING:
            if await tasks.stop(session_key, which):
                return f"Task {which} is stopped.", False
            return f"No task {which[:20]!r} runs here. {going_on(running)}".strip(), True
        stopped = self.stop(session_key)
        if which:
            ended = [task.id for task in running if await tasks.stop(session_key, task.id)]
            also = f" So {'is task' if len(ended) == 1 else 'are tasks'} {', '.join(ended)}." if ended else ""
            return f"{STOPPED if stopped or ended else NOTHING_RUNS}{also}", False
        return f"{STOPPED if stopped else NOTHING_RUNS} {going_on(running)}".strip(), False

    async def _report(self, message: InboundMessage, origin: Origin) -> None:
        """A task has ended. Its report goes into the turn that runs, or begins one; where too much waits, the session's
        next turn has it.
        """
        if origin.address.channel == CLI and origin.trigger.by_person:
            await self._say(origin, Kind.TASK, message.text)
        self._take(message, origin)

    def _is_command(self, message: InboundMessage) -> bool:
        """Only for who may use the assistant: a job's text, or a bystander's, sets nothing and shows nothing."""
        return message.trigger is Trigger.USER and self._wiring.commands.known(message.text.strip())

    def _origin(self, message: InboundMessage) -> Origin:
        return Origin(
            session_key=message.session_key or self._wiring.key_of(message),
            address=message.address,
            sender=message.sender,
            trigger=message.trigger,
        )

    def _take(self, message: InboundMessage, origin: Origin) -> bool:
        worker = self._workers.get(origin.session_key)
        if worker is None:
            worker = self._workers[origin.session_key] = _Worker()
            self._tasks.create_task(self._work(origin.session_key, worker))
        if len(worker.waiting) >= MAX_WAITING and not message.resumed:  # that found room once
            return False
        worker.waiting.append((message, origin))
        return True

    async def _work(self, key: str, worker: _Worker) -> None:
        """Turn after turn until nothing waits. A stopped turn ends alone; the worker goes on.

        Whatever comes of a turn, even if it was stopped before its first step, the person at a terminal learns that it
        is over (ERR-04).
        """
        try:
            while worker.waiting:
                message, origin = worker.waiting.popleft()
                worker.tickets = list(_tickets(message))
                done = False
                if worker.stopped:
                    worker.stopped = False
                elif message.task and not self._wiring.tasks.due(origin.session_key, message.task):
                    continue  # another turn has had it
                else:
                    worker.turn = self._tasks.create_task(self._handle(message, origin, worker))
                    await asyncio.wait({worker.turn})
                    if worker.turn.cancelled() and self._leaving:
                        worker.tickets.clear()  # they are taken up again by the next start
                    done = not worker.turn.cancelled() and worker.turn.result()
                await self._end(origin, worker.tickets, failed=not done)
        finally:
            del self._workers[key]
            worker.ended.set()

    async def _handle(self, message: InboundMessage, origin: Origin, worker: _Worker) -> bool:
        """Whether it was done."""
        if self._is_command(message):
            return await self._command(message.text.strip(), origin, tuple(worker.tickets))
        return await self._turn(message, origin, worker)

    async def _turn(self, message: InboundMessage, origin: Origin, worker: _Worker) -> bool:
        observer = self._observer(origin)
        try:
            if message.ticket:
                if origin.trigger.by_person:
                    settles = tuple(worker.tickets)
                    self._offer(OutboundMessage(address=origin.address, text="", kind=Kind.WORKING, settles=settles))
                await self._wiring.begun(message.ticket)
            outcome = await self._played(message, origin, observer, worker)
        except Exception as error:  # noqa: BLE001 - an edge: whatever a turn raises ends here (ERR-01)
            if isinstance(error, BubblesError | SandboxError):
                _log.warning("a turn of session %s failed: %s", origin.session_key, error)
            else:
                _log.exception("a turn of session %s failed", origin.session_key)
            _end_of(observer, error)
            if self._leaving:
                worker.tickets.clear()  # it broke since it was cut off: the next start takes it up
            elif self._notices.wanted(origin):
                await self._say(origin, Kind.NOTICE, of_failure(error, origin), settles=tuple(worker.tickets))
            return False
        if outcome is not None:
            _end_of(observer, outcome)
            await self._tell(outcome, origin, (*worker.tickets, *outcome.tickets))
        return outcome is None or outcome.error is None

    async def _played(
        self, message: InboundMessage, origin: Origin, observer: TurnObserver, worker: _Worker
    ) -> TurnOutcome | None:
        """The turn. What is kept can wait a while for another program that works on the session, such as its owner at a
        terminal.
        """
        patient_until = time.monotonic() + (BUSY_S if message.ticket else 0.0)
        while True:
            try:
                async with self._slots.held(origin.session_key):
                    return await self._wiring.turns.run(
                        message, origin, observer, _pending(worker, self._wiring.commands, origin)
                    )
            except SessionBusyError:
                if time.monotonic() >= patient_until:
                    raise
            await asyncio.sleep(BUSY_LOOK_S)

    def _observer(self, origin: Origin) -> TurnObserver:
        """Of what nobody waits for, nothing is seen until it is done (ERR-02)."""
        own = self._wiring.observer_for(origin.address)
        if own is not None:
            return own
        if not origin.trigger.by_person:
            return Unwatched()
        return ChannelObserver(origin.address, self._wiring.policy, self._offer)

    async def _tell(self, outcome: TurnOutcome, origin: Origin, settles: tuple[str, ...]) -> None:
        if outcome.error is not None:
            if self._notices.wanted(origin):
                await self._say(origin, Kind.NOTICE, of_provider(outcome.error, origin), settles=settles)
        elif outcome.text:
            kind = Kind.NOTICE if outcome.end is TurnEnd.LIMIT else Kind.REPLY
            await self._say(origin, kind, outcome.text, settles=settles)

    async def _command(self, text: str, origin: Origin, settles: tuple[str, ...]) -> bool:
        """Whether it was done."""
        failed = True
        try:
            said = await self._wiring.commands.run(text, origin)
            failed = False
        except CommandError as error:
            said = str(error)
        except (BubblesError, SandboxError) as error:
            said = of_failure(error, origin)
        except Exception as error:  # noqa: BLE001 - an edge, as in _turn
            _log.exception("%s of session %s failed", text.split(maxsplit=1)[0], origin.session_key)
            said = of_failure(error, origin)
        await self._say(origin, Kind.NOTICE, said, failed=failed, settles=settles)
        return not failed

    async def _end(self, origin: Origin, settles: Sequence[str] = (), *, failed: bool = False) -> None:
        """Said at a terminal, and of what somebody keeps."""
        if origin.address.channel == CLI or settles:
            await self._say(origin, Kind.END, "", failed=failed, settles=tuple(settles))

    async def _say(
        self, origin: Origin, kind: Kind, text: str, *, failed: bool = False, settles: tuple[str, ...] = ()
    ) -> None:
        await self._outbox.put(
            OutboundMessage(address=origin.address, text=text, kind=kind, failed=failed, settles=settles)
        )

    def _offer(self, message: OutboundMessage) -> None:
        """What is only of use while a turn runs is dropped when nobody keeps up."""
        if self._outbox.qsize() < MAX_OUTBOX // 2:
            self._outbox.put_nowait(message)

    async def _send_all(self) -> None:
        while True:
            message = await self._outbox.get()
            try:
                await self._wiring.send(message)
            except Exception as error:  # noqa: BLE001 - an edge: a channel that is broken must not end the others
                _log.warning("a message to %s was not sent", message.address.channel, exc_info=error)
            finally:
                self._outbox.task_done()


def _tickets(message: InboundMessage) -> tuple[str, ...]:
    return (message.ticket,) if message.ticket else ()


def _end_of(observer: TurnObserver, came: TurnOutcome | Exception) -> None:
    if isinstance(observer, OutcomeObserver):
        observer.ended(came)


def _pending(worker: _Worker, commands: Commands, origin: Origin) -> Pending:
    """Takes the messages that wait, up to the first command; what a turn takes is answered by it (CORE-06).

    So it takes none of another chat: where several chats are one session, each is answered where it was written.
    """

    def take() -> list[InboundMessage]:
        taken = []
        while worker.waiting and not commands.known(worker.waiting[0][0].text.strip()):
            message, whose = worker.waiting[0]
            if whose.address != origin.address or not _together(message, origin):
                break
            taken.append(worker.waiting.popleft()[0])
            worker.tickets += _tickets(message)
        return taken

    return take


def _together(message: InboundMessage, origin: Origin) -> bool:
    """Whether a running turn takes the message in. A job's is a turn of its own, and so is what a person writes while a
    job is done; the report of a task belongs to the turns of whoever had it begun.
    """
    if origin.trigger.by_person:
        return message.trigger.by_person
    return bool(message.task) and message.trigger is origin.trigger
