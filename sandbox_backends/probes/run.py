"""Measures a backend: plants canaries on the host, opens real sessions, and lets the probes loose in them (SBX-09).

Two sessions with homes of their own are open at a time, so that one can look for the other's; a third, with a
throw-away home, is for the one probe about that. Probes that take all they can get run one a command, and a session
that is lost under them is opened anew for the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sandbox_backends.contract import (
    BackendSettings,
    Enforces,
    ExecRequest,
    Limits,
    Outcome,
    Root,
    SandboxBackend,
    SandboxSession,
    SandboxSpec,
)
from sandbox_backends.errors import BackendUnavailableError, SandboxLostError, UnsupportedSpecError
from sandbox_backends.owner import Owner
from sandbox_backends.probes import bundle
from sandbox_backends.probes.canaries import Canaries, planted, planted_setuid
from sandbox_backends.probes.catalog import GROUPS, PROBES, ProbeInfo, promised
from sandbox_backends.probes.demands import CEILINGS, demands, said
from sandbox_backends.probes.leavings import SESSION_DIRS, SESSION_PREFIX
from sandbox_backends.probes.report import ProbeResult, Report
from sandbox_backends.registry import Factory, create_backend
from sandbox_backends.threads import in_thread

Found = dict[str, tuple[bool | None, str]]

MIB = 1 << 20
PATIENCE_S = 120.0
NEIGHBOUR_FILE = ".bubbles-canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Where the doctor's sessions live; under the data directory, as every session does."""

    key: str
    root: Path
    home: Path
    neighbour_root: Path
    neighbour_home: Path

    def spec(self, limits: Limits, *, home: Path | None) -> SandboxSpec:
        return SandboxSpec(session=self.key, roots=(Root(path=self.root, label="desk"),), home=home, limits=limits)

    def neighbour(self, limits: Limits) -> SandboxSpec:
        roots = (Root(path=self.neighbour_root, label="desk"),)
        return SandboxSpec(session=f"{self.key}-other", roots=roots, home=self.neighbour_home, limits=limits)


async def run_probes(
    name: str,
    settings: BackendSettings,
    owner: Owner,
    *,
    only: Collection[str] | None = None,
    create: Factory | None = None,
) -> Report:
    """Try the probes inside backend ``name``: all of them, or those whose ids are in ``only``.

    All together take some seconds and, for a moment, what the limits let them take. A backend that cannot be used gives
    a report without results. ``create`` makes the backend instead of the registry.
    """
    root = os.geteuid() == 0
    async with in_thread(planted(settings)) as canaries, in_thread(_bench(settings)) as bench:
        backend = (create or partial(create_backend, name))(canaries.settings, owner)
        probe = await backend.probe()
        report = Report(
            backend=name,
            root=root,
            usable=probe.usable,
            reason=probe.reason,
            remedy=probe.remedy,
            version=probe.version,
            enforces=backend.enforces,
        )
        if not probe.usable:
            return report
        wanted = tuple(info for info in PROBES if only is None or info.id in only)
        try:
            found, notes = await _measure(backend, canaries, bench, wanted)
        except BackendUnavailableError as error:
            return replace(report, usable=False, reason=error.reason, remedy=error.remedy)
        promises = promised(name, root=root)
        return replace(report, notes=notes, results=tuple(_result(info, found, promises) for info in wanted))


def _result(info: ProbeInfo, found: Found, promises: frozenset[str]) -> ProbeResult:
    held, detail = found.get(info.id, (False, "not measured"))
    return ProbeResult(info=info, held=held, promised=info.id in promises, detail=detail)


async def _measure(
    backend: SandboxBackend, canaries: Canaries, bench: _Bench, wanted: Sequence[ProbeInfo]
) -> tuple[Found, tuple[str, ...]]:
    limits, notes = await _demandable(backend, bench)
    found: Found = {}
    async with _neighbour(backend, canaries, bench, limits) as session_file:
        outside = await asyncio.to_thread(canaries.config, root=bench.root, session_file=session_file)
        given = {**outside, "ceilings": CEILINGS, "cpus": limits.cpus}
        throw_away = [[info] for info in wanted if info.id == "disk-home"]
        await _ask_all(backend, bench.spec(limits, home=bench.home), _batches(wanted), given, found)
        await _ask_all(backend, bench.spec(limits, home=None), throw_away, given, found)
    return found, notes


async def _demandable(backend: SandboxBackend, bench: _Bench) -> tuple[Limits, tuple[str, ...]]:
    """The limits that the backend takes, tried by opening a session; with the session's own warnings."""
    wanted = demands(backend.enforces)
    try:
        async with backend.open(bench.spec(wanted, home=bench.home)) as session:
            told = (f"Limits are measured with limits set: {said(wanted)}.",) if said(wanted) else ()
            return wanted, (*told, *session.warnings)
    except UnsupportedSpecError as error:
        async with backend.open(bench.spec(Limits(), home=bench.home)) as session:
            return Limits(), (f"Measured with the backend's default limits: {error}", *session.warnings)


def _batches(wanted: Sequence[ProbeInfo]) -> list[list[ProbeInfo]]:
    """One a group; each measure of a limit by itself. The throw-away home has a session of its own."""
    groups = [[info for info in wanted if info.group == group] for group in GROUPS if group != "limits"]
    limits = [[info] for info in wanted if info.group == "limits" and info.id != "disk-home"]
    return [group for group in groups if group] + limits


async def _ask_all(
    backend: SandboxBackend,
    spec: SandboxSpec,
    batches: Sequence[Sequence[ProbeInfo]],
    given: Mapping[str, object],
    found: Found,
) -> None:
    waiting = list(batches)
    while waiting:
        async with backend.open(spec) as session, in_thread(planted_setuid(spec.roots[0].path)) as program:
            alive = True
            while waiting and alive:
                ids = [info.id for info in waiting.pop(0)]
                try:
                    found.update(await _ask(session, ids, {**given, "setuid_program": program}))
                except SandboxLostError as error:
                    found.update(dict.fromkeys(ids, (False, f"not measured: {error}")))
                alive = session.lost is None


async def _ask(session: SandboxSession, ids: Sequence[str], given: Mapping[str, object]) -> Found:
    stdin = await asyncio.to_thread(bundle.stdin_for, ids, given)
    request = ExecRequest(argv=bundle.ARGV, stdin=stdin, timeout_s=PATIENCE_S, max_output_bytes=MIB)
    result = await session.exec(request)
    end = f"{result.outcome}, {result.stderr.decode('utf-8', 'replace').strip()[-300:]}"
    found: Found = dict.fromkeys(ids, (False, f"not measured: {end}"))
    if result.outcome is Outcome.OOM and ids[0].startswith("memory-"):
        found = dict.fromkeys(ids, (True, "ended by the memory limit"))
    for line in result.stdout.splitlines():
        row = _row(line)
        if row is not None and row[0] in found:
            found[row[0]] = row[1:]
    return found


def _row(line: bytes) -> tuple[str, bool | None, str] | None:
    """A line of answer, if it is one: whatever comes out of a place is distrusted."""
    try:
        row = json.loads(line)
        ident, held, detail = row["id"], row["held"], row["detail"]
    except (ValueError, TypeError, KeyError):
        return None
    if isinstance(ident, str) and (held is None or isinstance(held, bool)) and isinstance(detail, str):
        return ident, held, detail
    return None


@asynccontextmanager
async def _neighbour(backend: SandboxBackend, canaries: Canaries, bench: _Bench, limits: Limits) -> AsyncIterator[str]:
    """Another session of the same backend, open, with a readable secret in its home: the secret's path on the host."""
    path = bench.neighbour_home / NEIGHBOUR_FILE
    async with backend.open(bench.neighbour(limits)) as session:
        if Enforces.CREDENTIALS in backend.enforces:
            script = f'printf %s {canaries.token} >"$HOME/{NEIGHBOUR_FILE}" && chmod 644 "$HOME/{NEIGHBOUR_FILE}"'
            result = await session.exec(ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=20.0))
            if not result.ok:
                said = result.stderr.decode("utf-8", "replace")
                raise BackendUnavailableError(f"A session cannot write in its own home: {said}")
        else:
            await asyncio.to_thread(path.write_text, canaries.token)
        yield str(path)


@contextmanager
def _bench(settings: BackendSettings) -> Iterator[_Bench]:
    key = f"{SESSION_PREFIX}{secrets.token_hex(4)}"
    sessions, homes = (settings.data_dir / name for name in SESSION_DIRS)
    bench = _Bench(
        key=key,
        root=sessions / key,
        home=homes / key,
        neighbour_root=sessions / f"{key}-other",
        neighbour_home=homes / f"{key}-other",
    )
    directories = (bench.root, bench.home, bench.neighbour_root, bench.neighbour_home)
    try:
        for directory in directories:
            directory.mkdir(parents=True, mode=0o700)
        yield bench
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
