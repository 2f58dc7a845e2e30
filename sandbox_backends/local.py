"""``local``: commands run on the host as the controller's own user. No isolation; the same contract (SBX-01)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_backends.contract import BackendSettings, Enforces, Probe, SandboxSession, SandboxSpec
from sandbox_backends.environment import passed_on
from sandbox_backends.launch import launch
from sandbox_backends.leftovers import end_marked
from sandbox_backends.owner import Owner
from sandbox_backends.roots import resolve_spec
from sandbox_backends.session import Place, connect
from sandbox_backends.spec import refuse_beyond
from sandbox_backends.threads import in_thread


class LocalBackend:
    """The host itself. File tools keep to the roots; commands can reach whatever the user can."""

    name = "local"
    enforces = Enforces.NOTHING

    def __init__(self, settings: BackendSettings, owner: Owner) -> None:
        self._settings = settings
        self._owner = owner

    async def probe(self) -> Probe:
        return Probe(usable=True, version=f"Python {sys.version.split()[0]}")

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        spec = await asyncio.to_thread(resolve_spec, spec, self._settings)
        refuse_beyond(spec, self.name, self.enforces)
        roots = tuple(str(root.path) for root in spec.roots)
        async with in_thread(self._owner.sandbox(self.name, spec.session, roots)) as (ident, _):
            start = runner_argv()
            try:
                async with launch(lambda fd: (*start, str(fd)), env={}) as runner:
                    place = Place(
                        id=ident,
                        sock=runner.sock,
                        roots=spec.roots,
                        cwd=str(spec.cwd),
                        env={**passed_on(self._settings.host_env), **spec.env},
                        hard=False,
                        rlimits={"NOFILE": spec.limits.open_files} if spec.limits.open_files else {},
                        why_lost=runner.why_lost,
                    )
                    async with connect(place) as session:
                        yield session
            finally:
                # The runner ends what it started; this is for a runner that was itself killed.
                await end_marked(ident)


def runner_argv() -> tuple[str, ...]:
    """The command line of a runner on the host, its descriptor's number still to be added."""
    from sandbox_backends.runner import start

    return (sys.executable, "-I", "-S", "-B", str(start.__file__), "--fd")
