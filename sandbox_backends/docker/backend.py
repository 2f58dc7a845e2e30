"""``docker``: one hardened container a session, whose runner comes back to us by a unix socket (SBX-05)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from sandbox_backends.contract import BackendSettings, Enforces, Network, Probe, SandboxSession, SandboxSpec
from sandbox_backends.docker.ceilings import Ceilings, ceilings
from sandbox_backends.docker.container import HOME, INSIDE_LINK, LABEL_DATA, LABEL_OWNER, Plan, lay
from sandbox_backends.docker.engine import Engine, EngineInfo
from sandbox_backends.docker.image import image_env
from sandbox_backends.docker.reaper import data_dir_id
from sandbox_backends.docker.running import running
from sandbox_backends.environment import SYSTEM_PATH, of_hard_place
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError, UnsupportedSpecError
from sandbox_backends.network import PROXY_URL, egress
from sandbox_backends.owner import Owner, stage_runner
from sandbox_backends.privileges import RunAs, run_as
from sandbox_backends.roots import check_tool_dirs, refuse_in_hard_place, resolve_spec
from sandbox_backends.session import Place, connect
from sandbox_backends.spec import refuse_beyond
from sandbox_backends.threads import in_thread

EVERYTHING = ~Enforces.NOTHING
Transport = Literal["auto", "unix", "attach"]


class DockerBackend:
    """Containers of one engine.

    ``transport`` is how frames travel: by a unix socket in a bind mount, or, where that cannot be shared with a
    container, in the stdin and stdout of its main process. ``auto`` takes what the engine can do.
    """

    name = "docker"

    def __init__(self, settings: BackendSettings, owner: Owner, transport: Transport = "auto") -> None:
        self._settings = settings
        self._owner = owner
        self._transport = transport
        self._engine = Engine(settings.docker_url)

    @property
    def enforces(self) -> Enforces:
        """Everything, until the engine has been asked; ``open`` asks it before it holds a spec against this."""
        known = self._engine.known
        return EVERYTHING if known is None else known.enforces

    async def probe(self) -> Probe:
        try:
            await asyncio.to_thread(check_tool_dirs, self._settings)
            info = await self._engine.info(fresh=True)
            self._check_runtime(info)
            await image_env(self._engine, self._settings.docker_image)
        except BackendUnavailableError as error:
            return Probe(usable=False, reason=error.reason, remedy=error.remedy)
        except InvalidSpecError as error:
            return Probe(usable=False, reason=str(error))
        missing = [flag.name.lower() for flag in EVERYTHING & ~info.enforces if flag.name]
        if not missing:
            return Probe(usable=True, version=info.version)
        return Probe(
            usable=True,
            reason=f"This Docker engine does not limit {', '.join(missing)}.",
            remedy="Rootless Docker needs cgroup v2 with the controllers delegated to your user.",
            version=info.version,
        )

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        spec = await asyncio.to_thread(resolve_spec, spec, self._settings)
        roots = tuple(str(root.path) for root in spec.roots)
        await asyncio.to_thread(refuse_in_hard_place, spec, self._settings)
        for root in spec.roots:
            if not str(root.path).isprintable():
                raise InvalidSpecError(f"Root {str(root.path)!r} has a name that a container engine cannot be told.")
        info = await self._engine.info()
        refuse_beyond(spec, self.name, info.enforces, soft=False)
        self._check_runtime(info)
        if spec.network is Network.ALLOWLIST and not info.shares_sockets(self._settings.docker_runtime):
            raise UnsupportedSpecError(
                "The docker sandbox cannot enforce network 'allowlist' here: the engine's containers cannot reach the "
                "proxy's socket. Take network 'none' or 'full', or an engine and runtime of this kernel."
            )
        limits = ceilings(spec.limits, info)
        # Where the engine's machine is another one, a directory has another identity there.
        same = info.shares_sockets(self._settings.docker_runtime)
        shown = spec.roots if same else tuple(replace(root, identity=None) for root in spec.roots)
        image = await image_env(self._engine, self._settings.docker_image)
        async with in_thread(self._owner.sandbox(self.name, spec.session, roots)) as (ident, directory):
            plan, who = await asyncio.to_thread(self._plan, ident, directory, spec, info, limits)
            async with (
                egress(spec, plan.link, INSIDE_LINK, self._on_refusal(spec.session)) as bridge,
                running(self._engine, plan) as container,
            ):
                env = {**image, **of_hard_place(HOME, PROXY_URL if bridge else None, spec.allow)}
                env["PATH"] = f"{HOME}/.local/bin:{image.get('PATH', SYSTEM_PATH)}"
                place = Place(
                    id=ident,
                    sock=container.sock,
                    roots=shown,
                    cwd=str(spec.cwd),
                    env={**env, **spec.env},
                    hard=True,
                    refuse_setid=who.refuse_setid,
                    rlimits={"NOFILE": limits.open_files, "CORE": 0},
                    bridge=bridge,
                    warnings=who.warnings + limits.missing,
                    why_lost=container.why_lost,
                )
                async with connect(place) as session:
                    yield session

    def _plan(
        self, ident: str, directory: Path, spec: SandboxSpec, info: EngineInfo, limits: Ceilings
    ) -> tuple[Plan, RunAs]:
        """Decide on the container and lay out its files. Blocks; raises BackendUnavailableError."""
        settings = self._settings
        who = run_as(spec, settings.data_dir)
        # A rootless engine maps its own user to 0 and nobody else to anything that owns files here.
        user = (0, 0) if info.rootless else (who.uid, who.gid)
        plan = Plan(
            id=ident,
            spec=spec,
            image=settings.docker_image,
            user=user,
            peer_uid=os.stat(self._engine.socket_path).st_uid if info.rootless else who.uid,
            home=spec.home,
            ceilings=limits,
            directory=directory,
            lib=stage_runner(settings.data_dir),
            tool_dirs=settings.tool_dirs,
            runtime=settings.docker_runtime,
            host_users=info.user_mapping,
            own_cgroup_view=info.api >= (1, 41),
            stdio=self._by_attach(info),
            labels=((LABEL_DATA, data_dir_id(settings.data_dir)), (LABEL_OWNER, self._owner.id)),
        )
        lay(plan)
        return plan, who

    def _by_attach(self, info: EngineInfo) -> bool:
        if self._transport == "auto":
            return not info.shares_sockets(self._settings.docker_runtime)
        return self._transport == "attach"

    def _on_refusal(self, session: str) -> Callable[[str], None]:
        told = self._settings.on_refusal
        return (lambda _: None) if told is None else partial(told, session)

    def _check_runtime(self, info: EngineInfo) -> None:
        wanted = self._settings.docker_runtime
        if wanted is not None and wanted not in info.runtimes:
            known = ", ".join(sorted(info.runtimes))
            raise BackendUnavailableError(
                f"The Docker engine knows no runtime {wanted!r}, only {known}.",
                "Add it to 'runtimes' in /etc/docker/daemon.json and restart the engine.",
            )
