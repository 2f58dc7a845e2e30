"""Opening and ending one bubblewrap a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_backends.bubblewrap.command import command
from sandbox_backends.bubblewrap.layout import LIB, NET, View, own_devices
from sandbox_backends.bubblewrap.limits import Holding
from sandbox_backends.bubblewrap.program import Program, find_bwrap, require_python
from sandbox_backends.bubblewrap.system import HOME
from sandbox_backends.bubblewrap.trial import explain, try_out
from sandbox_backends.cgroups import Ceilings, ControlGroup, held_group
from sandbox_backends.contract import BackendSettings, Enforces, Limits, Network, Probe, SandboxSession, SandboxSpec
from sandbox_backends.environment import of_hard_place
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.launch import RunnerProcess, launch
from sandbox_backends.network import PROXY_URL, egress
from sandbox_backends.owner import Owner, stage_runner
from sandbox_backends.privileges import RunAs, run_as
from sandbox_backends.roots import check_tool_dirs, refuse_in_hard_place, resolve_spec
from sandbox_backends.session import Place, connect
from sandbox_backends.spec import refuse_beyond
from sandbox_backends.threads import in_thread

SHARED_NETWORK = (
    "Network 'full' is the host's own: services on its loopback and abstract unix sockets can be reached from inside."
)
KILLED = (-9, 137)


class BubblewrapBackend:
    """Namespaces, a minimal read-only system, our system call filter; control groups too under a root controller."""

    name = "bubblewrap"

    def __init__(self, settings: BackendSettings, owner: Owner) -> None:
        self._settings = settings
        self._owner = owner
        self._holding = Holding.of(find_hierarchies())
        self._program: Program | None = None

    @property
    def enforces(self) -> Enforces:
        return Enforces.FILESYSTEM | Enforces.NETWORK | Enforces.CREDENTIALS | self._holding.enforces

    async def probe(self) -> Probe:
        try:
            await asyncio.to_thread(check_tool_dirs, self._settings)
            program = await self._found()
            python = await try_out(program, self._settings)
        except BackendUnavailableError as error:
            return Probe(usable=False, reason=error.reason, remedy=error.remedy)
        except InvalidSpecError as error:
            return Probe(usable=False, reason=str(error))
        missing = self._holding.missing(Ceilings.of(Limits()))
        return Probe(
            usable=True,
            reason=" ".join(missing),
            remedy=self._holding.mend if missing else "",
            version=f"bwrap {program.version}, Python {python}",
        )

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        spec = await asyncio.to_thread(resolve_spec, spec, self._settings)
        await asyncio.to_thread(refuse_in_hard_place, spec, self._settings)
        refuse_beyond(spec, self.name, self.enforces, soft=False)
        ceilings = Ceilings.of(spec.limits)
        self._holding.tmp_bytes(spec, ceilings, len(View(home=spec.home).temporary))
        program = await self._found()
        roots = tuple(str(root.path) for root in spec.roots)
        async with in_thread(self._owner.sandbox(self.name, spec.session, roots)) as (ident, directory):
            who = await asyncio.to_thread(run_as, spec, self._settings.data_dir)
            if who.uid == 0:
                self._holding.refuse_exempt(spec)
            async with (
                in_thread(held_group(ident, ceilings, self._holding.groups)) as group,
                self._network(spec, directory) as (net, bridge),
                self._launched(spec, program, who, group, directory, net) as runner,
            ):
                place = Place(
                    id=ident,
                    sock=runner.sock,
                    roots=spec.roots,
                    cwd=str(spec.cwd),
                    env=self._env(spec, bridge),
                    hard=True,
                    refuse_setid=who.refuse_setid,
                    rlimits=self._holding.rlimits(spec.limits, ceilings),
                    bridge=bridge,
                    warnings=self._warnings(spec, who, ceilings),
                    oom_kills=group.oom_kills,
                    why_lost=lambda: _why_lost(runner, group),
                )
                async with connect(place) as session:
                    yield session

    async def _found(self) -> Program:
        """Looked for until it is there, then remembered."""
        if self._program is None:
            self._program = await find_bwrap(self._settings)
        return self._program

    @asynccontextmanager
    async def _network(self, spec: SandboxSpec, directory: Path) -> AsyncIterator[tuple[Path | None, tuple[str, ...]]]:
        """The directory with the egress proxy's socket and the bridge's arguments, where the spec has an allow-list."""
        if spec.network is not Network.ALLOWLIST:
            yield None, ()
            return
        net = directory / "net"
        await asyncio.to_thread(net.mkdir, 0o755)
        told = self._settings.on_refusal
        async with egress(spec, net, NET, lambda sentence: told(spec.session, sentence) if told else None) as bridge:
            yield net, bridge

    @asynccontextmanager
    async def _launched(
        self, spec: SandboxSpec, program: Program, who: RunAs, group: ControlGroup, directory: Path, net: Path | None
    ) -> AsyncIterator[RunnerProcess]:
        python = await asyncio.to_thread(require_python, self._settings)
        view = View(
            roots=spec.roots,
            home=spec.home,
            tools=self._settings.tool_dirs,
            lib=await asyncio.to_thread(stage_runner, self._settings.data_dir),
            net=net,
            share_net=spec.network is Network.FULL,
            tmp_bytes=self._holding.tmp_bytes(spec, Ceilings.of(spec.limits), len(View(home=spec.home).temporary)),
            devices=await asyncio.to_thread(own_devices, directory) if who.dropped and who.uid == 0 else None,
            host_root=who.uid == 0,
        )
        inner = (python, "-I", "-S", "-B", f"{LIB}/runner/start.py", "--fd")
        made = command(inner, view, program, who, directory=directory, groups=group.entries)
        async with (
            in_thread(made) as (argv, fds),
            launch(lambda fd: (*argv, str(fd)), env={}, pass_fds=fds) as runner,
        ):
            yield runner

    def _env(self, spec: SandboxSpec, bridge: tuple[str, ...]) -> Mapping[str, str]:
        env = of_hard_place(HOME, PROXY_URL if bridge else None, spec.allow)
        tools = [str(path) for tool in self._settings.tool_dirs for path in (tool / "bin", tool)]
        first, _, rest = env["PATH"].partition(":")
        return {**env, "PATH": ":".join((first, *tools, rest)), **spec.env}

    def _warnings(self, spec: SandboxSpec, who: RunAs, ceilings: Ceilings) -> tuple[str, ...]:
        shared = (SHARED_NETWORK,) if spec.network is Network.FULL else ()
        return (*who.warnings, *self._holding.missing(ceilings, host_root=who.uid == 0), *shared)


async def _why_lost(runner: RunnerProcess, group: ControlGroup) -> str:
    said = await runner.why_lost()
    if said.startswith("bwrap: "):
        return " ".join(await asyncio.to_thread(explain, said))
    return "it ran out of its memory limit" if runner.process.returncode in KILLED and group.oom_kills() else said
