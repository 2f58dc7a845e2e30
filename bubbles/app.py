"""Composition root: settings in, objects out. The only file that brings concrete classes together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.config.schema import Settings
from bubbles.config.secrets import secrets_of
from bubbles.controller.contract import Workplace
from bubbles.controller.sandboxes import Sandboxes
from bubbles.errors import BubblesError
from sandbox_backends.contract import BackendSettings, Enforces, Limits, Network, Root, SandboxBackend, SandboxSpec
from sandbox_backends.environment import HARD_HOME
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.inventory import reap
from sandbox_backends.owner import Owner, check_key, owner_alive
from sandbox_backends.registry import create_backend
from sandbox_backends.roots import resolve_spec

if TYPE_CHECKING:
    from bubbles.bus import Origin
    from bubbles.controller.approvals.broker import ApprovalBroker
    from bubbles.controller.approvals.contract import Approver
    from bubbles.controller.controller import Controller
    from bubbles.controller.rulefiles import LoadedRules
    from bubbles.dispatch.contract import Send
    from bubbles.dispatch.dispatcher import Dispatcher, ObserverFor
    from bubbles.dispatch.turns import Parts, Places, TurnRunner
    from bubbles.providers.contract import Provider
    from bubbles.providers.pool import ProviderPool
    from bubbles.sessions.contract import Folders
    from bubbles.sessions.session import Sessions
    from bubbles.tools.contract import PlaceOf
    from bubbles.tools.registry import Toolbox

ONCE = "once"
"""The key of a session without a name."""
SESSION_HOMES = "session_homes"
NO_HOME = "/nonexistent"
"""Stands for a throw-away home, whose place is not known before its sandbox opens."""
OnRefusal = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What commands that use sandboxes need: the settings, and this process as an owner of sandboxes."""

    settings: Settings
    backends: BackendSettings
    owner: Owner
    made: dict[str, SandboxBackend] = field(default_factory=dict)
    """Backends by name: each is made once, for it remembers what it found of the host."""

    def backend(self, name: str | None = None) -> SandboxBackend:
        """The backend of this name, or the configured one. Raises InvalidSpecError for an unknown name."""
        name = name or self.settings.tools.sandbox.backend
        found = self.made.get(name)
        if found is None:
            found = self.made.setdefault(name, create_backend(name, self.backends, self.owner))
        return found

    def sandboxes(self) -> Sandboxes:
        """A pool of this workshop's sandboxes; when it is entered it removes what earlier controllers left."""
        return Sandboxes(self.backend, reap=lambda: reap(self.backends))

    def spec(
        self,
        *,
        session: str | None,
        roots: tuple[Path, ...],
        network: str | None = None,
        allow: tuple[str, ...] = (),
    ) -> SandboxSpec:
        """What a session named on the command line demands: what is not said there is as configured.

        Without a session's name its home is thrown away with it.
        """
        chosen = self.settings.tools.sandbox
        wanted = network or ("allowlist" if allow else chosen.network)
        return SandboxSpec(
            session=ONCE if session is None else check_key(session),
            roots=tuple(Root(path=root) for root in roots),
            home=None if session is None else self.home(session),
            network=None if wanted is None else Network(wanted),
            allow=(allow or chosen.allow) if wanted == "allowlist" else allow,
            limits=Limits(**chosen.limits.model_dump()),
        )

    def workplace(self, spec: SandboxSpec, backend: str | None = None) -> Workplace:
        """Where the commands of ``spec``'s session run, as the gate must know it."""
        chosen = self.backend(backend)
        session = None if spec.home is None else spec.session
        return Workplace(
            backend=chosen.name,
            spec=spec,
            enforces=chosen.enforces,
            home=home_inside(self.settings, chosen.name, chosen.enforces, session),
            person_home=str(self.settings.person_home),
        ).with_lane_env()

    def session_place(self, folders: Folders, backend: str | None, project: Path | None) -> Workplace:
        """Where the turns of a session act: its desk, and the project that it is bound to (SESS-06)."""
        desk = Root(path=folders.desk, label="desk")
        bound = () if project is None else (Root(path=project),)
        spec = replace(self.spec(session=folders.key, roots=()), roots=(*bound, desk))
        if (path := self.settings.tools.exec.path) is not None:
            spec = replace(spec, env={**spec.env, "PATH": path})
        return self.workplace(spec, backend)

    def check_project(self, project: Path) -> None:
        """Raises BubblesError, or InvalidSpecError with the reason, for a directory that no sandbox would open."""
        if project.resolve().is_relative_to(self.settings.data_dir.resolve()):
            raise BubblesError(f"{project} is Bubbles' own: as a project take a directory made for the work.")
        try:
            resolve_spec(self.spec(session=None, roots=(project,)), self.backends)
        except InvalidSpecError as error:
            raise InvalidSpecError(str(error).replace("--root", "--project")) from error

    def home(self, session: str) -> Path:
        """Where the HOME of a session persists (SBX-03)."""
        return self.settings.data_dir / SESSION_HOMES / check_key(session)


def backend_settings(settings: Settings, on_refusal: OnRefusal | None = None) -> BackendSettings:
    chosen = settings.tools.sandbox
    return BackendSettings(
        data_dir=settings.data_dir,
        person_home=settings.person_home,
        host_env=settings.host_env,
        tool_dirs=chosen.tool_dirs,
        docker_url=chosen.docker.url or settings.host_env.get("DOCKER_HOST") or None,
        docker_image=chosen.docker.image,
        docker_runtime=chosen.docker.runtime,
        on_refusal=on_refusal,
    )


def enforced(settings: Settings, backend: str) -> Enforces:
    """What the sandbox of this name holds on this host. Raises InvalidSpecError for an unknown name."""
    if backend == "local":
        return Enforces.NOTHING
    with workshop(settings) as shop:
        return shop.backend(backend).enforces


def home_inside(settings: Settings, backend: str, holds: Enforces, session: str | None) -> str:
    """HOME of a session's commands, as they see it (SBX-03)."""
    if Enforces.FILESYSTEM in holds:
        return HARD_HOME
    if backend == "local":
        return str(settings.person_home)
    return NO_HOME if session is None else str(settings.data_dir / SESSION_HOMES / session)


ApproverFor = Callable[["Origin"], "Approver | None"]
"""Gives the way to the person behind an origin, or None if there is none."""
OnWarning = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The gate, and what others than its callers need of it."""

    controller: Controller
    broker: ApprovalBroker
    rules: Callable[[str], LoadedRules]
    """Those in force for a session; reads files that have changed."""


@asynccontextmanager
async def gate(
    shop: Workshop, approver_for: ApproverFor, on_warning: OnWarning = lambda _: None
) -> AsyncIterator[Controller]:
    """The gate over this workshop's sandboxes; leaving it closes them.

    ``on_warning`` is told what is wrong with the rules of all sessions: what is left out of them restricts nothing.
    """
    async with whole_gate(shop, approver_for, on_warning) as opened:
        yield opened.controller


@asynccontextmanager
async def whole_gate(
    shop: Workshop,
    approver_for: ApproverFor,
    on_warning: OnWarning = lambda _: None,
    away: Callable[[Origin], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
) -> AsyncIterator[Gate]:
    """As ``gate``; ``away`` is entered while a turn waits for a person."""
    # Its tables take a moment to import: commands that only use a sandbox do without.
    from bubbles.controller.approvals.broker import ApprovalBroker
    from bubbles.controller.background import BackgroundWatch
    from bubbles.controller.controller import Controller
    from bubbles.controller.policy.contract import Mode
    from bubbles.controller.redaction import Redactor
    from bubbles.controller.rulefiles import RuleShelf, rule_layers
    from bubbles.controller.timeline.writing import Timeline

    settings = shop.settings
    redactor = Redactor.of_environment(settings.host_env, secrets_of(settings))
    timeline = Timeline(settings.data_dir, redactor, owner=shop.owner.id)
    await timeline.close_lost(lambda owner: owner_alive(settings.data_dir, owner))
    shelf = RuleShelf(lambda session: rule_layers(settings, session))
    for warning in (await asyncio.to_thread(shelf.rulebook)).warnings:
        on_warning(str(warning))
    broker = ApprovalBroker(approver_for, timeout_s=settings.tools.approvals.timeout_s, away=away)

    def rules(session: str) -> LoadedRules:
        return shelf.rulebook(None if session == ONCE else session)

    async with BackgroundWatch(timeline) as watch, shop.sandboxes() as sandboxes:
        controller = Controller(
            sandboxes=sandboxes,
            rulebook=lambda session: rules(session).rulebook,
            broker=broker,
            timeline=timeline,
            mode=Mode(settings.tools.approvals.mode),
            watch=watch,
        )
        yield Gate(controller=controller, broker=broker, rules=rules)


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
    from bubbles.controller.redaction import Redactor
    from bubbles.dispatch.turns import Parts
    from bubbles.sessions.session import Sessions
    from bubbles.tools.all import make_tools

    redactor = Redactor.of_environment(settings.host_env, secrets_of(settings))
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


@contextmanager
def workshop(settings: Settings, on_refusal: OnRefusal | None = None) -> Iterator[Workshop]:
    """A workshop for as long as the context lasts; this process then owns the sandboxes it opens.

    ``on_refusal(session, sentence)`` is told of every connection that an allow-list refused. Raises BubblesError when
    the data directory cannot be used.
    """
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = Owner(settings.data_dir)
    except OSError as error:
        raise BubblesError(
            f"Bubbles cannot keep its files in {settings.data_dir} ({error.strerror}): make that writable, or name "
            "another directory in BUBBLES_HOME."
        ) from error
    try:
        yield Workshop(settings=settings, backends=backend_settings(settings, on_refusal), owner=owner)
    finally:
        owner.close()
