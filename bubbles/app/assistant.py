"""The assistant: sessions, model, tools and gate, brought together for a program that talks to people."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.app.gate import ApproverFor, OnWarning, whole_gate
from bubbles.app.parts import Chats, Made, keys, made_of, more_tools, parts_of, policy
from bubbles.app.servers import servers_of, tools_of
from bubbles.app.workshop import Workshop
from bubbles.config.schema import Settings

if TYPE_CHECKING:
    from bubbles.agent.subagents.tasks import BackgroundTasks
    from bubbles.bus import Address
    from bubbles.cron.store import JobStore
    from bubbles.dispatch.commands import SessionCommands
    from bubbles.dispatch.contract import Send
    from bubbles.dispatch.dispatcher import Dispatcher, ObserverFor, Wiring
    from bubbles.dispatch.turns import TurnRunner
    from bubbles.providers.contract import Provider
    from bubbles.sessions.session import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What a program that talks to people needs."""

    made: Made
    dispatcher: Dispatcher
    turns: TurnRunner
    tasks: BackgroundTasks
    commands: SessionCommands

    @property
    def sessions(self) -> Sessions:
        return self.made.sessions

    @property
    def settings(self) -> Settings:
        return self.made.settings

    @property
    def jobs(self) -> JobStore:
        return self.made.jobs

    def is_command(self, text: str) -> bool:
        """Whether a text of who may use the assistant is a slash command."""
        return self.commands.known(text)

    def asked(self, address: Address) -> bool:
        """Whether a question waits for an answer there."""
        return bool(self.made.opened.broker.open_cards(address))


@asynccontextmanager
async def assistant(
    shop: Workshop,
    *,
    approver_for: ApproverFor,
    send: Send,
    observer_for: ObserverFor = lambda _: None,
    project: Path | None = None,
    backend: str | None = None,
    provider: Provider | None = None,
    on_warning: OnWarning = lambda _: None,
    program: str = "bubbles agent",
    goes_on: bool = True,
    on_secret: Callable[[str], None] = lambda _: None,
    chats: Chats | None = None,
) -> AsyncIterator[Assistant]:
    """The assistant at work; leaving it stops what runs and closes every sandbox.

    Messages for people go to ``send``; turns are shown by ``observer_for``. ``project`` binds every session of this
    program to a directory (SESS-06); ``backend`` counts before what a session or the configuration says; ``provider``
    for whatever the model's name would choose. ``program`` is what another one is told that finds a session in use;
    it has no tasks in the background unless it ``goes_on`` after a reply. ``on_secret`` hears each new token.
    """
    # The core takes a moment to import: commands that only look at sandboxes or rules do without.
    from bubbles.agent.subagents.shelf import TaskShelf
    from bubbles.agent.subagents.tasks import BackgroundTasks
    from bubbles.dispatch.commands import SessionCommands
    from bubbles.dispatch.dispatcher import Dispatcher
    from bubbles.dispatch.slots import Lanes, usual
    from bubbles.dispatch.turns import Places, TurnRunner
    from bubbles.mcp.shown import described
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.housekeeping import tended
    from bubbles.sessions.session import Sessions

    settings = shop.settings
    lanes = Lanes(settings.agents.concurrency or usual(os.cpu_count()))
    sessions = Sessions(settings.data_dir, program=program)
    tasks = BackgroundTasks(settings.tools.tasks, TaskShelf(sessions.folders, program), lanes.held)
    places = Places(lambda folders, chosen: shop.session_place(folders, backend or chosen, project))
    async with (
        whole_gate(shop, approver_for, on_warning, lanes.away) as opened,
        servers_of(shop, opened.sandboxes, places.of, opened.redactor.redact) as servers,
        ProviderPool(settings, provider, _told(opened.redactor.learn, on_secret)) as providers,
        tended(settings.data_dir),
    ):
        made = made_of(settings, opened, places, providers, sessions)
        beyond = tools_of(servers, opened, settings, places.of, places.choice_of, on_warning)
        turns = TurnRunner(parts_of(made, tasks, more_tools(made, tasks if goes_on else None, chats), beyond))
        told = SessionCommands(turns, opened.rules, lambda key: described(servers.infos(key)), made.heartbeats)
        wiring = _wiring(made, turns, told, tasks, chats, send, observer_for)
        # Tasks end first: what they still have to say is said by turns.
        async with Dispatcher(wiring, lanes.turns) as dispatcher, tasks.at_work(turns.assignment, dispatcher.deliver):
            yield Assistant(made=made, dispatcher=dispatcher, turns=turns, tasks=tasks, commands=told)


def _told(*listeners: Callable[[str], None]) -> Callable[[str], None]:
    def tell(secret: str) -> None:
        for listen in listeners:
            listen(secret)

    return tell


def _wiring(
    made: Made,
    turns: TurnRunner,
    commands: SessionCommands,
    tasks: BackgroundTasks,
    chats: Chats | None,
    send: Send,
    observer_for: ObserverFor,
) -> Wiring:
    from bubbles.dispatch.dispatcher import Wiring, unkept

    return Wiring(
        key_of=keys(made.settings),
        turns=turns,
        commands=commands,
        answers=made.opened.broker,
        send=send,
        observer_for=observer_for,
        policy=policy(made.settings),
        tasks=tasks,
        begun=unkept if chats is None else chats.begun,
    )
