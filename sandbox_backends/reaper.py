"""Removing what controllers that died left of sandboxes made of processes (``docker/reaper.py`` is for containers)."""

from __future__ import annotations

from pathlib import Path

from sandbox_backends.cgroups import ControlGroup, sweep_groups
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.leftovers import end_marked_now
from sandbox_backends.owner import SandboxRecord, check_key, forget, owner_alive, records, sweep_locks

OF_PROCESSES = frozenset(("local", "local_isolated", "bubblewrap"))


def reap_processes(data_dir: Path) -> list[SandboxRecord]:
    """End and forget every orphaned sandbox of this data directory; which they were. One with a live owner is left.

    A runner ends by itself with its controller, and a bubblewrap with its runner; this is for what did not, and for the
    records, homes and control groups that remain. Several controllers may do it at once. Blocks: call it in a thread.
    """
    hierarchies = find_hierarchies()
    reaped = []
    for record in records(data_dir):
        if record.backend not in OF_PROCESSES or owner_alive(data_dir, record.owner):
            continue
        try:
            ident = check_key(record.id)
        except InvalidSpecError:
            continue  # no record of ours: it would lead out of the directories that are named by it
        end_marked_now(ident)
        ControlGroup(ident, hierarchies).end()
        forget(data_dir, record)
        reaped.append(record)
    sweep_groups(hierarchies)
    sweep_locks(data_dir)
    return reaped
