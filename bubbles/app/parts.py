"""What turns are made of, put together for a program that talks to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bubbles.app.gate import Gate
from bubbles.config.schema import Settings

if TYPE_CHECKING:
    from bubbles.agent.subagents.tasks import BackgroundTasks
    from bubbles.bus import Origin
    from bubbles.cron.store import JobStore
    from bubbles.dispatch.contract import Begun, Policy
    from bubbles.dispatch.dispatcher import KeyOf
    from bubbles.dispatch.heartbeat import SessionHeartbeats
    from bubbles.dispatch.turns import Parts, Places
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.contract import Folders
    from bubbles.sessions.session import Sessions
    from bubbles.tools.contract import PlaceOf, Tool, ToolSource
    from bubbles.tools.registry import Toolbox
    from bubbles.tools.services import Courier, Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    """What a program brings that answers in chats and keeps their messages: the gateway."""

    courier: Courier
    members: Members
    begun: Begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the parts of turns are put together from."""

    settings: Settings
    opened: Gate
    places: Places
    providers: ProviderPool
    sessions: Sessions
    jobs: JobStore
    heartbeats: SessionHeartbeats


def made_of(settings: Settings, opened: Gate, places: Places, providers: ProviderPool, sessions: Sessions) -> Made:
    """With the jobs of the data directory, whoever runs them."""
    from bubbles.cron.store import JobStore
    from bubbles.dispatch.heartbeat import SessionHeartbeats
    from bubbles.gateway.lock import running

    jobs = JobStore(settings.data_dir)
    return Made(
        settings=settings,
        opened=opened,
        places=places,
        providers=providers,
        sessions=sessions,
        jobs=jobs,
        heartbeats=SessionHeartbeats(jobs, sessions, partial(running, settings.data_dir)),
    )


def keys(settings: Settings) -> KeyOf:
    """Which session a message belongs to."""
    from bubbles.sessions.key import key_of

    channels = settings.channels
    return lambda message: key_of(message, channels.session_mode, channels.identities)


def policy(settings: Settings) -> Policy:
    from bubbles.dispatch.contract import Policy

    channels = settings.channels
    return Policy(send_progress=channels.send_progress, send_tool_hints=channels.send_tool_hints)


def parts_of(made: Made, tasks: BackgroundTasks, more: Iterable[Tool[Any]], beyond: ToolSource) -> Parts:
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
        heartbeat=made.heartbeats.interval,
    )


def more_tools(made: Made, tasks: BackgroundTasks | None, chats: Chats | None) -> Iterator[Tool[Any]]:
    """Tools that reach beyond the desk. Without ``tasks``, none are begun."""
    from bubbles.cron.session_jobs import SessionJobs
    from bubbles.tools.cron import Cron
    from bubbles.tools.message import Message
    from bubbles.tools.people import FindPerson
    from bubbles.tools.silence import StaySilent
    from bubbles.tools.spawn import Background, Spawn
    from bubbles.tools.web.all import web_tools

    yield from web_tools(made.settings, made.opened.redactor.mask)
    if tasks is not None and made.settings.tools.tasks.at_once:
        yield Spawn(tasks)
        yield Background(tasks)
    yield FindPerson(None if chats is None else chats.members)
    yield Cron(SessionJobs(made.jobs))
    yield StaySilent()
    if chats is not None:
        yield Message(chats.courier)


def known_values() -> dict[str, tuple[str, ...]]:
    """What may be set by name for a session, where there is a written few."""
    from bubbles.providers.registry import names
    from sandbox_backends.registry import backend_names

    return {"sandbox": tuple(backend_names()), "provider": names()}
