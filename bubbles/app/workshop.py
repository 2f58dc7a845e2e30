"""What commands that use sandboxes need: the settings, the backends, and this process as an owner of sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.app.trusted import refuse_believed
from bubbles.config.schema import Settings
from bubbles.controller.contract import Workplace
from bubbles.controller.sandboxes import Sandboxes
from bubbles.errors import BubblesError
from sandbox_backends.contract import BackendSettings, Enforces, Limits, Network, Root, SandboxBackend, SandboxSpec
from sandbox_backends.environment import HARD_HOME
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.inventory import reap
from sandbox_backends.owner import Owner, check_key
from sandbox_backends.registry import create_backend
from sandbox_backends.roots import resolve_spec

if TYPE_CHECKING:
    from bubbles.sessions.contract import Folders

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
        refuse_believed(self.settings, (project,))

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
