"""A conversation at a terminal: what is typed goes to the dispatcher, and what comes back is shown above the prompt."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, Kind, OutboundMessage
from bubbles.cli.chat.commands import LEAVE, SESSION, command_of, unknown
from bubbles.cli.chat.naming import name_of
from bubbles.cli.chat.options import Options, message_for
from bubbles.cli.chat.screen import Screen
from bubbles.cli.chat.text import shown
from bubbles.cli.chat.view import TurnView
from bubbles.cli.unchosen import no_boundary
from bubbles.config.schema import SessionSettings
from bubbles.config.session import load_session_settings
from bubbles.dispatch.notices import going_on
from bubbles.dispatch.turns import CONFIG
from bubbles.errors import BubblesError
from bubbles.sessions.contract import TurnEnd
from bubbles.sessions.key import named

if TYPE_CHECKING:
    from bubbles.app.assistant import Assistant
    from bubbles.cli.chat.contract import Terminal

NO_ANSWER = "There was no answer."
EMPTY = "The model's reply is empty."
HOW_TO_LEAVE = "Nothing runs. Ctrl-D or exit leaves."
LAST_WORDS_S = 0.3
"""How long leaving waits for a turn that may be about to end."""
NO_MODEL = (
    "No model is chosen yet: leave and run 'bubbles onboard --model anthropic/claude-sonnet-5-5 --api-key-env "
    "ANTHROPIC_API_KEY', or choose one for this session with /config model MODEL."
)
MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class InForce:
    """What is said of the session when the conversation begins, and in short below the prompt."""

    model: str = "no model"
    provider: str = ""
    sandbox: str = ""
    directory: str = ""
    weak: str | None = None
    """What to know of the sandbox, if nobody chose it."""


class Conversation:
    """``Keys`` for the terminal; ``send`` and ``observer_for`` for the assistant. One event loop makes all calls."""

    def __init__(self, options: Options) -> None:
        self.key = options.session
        self._options = options
        self._terminal: Terminal | None = None
        self._assistant: Assistant | None = None
        self._coloured = False
        self._speaker = options.session
        """Of which session the last thing shown was."""
        self._turns: dict[str, _Turn] = {}
        """The last one of each session."""
        self._quiet = asyncio.Event()
        """Nothing that was said waits for its end."""
        self._quiet.set()
        self._names: tuple[str, ...] = ()
        self._in_force = InForce(model="")

    def attach(self, terminal: Terminal, *, coloured: bool) -> None:
        self._terminal = terminal
        self._coloured = coloured

    # For the assistant

    def observer_for(self, address: Address) -> TurnObserver:
        self._quiet.clear()
        turn = self._turns[address.chat_id] = _Turn(TurnView(self.screen(address.chat_id)))
        return turn.view

    async def send(self, message: OutboundMessage) -> None:
        """A reply has been shown while it came."""
        key = message.address.chat_id
        turn = self._turns.get(key)
        if message.kind is Kind.END:
            self._quiet.set()
            if turn is not None and turn.view.came is not None:
                del self._turns[key]
                if said := turn.last_word():
                    self.screen(key).remark(said)
            await self._look()
            if self._terminal is not None:
                self._terminal.ready()
        elif message.kind is Kind.NOTICE:
            if turn is not None:
                turn.told = True
                if turn.has_said(message.text):
                    return
            self.screen(key).notice(message.text)
        elif message.kind is Kind.TASK:
            self.screen(key).remark(message.text)

    # For the terminal

    @property
    def running(self) -> bool:
        return self._assistant is not None and self.key in self._assistant.dispatcher.running

    def interrupted(self) -> None:
        stopped = self._assistant is not None and self._assistant.dispatcher.stop(self.key)
        left = "" if self._assistant is None else going_on(self._assistant.tasks.running(self.key))
        self.screen(self.key).remark(f"{'Stopped.' if stopped else HOW_TO_LEAVE} {left}".strip())
        if not stopped and self._terminal is not None:
            self._terminal.ready()

    def toolbar(self) -> str:
        work = "  working: Ctrl-C stops it" if self.running else ""
        count = 0 if self._assistant is None else len(self._assistant.tasks.running(self.key))
        tasks = f"  tasks: {count}" if count else ""
        return f"{name_of(self.key)}  {self._in_force.model}  {self._in_force.sandbox}{work}{tasks}"

    def names(self) -> tuple[str, ...]:
        """Of the sessions there were when last looked."""
        return self._names

    def screen(self, key: str) -> Screen:
        """Where things of a session are shown."""

        def write(text: str) -> None:
            self._write(key, text)

        def live(text: str) -> None:
            if key == self.key and self._terminal is not None:
                self._terminal.live(text)

        return Screen(out=write, aside=write, coloured=self._coloured, live=live, columns=self._columns, folds=True)

    # The conversation

    async def hold(self, assistant: Assistant, terminal: Terminal) -> None:
        """Until the person leaves."""
        self._assistant = assistant
        why = await self._look()
        screen = self.screen(self.key)
        screen.remark(self._banner())
        if why is not None:
            screen.notice(why)
        if self._in_force.weak is not None:
            screen.remark(self._in_force.weak)
        terminal.ready()
        while (text := await terminal.line()) is not None and text.strip() not in LEAVE:
            if not await self._take(assistant, text):
                terminal.ready()
        with suppress(TimeoutError):  # a turn whose reply is there already is not to be called a stopped one
            async with asyncio.timeout(LAST_WORDS_S):
                await self._quiet.wait()
        if count := assistant.tasks.count:
            screen = self.screen(self.key)
            screen.remark(f"{_tasks(count)} in the background: interrupted, and told of when the session goes on.")

    def _banner(self) -> str:
        here, name = self._in_force, name_of(self.key)
        new = "" if name in self._names else " (new)"
        by = here.provider and f" by {here.provider}"
        return f"Session {name}{new}, {here.model}{by}, sandbox {here.sandbox}, in {here.directory}"

    async def _take(self, assistant: Assistant, text: str) -> bool:
        """Whether an end will be told of it."""
        if not text.strip():
            return False
        if command_of(text) == SESSION:
            await self._session(text.strip().removeprefix(SESSION).strip())
            return False
        if (said := unknown(text)) is not None:
            self.screen(self.key).notice(said)
            return False
        self._quiet.clear()
        await assistant.dispatcher.deliver(message_for(self.key, text))
        return True

    async def _session(self, name: str) -> None:
        screen = self.screen(self.key)
        if not name:
            here = name_of(self.key)
            names = sorted({*self._names, here})
            more = f"\n… and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            screen.remark("\n".join(f"{'*' if name == here else ' '} {name}" for name in names[:MAX_LISTED]) + more)
            return
        try:
            self.key = self._speaker = named(name)
        except BubblesError as error:
            screen.notice(str(error))
            return
        why = await self._look()
        new = "" if name_of(self.key) in self._names else ", a new one"
        self.screen(self.key).remark(f"This is session {name_of(self.key)}{new}.")
        if why is not None:
            self.screen(self.key).notice(why)

    async def _look(self) -> str | None:
        """What is in force here, as the files say it now; why no turn could run, if so."""
        if self._assistant is None:
            return None
        self._names = tuple(sorted(map(name_of, await self._assistant.sessions.keys())))
        self._in_force, why = await asyncio.to_thread(in_force, self._assistant, self.key, self._options)
        return why

    def _write(self, key: str, text: str) -> None:
        if self._terminal is None:
            return
        if key != self._speaker:
            self._speaker = key
            text = f"[{shown(name_of(key))}]\n{text}"
        self._terminal.write(text)

    def _columns(self) -> int:
        return 80 if self._terminal is None else self._terminal.size()[0]


@dataclass(slots=True)
class _Turn:
    view: TurnView
    told: bool = False
    """Whether the program said anything of it."""

    def has_said(self, text: str) -> bool:
        """The explanation of a limit was the turn's last text already."""
        came = self.view.came
        return isinstance(came, TurnOutcome) and came.end is TurnEnd.LIMIT and came.text == text

    def last_word(self) -> str | None:
        """For a turn that ends without any: what would tell more was said less than a minute ago (ERR-03)."""
        came = self.view.came
        if isinstance(came, TurnOutcome) and came.error is None:
            return None if came.text else EMPTY
        return None if self.told else NO_ANSWER


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def in_force(assistant: Assistant, key: str, options: Options) -> tuple[InForce, str | None]:
    """Of a session, there or not, and why no turn could run in it. Reads files, makes none."""
    settings = assistant.settings
    folders = assistant.sessions.folders(key)
    own, choice, why = SessionSettings(), None, None
    try:
        own, _ = load_session_settings(folders.state / CONFIG)
        choice = assistant.turns.parts.choose(own.model, own.provider)
    except BubblesError as error:
        none = settings.agents.defaults.model is None and "model is set" in str(error)
        why = NO_MODEL if none else str(error)
    found = InForce(
        sandbox=options.backend or own.sandbox or settings.tools.sandbox.backend,
        directory=str(options.project or folders.desk),
        weak=no_boundary(settings, options.backend, own.sandbox),
    )
    return found if choice is None else replace(found, model=choice.model, provider=choice.provider), why
