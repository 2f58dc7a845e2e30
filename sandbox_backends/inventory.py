"""All sandboxes of a data directory, whatever they are made of: what is open, what a crash left, what is kept."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.owner import SandboxRecord, owner_alive, owner_pid, records
from sandbox_backends.reaper import OF_CONTAINERS, reap_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    record: SandboxRecord
    alive: bool
    """Its owner still runs. Otherwise it is a leftover, and the next start removes it."""

    @property
    def state(self) -> str:
        """For people."""
        if not self.alive:
            return "left over"
        pid = self.record.owner_pid
        return f"open (process {pid})" if pid else "open (by a process that cannot be told)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHome:
    session: str
    size_bytes: int


async def list_sandboxes(settings: BackendSettings) -> list[SandboxStatus]:
    """Every sandbox on record, and every container of ours without one; oldest first."""

    def recorded() -> list[SandboxStatus]:
        data_dir = settings.data_dir
        return [SandboxStatus(record=row, alive=owner_alive(data_dir, row.owner)) for row in records(data_dir)]

    found = await asyncio.to_thread(recorded)
    known = {status.record.id for status in found}
    if await asyncio.to_thread(_used_docker, settings.data_dir):
        from sandbox_backends.docker.reaper import list_containers

        try:
            containers = await list_containers(settings)
        except BackendUnavailableError:
            containers = ()  # what is not there to be asked has no containers running
        owners = {one.owner for one in containers}
        pids = await asyncio.to_thread(lambda: {owner: owner_pid(settings.data_dir, owner) for owner in owners})
        found += [
            SandboxStatus(
                record=SandboxRecord(
                    id=one.sandbox,
                    backend="docker",
                    session=one.session,
                    owner=one.owner,
                    owner_pid=pids.get(one.owner, 0),
                    created_s=one.created_s,
                    roots=(),
                ),
                alive=one.alive,
            )
            for one in containers
            if one.sandbox not in known
        ]
    return sorted(found, key=lambda status: status.record.created_s)


async def reap(settings: BackendSettings, *, session: str | None = None, ask_engine: bool = True) -> list[str]:
    """Remove whatever dead controllers left, or left of this session; the ids of the sandboxes that were removed.

    A container engine that was ever used here is asked too; without ``ask_engine`` only if one of its sandboxes is on
    record as left over. One that does not answer is not complained about: what it holds stays on record.
    """
    data_dir = settings.data_dir
    removed = [record.id for record in await asyncio.to_thread(reap_processes, data_dir, session)]
    if not await asyncio.to_thread(_used_docker, data_dir):
        return removed
    left = await asyncio.to_thread(_left_containers, data_dir, session)
    if not left and not ask_engine:
        return removed
    from sandbox_backends.docker.reaper import reap as reap_containers

    try:
        removed += await reap_containers(settings, session=session)
    except BackendUnavailableError:
        return removed
    still = {record.id for record in await asyncio.to_thread(_left_containers, data_dir, session)}
    return list(dict.fromkeys((*removed, *(record.id for record in left if record.id not in still))))


def _left_containers(data_dir: Path, session: str | None) -> list[SandboxRecord]:
    """Sandboxes on record that a dead controller left to the engine."""
    return [
        record
        for record in records(data_dir)
        if record.backend in OF_CONTAINERS
        and session in (None, record.session)
        and not owner_alive(data_dir, record.owner)
    ]


def session_homes(data_dir: Path) -> list[SessionHome]:
    """The HOMEs kept for sessions, by name, and what they take on disk; links are not followed. Blocks."""
    try:
        names = sorted(entry.name for entry in os.scandir(data_dir / "session_homes") if entry.is_dir())
    except FileNotFoundError:
        return []
    return [SessionHome(session=name, size_bytes=_size(data_dir / "session_homes" / name)) for name in names]


def _size(directory: Path) -> int:
    """By paths, and so only as deep as a path may be long; what lies deeper is not counted."""
    total, todo = 0, [str(directory)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue
    return total


def _used_docker(data_dir: Path) -> bool:
    """Whether this data directory ever had a container: asking the engine costs an import and a round trip."""
    return (data_dir / "run" / "owners" / "id").exists()
