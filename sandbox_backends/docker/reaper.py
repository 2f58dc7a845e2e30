"""Containers that a dead controller left behind: found by label, removed only when their owner's lock is free."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_backends.contract import BackendSettings
from sandbox_backends.docker.container import LABEL, LABEL_DATA, LABEL_OWNER, LABEL_SESSION
from sandbox_backends.docker.engine import Engine, refusal
from sandbox_backends.docker.running import remove
from sandbox_backends.owner import Owner, forget, owner_alive, records


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInfo:
    """A sandbox's container, as the engine and the owner's lock tell."""

    container: str
    """The engine's id."""
    sandbox: str
    session: str
    owner: str
    alive: bool
    """Its controller still runs."""
    state: str
    """As the engine says: created, running, exited, …"""
    created_s: float


async def list_containers(settings: BackendSettings) -> tuple[ContainerInfo, ...]:
    """Every container of this data directory, oldest first. Raises BackendUnavailableError."""
    return await _list(Engine(settings.docker_url), settings.data_dir)


async def reap(settings: BackendSettings, owner: Owner | None = None, *, session: str | None = None) -> tuple[str, ...]:
    """Remove what dead controllers of this data directory left, or left of this session: containers, then records.

    The ids of the sandboxes whose containers were removed. A container of a live controller (``owner`` among them), or
    of another data directory, is never touched. Raises BackendUnavailableError.
    """
    engine = Engine(settings.docker_url)
    own = owner.id if owner is not None else ""
    removed, kept = [], set()
    for found in await _list(engine, settings.data_dir):
        wanted = session in (None, found.session) and not found.alive and found.owner != own
        if wanted and await remove(engine, found.container):
            removed.append(found.sandbox)
        else:
            kept.add(found.sandbox)
    await asyncio.to_thread(_forget_dead, settings.data_dir, kept, session)
    return tuple(removed)


def data_dir_id(data_dir: Path) -> str:
    """A name for this very data directory: two controllers in containers may both call theirs /data."""
    path = data_dir / "run" / "owners" / "id"
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        aside = path.with_name(f"id.{secrets.token_hex(4)}")
        aside.write_text(secrets.token_hex(8), encoding="ascii")
        try:
            os.link(aside, path)
        except FileExistsError:
            pass  # another process was faster
        finally:
            aside.unlink()
        return path.read_text(encoding="ascii")


async def _list(engine: Engine, data_dir: Path) -> tuple[ContainerInfo, ...]:
    from docker.errors import APIError

    try:
        ours = await asyncio.to_thread(data_dir_id, data_dir)
    except FileNotFoundError:
        return ()  # no controller has ever worked here
    chosen = {"label": f"{LABEL_DATA}={ours}"}
    try:
        rows = await engine.ask(lambda client: client.containers(all=True, filters=chosen))
    except APIError as error:
        raise refusal(error, "to list its containers") from error
    found = await asyncio.to_thread(lambda: [_info(row, data_dir) for row in rows])
    return tuple(sorted(found, key=lambda info: info.created_s))


def _info(row: dict[str, Any], data_dir: Path) -> ContainerInfo:
    labels = row.get("Labels") or {}
    owner = labels.get(LABEL_OWNER, "")
    return ContainerInfo(
        container=row["Id"],
        sandbox=labels.get(LABEL, ""),
        session=labels.get(LABEL_SESSION, ""),
        owner=owner,
        alive=owner_alive(data_dir, owner),
        state=str(row.get("State", "")),
        created_s=float(row.get("Created") or 0),
    )


def _forget_dead(data_dir: Path, still_there: set[str], session: str | None) -> None:
    for record in records(data_dir):
        wanted = record.backend == "docker" and session in (None, record.session)
        if wanted and record.id not in still_there:
            forget(data_dir, record)
