"""What a container may use, as far as its engine can hold it; chosen numbers bind or are refused (SBX-05, SBX-08)."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_backends import defaults
from sandbox_backends.contract import Enforces, Limits
from sandbox_backends.docker.engine import EngineInfo

TEMPORARY = 4
"""/tmp, /dev/shm, /run and a home that is thrown away with the session; one that lasts lies on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """``None`` is what this engine cannot hold and nobody asked for."""

    memory: int | None
    pids: int | None
    cpus: float | None
    tmp: int
    """Of each directory in memory."""
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
    """Raises UnsupportedSpecError when the temporary directories do not fit into the memory."""
    held = info.enforces
    memory = defaults.memory_bytes(limits, info.memory_bytes)
    return Ceilings(
        memory=memory if Enforces.MEMORY in held else None,
        pids=limits.pids or defaults.PIDS if Enforces.PROCESSES in held else None,
        cpus=defaults.cpus(limits, info.n_cpus) if Enforces.CPU in held else None,
        tmp=defaults.tmp_bytes(limits, memory, TEMPORARY, held=Enforces.MEMORY in held),
        open_files=limits.open_files or defaults.OPEN_FILES,
    )
