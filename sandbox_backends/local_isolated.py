"""``local_isolated``: the host, but with a HOME of the session's own, so that logins are kept apart (SBX-03).

Under a root controller the session also has a user of its own (``privileges.py``) and a control group. What it could
not walk to as that user, such as its desk below /root, is shown to it alone, in a mount namespace of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sandbox_backends.cgroups import Ceilings, ControlGroup, held_group
from sandbox_backends.contract import BackendSettings, Enforces, Probe, SandboxSession, SandboxSpec
from sandbox_backends.drop import dropping, uncover, write_table
from sandbox_backends.environment import SYSTEM_PATH, passed_on, with_own_home
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.launch import RunnerProcess, launch
from sandbox_backends.leftovers import end_marked
from sandbox_backends.owner import Owner, stage_runner
from sandbox_backends.privileges import RunAs, controller_drops, reaches, run_as, usable_uids
from sandbox_backends.roots import resolve_spec
from sandbox_backends.runner.processes import MARKER
from sandbox_backends.session import Place, connect
from sandbox_backends.spec import refuse_beyond
from sandbox_backends.threads import in_thread
from sandbox_backends.trials import run_short, trial_directory

AS_ROOT = (
    "These commands are the host's root in all but its capabilities: local_isolated keeps them from nothing that "
    "root owns. Take bubblewrap or docker for a project of root's."
)
MEND = "Run the controller as an ordinary user, or its container with --cap-add SYS_ADMIN."


class LocalIsolatedBackend:
    """Logins apart. Commands can read and change what the session's user can."""

    name = "local_isolated"

    def __init__(self, settings: BackendSettings, owner: Owner) -> None:
        self._settings = settings
        self._owner = owner
        self._hierarchies = find_hierarchies()

    @property
    def enforces(self) -> Enforces:
        # Their number is bounded as well, but PROCESSES also says that others are invisible.
        return Enforces.CREDENTIALS | self._hierarchies.enforces & ~Enforces.PROCESSES

    async def probe(self) -> Probe:
        if not controller_drops():
            return Probe(usable=True, version=f"Python {sys.version.split()[0]}")
        try:
            return await self._try_out()
        except BackendUnavailableError as error:
            return Probe(usable=False, reason=error.reason, remedy=error.remedy)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        spec = await asyncio.to_thread(resolve_spec, spec, self._settings)
        refuse_beyond(spec, self.name, self.enforces)
        roots = tuple(str(root.path) for root in spec.roots)
        ceilings = Ceilings.of(spec.limits)
        async with in_thread(self._owner.sandbox(self.name, spec.session, roots)) as (ident, directory):
            home = spec.home or directory / "home"
            who = await asyncio.to_thread(run_as, replace(spec, home=home), self._settings.data_dir)
            try:
                async with (
                    in_thread(held_group(ident, ceilings, self._hierarchies)) as group,
                    self._launched(spec, home, who, group, directory) as runner,
                ):
                    place = Place(
                        id=ident,
                        sock=runner.sock,
                        roots=spec.roots,
                        cwd=str(spec.cwd),
                        env={**self._env(home, who), **spec.env},
                        hard=False,
                        rlimits={"NOFILE": spec.limits.open_files} if spec.limits.open_files else {},
                        warnings=(*who.warnings, *((AS_ROOT,) if who.refuse_setid else ())),
                        oom_kills=group.oom_kills,
                        why_lost=lambda: _why_lost(runner, group),
                    )
                    async with connect(place) as session:
                        yield session
            finally:
                # The runner ends what it started; this is for a runner that was itself killed.
                await end_marked(ident)

    @asynccontextmanager
    async def _launched(
        self, spec: SandboxSpec, home: Path, who: RunAs, group: ControlGroup, directory: Path
    ) -> AsyncIterator[RunnerProcess]:
        argv = await asyncio.to_thread(self._argv, spec, home, who, group, directory)
        # The marker lets a reaper find the runner itself, should a command have stopped it.
        async with launch(lambda fd: (*argv, str(fd)), env={MARKER: f"{directory.name}.runner"}) as runner:
            yield runner

    def _argv(self, spec: SandboxSpec, home: Path, who: RunAs, group: ControlGroup, directory: Path) -> tuple[str, ...]:
        lib = stage_runner(self._settings.data_dir)
        python = find_python(who)
        argv = (python, "-I", "-S", "-B", str(lib / "runner" / "start.py"), "--fd")
        if not who.dropped:
            return argv
        try:
            table = uncover((*(root.path for root in spec.roots), home, lib), who)
        except OSError as error:
            raise BackendUnavailableError(f"{error.filename} cannot be shown: {error.strerror}.") from error
        return dropping(
            argv,
            who,
            groups=group.entries,
            table=write_table(table, directory),
            unstage=table.unstage,
            no_new_privileges=True,
        )

    async def _try_out(self) -> Probe:
        """Drop to a user such as sessions have, in a directory that only mounts let it reach."""
        uid = usable_uids()[-1]
        who = RunAs(uid=uid, gid=uid)
        async with in_thread(trial_directory()) as directory:
            status, said = await run_short(await asyncio.to_thread(_trial_argv, directory, who, mounts=True))
            if status == 0:
                return Probe(usable=True, version=f"Python {said.strip()}")
            why = f"{said.strip() or 'its process ended at once'}"
            status, said = await run_short(await asyncio.to_thread(_trial_argv, directory, who, mounts=False))
        data = self._settings.data_dir
        if status == 0 and await asyncio.to_thread(reaches, data, uid, uid):
            reason = f"Directories that a session's user cannot walk to cannot be shown to it here ({why})."
            return Probe(usable=True, reason=reason, remedy=MEND, version=f"Python {said.strip()}")
        return Probe(usable=False, reason=f"Root cannot start a session as a lesser user here: {why}.", remedy=MEND)

    def _env(self, home: Path, who: RunAs) -> Mapping[str, str]:
        env = with_own_home(passed_on(self._settings.host_env), str(home))
        if who.dropped:
            # Root's own, and a directory that only root may be able to use.
            env.update(USER="agent", LOGNAME="agent")
            env.pop("TMPDIR", None)
        return env


async def _why_lost(runner: RunnerProcess, group: ControlGroup) -> str:
    said = await runner.why_lost()
    return "it ran out of its memory limit" if runner.process.returncode == -9 and group.oom_kills() else said


def _trial_argv(directory: Path, who: RunAs, *, mounts: bool) -> tuple[str, ...]:
    inner = directory / "inner"
    inner.mkdir(mode=0o755, exist_ok=True)
    look = f"os.listdir({str(inner)!r});" if mounts else ""
    check = f"import os, platform; {look} print(platform.python_version())"
    table = uncover([inner] if mounts else [], who)
    argv = (find_python(who), "-I", "-S", "-c", check)
    return dropping(argv, who, table=write_table(table, directory), unstage=table.unstage, no_new_privileges=True)


def find_python(who: RunAs) -> str:
    """A Python for the runner that this user may execute. Blocks. Raises BackendUnavailableError."""
    if not who.dropped:
        return sys.executable
    for directory in SYSTEM_PATH.split(":"):
        path = Path(directory, "python3")
        if path.exists() and os.access(path, os.X_OK):
            return str(path)
    prefixes = {Path(os.path.realpath(path)) for path in (sys.executable, sys.base_prefix, sys.prefix)}
    if all(reaches(path, who.uid, who.gid) for path in prefixes):
        return sys.executable
    raise BackendUnavailableError(
        f"There is no python3 in {SYSTEM_PATH}, and the controller's own, {sys.executable}, cannot be run by the "
        "session's user.",
        "apt-get install python3",
    )
