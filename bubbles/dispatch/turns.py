"""What one turn needs, brought together for its session: settings, place, prompt, model, history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from bubbles.agent.compaction import Compacted
from bubbles.agent.contract import Arrival, TurnObserver, TurnOutcome
from bubbles.agent.limits import Limits, Model
from bubbles.agent.loop import AgentLoop
from bubbles.agent.parts import read_parts
from bubbles.agent.prompt import build_prompt
from bubbles.agent.subagents.contract import NOT_IN_TASKS, Assignment
from bubbles.agent.subagents.tasks import BackgroundTasks
from bubbles.bus import CLI, InboundMessage, Origin, Trigger
from bubbles.config.schema import SessionSettings, Settings
from bubbles.config.session import load_session_settings
from bubbles.controller.contract import Workplace
from bubbles.controller.controller import Controller
from bubbles.dispatch.contract import Pending
from bubbles.providers.contract import Provider, UserMessage
from bubbles.providers.select import Choice
from bubbles.sessions.contract import Author, Folders, History, TurnEnd
from bubbles.sessions.session import Session, Sessions
from bubbles.tools.contract import PlaceOf
from bubbles.tools.registry import Toolbox

CONFIG = "config.json"
MAX_REMINDER = 200
"""Characters."""
TAKEN_UP = (
    "[Note of the program, not of the person: the program ended while you worked on the message above that begins "
    "with: {shown} Go on with it now and answer it. Look first at what is there: what has an unknown end must not "
    "simply be done again.]"
)
UNOPENED = "The sandbox cannot be opened. The log says why."
MAX_LOOPS = 32
"""Models that are remembered with what was learned of their way of counting."""

_log = logging.getLogger(__name__)

PlaceFor = Callable[[Folders, str | None], Workplace]
"""Of a session's folders, and the name of a backend or None for the configured one. Looks at the host."""


class Places:
    """Where each session's tools act. Set when a turn begins, from the settings that are then in force."""

    def __init__(self, place_for: PlaceFor) -> None:
        self._place_for = place_for
        self._places: dict[str, Workplace] = {}
        self._choices: dict[str, Choice] = {}

    async def find(self, folders: Folders, backend: str | None) -> Workplace:
        """Where a turn that began now would act. Raises BubblesError, or what the backend says of a bad demand."""
        return await asyncio.to_thread(self._place_for, folders, backend)

    def settle(self, key: str, place: Workplace, choice: Choice) -> None:
        """A turn of this session begins there. Who only looks (``/status``) does not move a turn that runs."""
        self._places[key] = place
        self._choices[key] = choice

    def choice_of(self, origin: Origin) -> Choice | None:
        """Who answers in the session, if a turn of it has begun."""
        return self._choices.get(origin.session_key)

    def of(self, origin: Origin) -> Workplace:
        return self._places[origin.session_key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What turns are made of."""

    settings: Settings
    sessions: Sessions
    controller: Controller
    places: Places
    toolbox: Callable[[PlaceOf], Toolbox]
    tasks: BackgroundTasks
    """Their reports come to the turns here, and they work with what turns are made of (TOOL-05)."""
    choose: Callable[[str | None, str | None], Choice]
    """By the model and the provider that a session sets for itself. Raises ConfigError."""
    warm: Callable[[Choice], None]
    """Told of a choice as soon as it is known that a request will follow."""
    provider: Callable[[Choice], Provider]
    redact: Callable[[str], str]
    mask: Callable[[str], str]
    """Takes out of the prompt what no model may see: the owner's keys (SEC-03)."""
    heartbeat: Callable[[str], Awaitable[str]]
    """How often a session has one, such as ``30m``; empty if it is off (HB-03)."""
    known: Callable[[], dict[str, tuple[str, ...]]] = field(default=dict)
    """Values that ``/config`` may set, by key, where they are a written few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is in force for a session now."""

    folders: Folders
    own: SessionSettings
    choice: Choice
    place: Workplace
    prompt: str


class TurnRunner:
    """Runs turns; the dispatcher's ``Turns``."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.toolbox = parts.toolbox(parts.places.of)
        self._task_tools = self.toolbox.without(*NOT_IN_TASKS)
        self._loops: dict[Choice, AgentLoop] = {}
        self._handed_on: set[str] = set()
        """Turns of earlier processes whose reply was told by this one: several messages may have had it."""

    async def run(
        self, message: InboundMessage, origin: Origin, observer: TurnObserver, pending: Pending
    ) -> TurnOutcome | None:
        session = await self.parts.sessions.open(origin.session_key)
        async with session.turn() as history:
            _tell(session, origin, observer)
            if (answered := _answered(message, history)) is not None:
                again = answered.turn in self._handed_on
                self._handed_on.add(answered.turn)
                return replace(answered, text="") if again else answered
            before = await self._before(message, origin, history)
            if message.task and not before:
                return None
            note = _taken_up(message, history)
            if note is not None:
                before += [note, *self._pending(pending, origin, history)()]
            setup = await self.setup(session, origin, observer)
            self.parts.places.settle(session.key, setup.place, setup.choice)
            # The model thinks first: the sandbox is there when the first call comes (SBX-12).
            self.parts.controller.open_ahead(
                setup.place, lambda error: _aside(f"The sandbox cannot be opened: {error}", origin, observer, UNOPENED)
            )
            return await self._loop(setup.choice).run(
                history,
                None if message.task or note else UserMessage(text=message.text),
                author=Author.PERSON if origin.trigger is Trigger.USER else Author.JOB,
                origin=origin,
                prompt=setup.prompt,
                observer=observer,
                pending=self._pending(pending, origin, history),
                before=before,
                ticket=message.ticket,
            )

    async def assignment(self, origin: Origin) -> Assignment:
        """What a task in the background of this origin's session works with. Raises as ``setup`` does."""
        session = await self.parts.sessions.open(origin.session_key)
        setup = await self.setup(session, origin)
        return Assignment(
            prompt=setup.prompt,
            model=self._model(setup.choice),
            tools=self._task_tools,
            limits=self._limits(),
            redact=self.parts.redact,
        )

    async def _before(self, message: InboundMessage, origin: Origin, history: History) -> list[Arrival]:
        """Reports of tasks that come before the message, or in place of it."""
        author = Author.JOB if message.task else Author.PROGRAM
        due = await self.parts.tasks.opening(message, origin, history)
        return [self.parts.tasks.arrival(origin.session_key, record, author) for record in due]

    def _pending(self, pending: Pending, origin: Origin, history: History) -> Callable[[], list[Arrival]]:
        tasks, key = self.parts.tasks, origin.session_key

        def take() -> list[Arrival]:
            taken: list[Arrival] = []
            for message in pending():
                if not message.task:
                    tasks.spoken(key)
                    new = Arrival(text=message.text, author=Author.PERSON, ticket=message.ticket)
                    taken.append(_taken_up(message, history) or new)
                elif (record := tasks.arrived(message, origin)) is not None:
                    taken.append(tasks.arrival(key, record, Author.PROGRAM))
            return taken

        return take

    async def compact(self, origin: Origin, observer: TurnObserver) -> Compacted | None:
        """By hand (CTX-01). None if there was nothing to shorten."""
        session = await self.parts.sessions.open(origin.session_key)
        async with session.turn() as history:
            _tell(session, origin, observer)
            setup = await self.setup(session, origin, observer)
            loop = self._loop(setup.choice)
            return await loop.compact(history, prompt=setup.prompt, observer=observer, origin=origin)

    async def setup(self, session: Session, origin: Origin, observer: TurnObserver | None = None) -> Setup:
        """What would be in force for a turn of this origin. Raises ConfigError. With an observer a turn follows."""
        settings, folders = self.parts.settings, session.folders
        own, warnings = await asyncio.to_thread(load_session_settings, folders.state / CONFIG)
        if observer is not None:
            for warning in warnings:
                _aside(warning, origin, observer)
        choice = self.parts.choose(own.model, own.provider)
        if observer is not None:
            self.parts.warm(choice)
        place = await self.parts.places.find(folders, own.sandbox)
        beats = await self.parts.heartbeat(session.key)
        parts = await read_parts(
            folders, settings, own=own, place=place, origin=origin, mask=self.parts.mask, heartbeat=beats
        )
        return Setup(folders=folders, own=own, choice=choice, place=place, prompt=build_prompt(parts))

    def _loop(self, choice: Choice) -> AgentLoop:
        loop = self._loops.pop(choice, None) or self._made(choice)
        self._loops[choice] = loop  # the last used is the last to go
        while len(self._loops) > MAX_LOOPS:
            del self._loops[next(iter(self._loops))]
        return loop

    def _made(self, choice: Choice) -> AgentLoop:
        return AgentLoop(model=self._model(choice), tools=self.toolbox, limits=self._limits(), redact=self.parts.redact)

    def _model(self, choice: Choice) -> Model:
        defaults = self.parts.settings.agents.defaults
        return Model(
            provider=self.parts.provider(choice),
            name=choice.model,
            temperature=defaults.temperature,
            max_output_tokens=defaults.max_output_tokens,
        )

    def _limits(self) -> Limits:
        defaults = self.parts.settings.agents.defaults
        return Limits(
            context_tokens=defaults.context_tokens,
            reserve_tokens=defaults.compaction_reserve_tokens,
            iterations=defaults.max_tool_iterations,
        )


def _answered(message: InboundMessage, history: History) -> TurnOutcome | None:
    """What an earlier process of this program came to and could not hand on: it is not done twice (OPS-02)."""
    heard = history.heard(message.ticket) if message.resumed else None
    if heard is None or heard.end not in (TurnEnd.DONE, TurnEnd.LIMIT) or not heard.reply:
        return None
    tickets = history.tickets(heard.turn)
    return TurnOutcome(end=heard.end, text=heard.reply, turn=heard.turn, tickets=tickets)


def _taken_up(message: InboundMessage, history: History) -> Arrival | None:
    """A note in place of a message that the model has had: its turn was cut off, and goes on."""
    if not message.resumed or history.heard(message.ticket) is None:
        return None
    words = " ".join(message.text.split())
    shown = words if len(words) <= MAX_REMINDER else f"{words[:MAX_REMINDER]}…"
    return Arrival(text=TAKEN_UP.format(shown=shown), ticket=message.ticket)


def _tell(session: Session, origin: Origin, observer: TurnObserver) -> None:
    """What was found wrong when the history was opened, once."""
    for warning in session.take_warnings():
        _aside(warning, origin, observer)


def _aside(sentence: str, origin: Origin, observer: TurnObserver, elsewhere: str = "") -> None:
    """Of this machine, with paths: for the owner's own terminal. A chat, which may be a group, gets ``elsewhere``."""
    if origin.address.channel == CLI:
        observer.notice(sentence)
        return
    _log.warning("session %s: %s", origin.session_key, sentence)
    if elsewhere:
        observer.notice(elsewhere)
