"""Which limits the doctor sets on the sessions in which it measures limits, and how it says so.

Without them it would have to take as much as the defaults let a session take, gibibytes, on the person's own machine.
"""

from __future__ import annotations

from sandbox_backends.contract import Enforces, Limits

MIB = 1 << 20
CEILINGS = {"processes": 2000, "memory_bytes": 1024 * MIB, "disk_bytes": 400 * MIB, "open_files": 65536}
"""What a probe tries to take. A limit that lets this much through does not count as one."""


def demands(enforces: Enforces) -> Limits:
    """A limit of every kind that the backend says it enforces, all well below what the probes try."""
    return Limits(
        memory_bytes=512 * MIB if Enforces.MEMORY in enforces else None,
        pids=256 if Enforces.PROCESSES in enforces else None,
        cpus=0.5 if Enforces.CPU in enforces else None,
        tmp_bytes=64 * MIB if Enforces.FILESYSTEM in enforces else None,
    )


def said(limits: Limits) -> str:
    """The limits that are set, in words; empty when there are none."""
    words = (
        (limits.memory_bytes, f"{(limits.memory_bytes or 0) // MIB} MiB of memory"),
        (limits.pids, f"{limits.pids} processes"),
        (limits.cpus, f"{limits.cpus} processors"),
        (limits.tmp_bytes, f"{(limits.tmp_bytes or 0) // MIB} MiB in each temporary directory"),
    )
    return ", ".join(text for value, text in words if value is not None)
