"""Composition root: settings in, objects out. The only file that brings concrete classes together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.config.schema import Settings
from bubbles.controller.contract import Workplace
from bubbles.controller.sandboxes import Sandboxes
from bubbles.errors import BubblesError
from sandbox_backends.contract import BackendSettings, Enforces, Limits, Network, Root, SandboxBackend, SandboxSpec
from sandbox_backends.environment import HARD_HOME
from sandbox_backends.inventory import reap
from sandbox_backends.owner import Owner, check_key, owner_alive
from sandbox_backends.registry import create_backend

if TYPE_CHECKING:
    from bubbles.bus import Origin
    from bubbles.controller.approvals.contract import Approver
    from bubbles.controller.controller import Controller

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
        docker_url=chosen.docker.url,
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


@asynccontextmanager
async def gate(
    shop: Workshop,
    approver_for: Callable[[Origin], Approver | None],
    on_warning: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Controller]:
    """The gate over this workshop's sandboxes; leaving it closes them.

    ``approver_for`` gives the way to the person behind an origin, or None if there is none. ``on_warning`` is told
    what is wrong with the rules of all sessions: what is left out of them restricts nothing.
    """
    # Its tables take a moment to import: commands that only use a sandbox do without.
    from bubbles.controller.approvals.broker import ApprovalBroker
    from bubbles.controller.controller import Controller
    from bubbles.controller.policy.contract import Mode
    from bubbles.controller.redaction import Redactor
    from bubbles.controller.rulefiles import RuleShelf, rule_layers
    from bubbles.controller.timeline.writing import Timeline

    settings = shop.settings
    timeline = Timeline(settings.data_dir, Redactor.of_environment(settings.host_env), owner=shop.owner.id)
    await timeline.close_lost(lambda owner: owner_alive(settings.data_dir, owner))
    shelf = RuleShelf(lambda session: rule_layers(settings, session))
    for warning in (await asyncio.to_thread(shelf.rulebook)).warnings:
        on_warning(str(warning))
    async with shop.sandboxes() as sandboxes:
        yield Controller(
            sandboxes=sandboxes,
            rulebook=lambda session: shelf.rulebook(None if session == ONCE else session).rulebook,
            broker=ApprovalBroker(approver_for, timeout_s=settings.tools.approvals.timeout_s),
            timeline=timeline,
            mode=Mode(settings.tools.approvals.mode),
        )


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
