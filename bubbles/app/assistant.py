"""The assistant: sessions, model, tools and gate, brought together for a program that talks to people."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.app.gate import ApproverFor, Gate, OnWarning, whole_gate
from bubbles.app.workshop import Workshop
from bubbles.config.schema import Settings

if TYPE_CHECKING:
    from bubbles.bus import Origin
    from bubbles.dispatch.contract import Send
    from bubbles.dispatch.dispatcher import Dispatcher, ObserverFor
    from bubbles.dispatch.turns import Parts, Places, TurnRunner
    from bubbles.providers.contract import Provider
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.contract import Folders
    from bubbles.sessions.session import Sessions
    from bubbles.tools.contract import PlaceOf
    from bubbles.tools.registry import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What a program that talks to people needs."""

    dispatcher: Dispatcher
    sessions: Sessions
    settings: Settings
    turns: TurnRunner


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
) -> AsyncIterator[Assistant]:
    """The assistant at work; leaving it stops what runs and closes every sandbox.

    Messages for people go to ``send``, and turns are shown by ``observer_for``. ``project`` binds every session of this
    program to a directory (SESS-06); ``backend`` counts before what a session or the configuration says;
    ``provider`` for whatever the model's name would choose (the demo, tests). ``program`` is what another program is
    told that finds a session in use.
    """
    # The core takes a moment to import: commands that only look at sandboxes or rules do without.
    from bubbles.dispatch.commands import SessionCommands
    from bubbles.dispatch.contract import Policy
    from bubbles.dispatch.dispatcher import Dispatcher, Wiring
    from bubbles.dispatch.slots import Slots, usual
    from bubbles.dispatch.turns import Places, TurnRunner
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.housekeeping import tended
    from bubbles.sessions.key import key_of

    settings, channels = shop.settings, shop.settings.channels
    slots = Slots(settings.agents.concurrency or usual(os.cpu_count()))
    places = Places(lambda folders, chosen: shop.session_place(folders, backend or chosen, project))
    async with (
        whole_gate(shop, approver_for, on_warning, lambda origin: slots.away(origin.session_key)) as opened,
        ProviderPool(settings, provider) as providers,
        tended(settings.data_dir),
    ):
        turns = TurnRunner(_parts(settings, opened, places, providers, program))
        wiring = Wiring(
            key_of=lambda message: key_of(message, channels.session_mode, channels.identities),
            turns=turns,
            commands=SessionCommands(turns, opened.rules),
            answers=opened.broker,
            send=send,
            observer_for=observer_for,
            policy=Policy(send_progress=channels.send_progress, send_tool_hints=channels.send_tool_hints),
        )
        async with Dispatcher(wiring, slots) as dispatcher:
            yield Assistant(dispatcher=dispatcher, sessions=turns.parts.sessions, settings=settings, turns=turns)


def _parts(settings: Settings, opened: Gate, places: Places, providers: ProviderPool, program: str) -> Parts:
    from bubbles.dispatch.turns import Parts
    from bubbles.sessions.session import Sessions
    from bubbles.tools.all import make_tools

    redactor = opened.redactor
    sessions = Sessions(settings.data_dir, program=program)

    def toolbox(place_of: PlaceOf) -> Toolbox:
        def folders_of(origin: Origin) -> Folders:
            return sessions.folders(origin.session_key)

        return make_tools(opened.controller, place_of, folders_of, settings, redactor.mask)

    return Parts(
        settings=settings,
        sessions=sessions,
        controller=opened.controller,
        places=places,
        toolbox=toolbox,
        choose=providers.choose,
        warm=providers.warm,
        provider=providers.of,
        redact=redactor.redact,
        mask=redactor.mask,
        known=known_values,
    )


def known_values() -> dict[str, tuple[str, ...]]:
    """What may be set by name for a session, where there is a written few."""
    from bubbles.providers.registry import usable
    from sandbox_backends.registry import backend_names

    return {"sandbox": tuple(backend_names()), "provider": usable()}
