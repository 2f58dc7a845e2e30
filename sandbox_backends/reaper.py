"""Removing what controllers that died left of sandboxes made of processes (``docker/reaper.py`` is for containers)."""

from __future__ import annotations

from pathlib import Path

from sandbox_backends.cgroups import ControlGroup
from sandbox_backends.claims import sweep_groups
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.leftovers import end_marked_now
from sandbox_backends.litter import sweep_litter
from sandbox_backends.owner import SandboxRecord, forget, owner_alive, records, sweep_locks

OF_CONTAINERS = frozenset(("docker",))
"""Backends that leave more than processes, directories and control groups, and have a reaper of their own for it."""


def reap_processes(data_dir: Path, session: str | None = None) -> list[SandboxRecord]:
    """End and forget every orphaned sandbox of this data directory, or of this session; which they were.

    One with a live owner is left. A runner ends by itself with its controller, and a bubblewrap with its runner; this
    is for what did not, and for the records, homes and control groups that remain. It is the same for every backend, of
    other packages too. Several controllers may do it at once. Blocks: call it in a thread.
    """
    hierarchies = find_hierarchies()
    reaped = []
    for record in records(data_dir):
        if record.backend in OF_CONTAINERS or session not in (None, record.session):
            continue
        if owner_alive(data_dir, record.owner):
            continue
        end_marked_now(record.id)
        ControlGroup(record.id, hierarchies).end()
        forget(data_dir, record)
        reaped.append(record)
    if session is None:
        sweep_groups(hierarchies)
        sweep_litter(data_dir)
        sweep_locks(data_dir)
    return reaped
