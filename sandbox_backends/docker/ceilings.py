"""What a container may use. Numbers that nobody chose are here; chosen ones bind or are refused (SBX-05, SBX-08)."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_backends.contract import Enforces, Limits
from sandbox_backends.docker.engine import EngineInfo
from sandbox_backends.errors import UnsupportedSpecError

MIB = 1 << 20
DEFAULT_MEMORY = 2048 * MIB
"""Or half of what the engine's machine has, where that is less."""
DEFAULT_PIDS = 512
DEFAULT_OPEN_FILES = 16384
DEFAULT_TMP, DEFAULT_SHM, DEFAULT_RUN, DEFAULT_HOME = 256 * MIB, 64 * MIB, 16 * MIB, 256 * MIB
"""The home counts when it is thrown away with the session; one that lasts lies on disk."""
LEFT_FOR_PROCESSES = 4
"""Temporary directories may hold all but one part in so many of the memory limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """``None`` is what this engine cannot hold and nobody asked for."""

    memory: int | None
    pids: int | None
    cpus: float | None
    tmp: int
    shm: int
    run: int
    home: int
    open_files: int

    @property
    def missing(self) -> tuple[str, ...]:
        """Sentences on the limits that are not held."""
        names = {"memory": self.memory, "processes": self.pids, "CPU time": self.cpus}
        absent = [name for name, value in names.items() if value is None]
        if not absent:
            return ()
        return (f"This Docker engine holds no limit on {', '.join(absent)}: a command can use up the machine.",)


def ceilings(limits: Limits, info: EngineInfo) -> Ceilings:
    """Raises UnsupportedSpecError when the temporary directories do not fit into the memory.

    They are charged to the container's memory: one that fills them must leave enough for its processes, or every
    further command is killed.
    """
    memory = limits.memory_bytes or min(DEFAULT_MEMORY, max(info.memory_bytes // 2, 256 * MIB))
    tmp, shm, run, home = DEFAULT_TMP, DEFAULT_SHM, DEFAULT_RUN, DEFAULT_HOME
    if limits.tmp_bytes is not None:
        tmp = shm = run = home = limits.tmp_bytes
        if info.memory and tmp + shm + run + home > memory - memory // LEFT_FOR_PROCESSES:
            raise UnsupportedSpecError(
                f"Four temporary directories of {tmp} bytes (tmp_bytes) do not fit into {memory} bytes of memory, "
                f"which they use: allow at most {memory * 3 // 16}, or raise memory_bytes."
            )
    elif info.memory:
        tmp, shm, run = min(tmp, memory // 4), min(shm, memory // 8), min(run, memory // 16)
        home = min(home, memory // 4)
    held = info.enforces
    return Ceilings(
        memory=memory if Enforces.MEMORY in held else None,
        pids=limits.pids or DEFAULT_PIDS if Enforces.PROCESSES in held else None,
        cpus=min(limits.cpus or info.n_cpus, info.n_cpus) if Enforces.CPU in held else None,
        tmp=tmp,
        shm=shm,
        run=run,
        home=home,
        open_files=limits.open_files or DEFAULT_OPEN_FILES,
    )
