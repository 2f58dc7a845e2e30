"""The assistant: sessions, model, tools and gate, brought together for a program that talks to people."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles.app.gate import ApproverFor, Gate, OnWarning, whole_gate
from bubbles.app.servers import servers_of, tools_of
from bubbles.app.workshop import Workshop
from bubbles.config.schema import Settings

if TYPE_CHECKING:
    from bubbles.agent.subagents.tasks import BackgroundTasks
    from bubbles.bus import Origin
    from bubbles.dispatch.contract import Policy, Send
    from bubbles.dispatch.dispatcher import Dispatcher, KeyOf, ObserverFor
    from bubbles.dispatch.turns import Parts, Places, TurnRunner
    from bubbles.providers.contract import Provider
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.contract import Folders
    from bubbles.sessions.session import Sessions
    from bubbles.tools.contract import PlaceOf, Tool, ToolSource
    from bubbles.tools.registry import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What a program that talks to people needs."""

    dispatcher: Dispatcher
    sessions: Sessions
    settings: Settings
    turns: TurnRunner
    tasks: BackgroundTasks


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
    from bubbles.dispatch.dispatcher import Dispatcher, Wiring
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
        made = _Made(settings=settings, opened=opened, places=places, providers=providers, sessions=sessions)
        beyond = tools_of(servers, opened, settings, places.of, places.choice_of, on_warning)
        turns = TurnRunner(_parts(made, tasks, _more(made, tasks, goes_on), beyond))
        wiring = Wiring(
            key_of=_keys(settings),
            turns=turns,
            commands=SessionCommands(turns, opened.rules, lambda key: described(servers.infos(key))),
            answers=opened.broker,
            send=send,
            observer_for=observer_for,
            policy=_policy(settings),
            tasks=tasks,
        )
        # Tasks end first: what they still have to say is said by turns.
        async with Dispatcher(wiring, lanes.turns) as dispatcher, tasks.at_work(turns.assignment, dispatcher.deliver):
            yield Assistant(dispatcher=dispatcher, sessions=sessions, settings=settings, turns=turns, tasks=tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the parts of turns are put together from."""

    settings: Settings
    opened: Gate
    places: Places
    providers: ProviderPool
    sessions: Sessions


def _keys(settings: Settings) -> KeyOf:
    from bubbles.sessions.key import key_of

    channels = settings.channels
    return lambda message: key_of(message, channels.session_mode, channels.identities)


def _policy(settings: Settings) -> Policy:
    from bubbles.dispatch.contract import Policy

    channels = settings.channels
    return Policy(send_progress=channels.send_progress, send_tool_hints=channels.send_tool_hints)


def _told(*listeners: Callable[[str], None]) -> Callable[[str], None]:
    def tell(secret: str) -> None:
        for listen in listeners:
            listen(secret)

    return tell


def _parts(made: _Made, tasks: BackgroundTasks, more: Iterable[Tool[Any]], beyond: ToolSource) -> Parts:
    from bubbles.dispatch.turns import Parts
    from bubbles.tools.all import make_tools

    redactor, sessions = made.opened.redactor, made.sessions

    def toolbox(place_of: PlaceOf) -> Toolbox:
        def folders_of(origin: Origin) -> Folders:
            return sessions.folders(origin.session_key)

        gate = made.opened.controller
        return make_tools(gate, place_of, folders_of, made.settings, redactor.mask, more, (beyond,))

    return Parts(
        settings=made.settings,
        sessions=sessions,
        controller=made.opened.controller,
        places=made.places,
        toolbox=toolbox,
        tasks=tasks,
        choose=made.providers.choose,
        warm=made.providers.warm,
        provider=made.providers.of,
        redact=redactor.redact,
        mask=redactor.mask,
        known=known_values,
    )


def _more(made: _Made, tasks: BackgroundTasks, goes_on: bool) -> Iterator[Tool[Any]]:
    """Tools that reach beyond the desk. Those that need a gateway come with it."""
    from bubbles.tools.people import FindPerson
    from bubbles.tools.spawn import Background, Spawn
    from bubbles.tools.web.all import web_tools

    yield from web_tools(made.settings, made.opened.redactor.mask)
    if goes_on and made.settings.tools.tasks.at_once:
        yield Spawn(tasks)
        yield Background(tasks)
    yield FindPerson()


def known_values() -> dict[str, tuple[str, ...]]:
    """What may be set by name for a session, where there is a written few."""
    from bubbles.providers.registry import names
    from sandbox_backends.registry import backend_names

    return {"sandbox": tuple(backend_names()), "provider": names()}
