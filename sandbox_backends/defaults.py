"""What one session may use where nobody chose a number: one table for every backend (SPEC.md §4.7)."""

from __future__ import annotations

from sandbox_backends.contract import Limits
from sandbox_backends.errors import UnsupportedSpecError

MIB = 1 << 20
MEMORY_BYTES = 4096 * MIB
"""Or half of what the machine has, where that is less."""
PIDS = 512
OPEN_FILES = 65_536
TMP_BYTES = 256 * MIB
"""Of each directory in memory; or one part in ``TMP_SHARE`` of the memory limit, where that is less."""
TMP_SHARE = 8
LEFT_FOR_PROCESSES = 4
"""Directories in memory may together hold all but one part in so many of the memory limit."""


def memory_bytes(limits: Limits, machine_bytes: int) -> int:
    """``machine_bytes`` is what the machine has; 0 where that is not known."""
    return limits.memory_bytes or (min(MEMORY_BYTES, machine_bytes // 2) if machine_bytes > 0 else MEMORY_BYTES)


def cpus(limits: Limits, machine_cpus: int) -> float:
    """All there are by default; more than that is all there are."""
    return min(limits.cpus or float(machine_cpus), float(machine_cpus))


def tmp_bytes(limits: Limits, memory: int, count: int, *, held: bool) -> int:
    """The size of each of ``count`` directories in memory. ``held``: all memory together is limited, to ``memory``.

    Files there count as memory: whoever fills them must leave enough for processes, or nothing can run any more, not
    even rm. Raises UnsupportedSpecError for a chosen size that does not.
    """
    if limits.tmp_bytes is None:
        return min(TMP_BYTES, memory // TMP_SHARE)
    room = memory - memory // LEFT_FOR_PROCESSES
    if held and limits.tmp_bytes * count > room:
        raise UnsupportedSpecError(
            f"{count} temporary directories of {limits.tmp_bytes} bytes (tmp_bytes) do not fit into {memory} bytes of "
            f"memory, which they use: allow at most {room // count}, or raise memory_bytes."
        )
    return limits.tmp_bytes
