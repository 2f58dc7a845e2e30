"""What a session may use, and what of that this host cannot hold: control groups under root, rlimits otherwise."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sandbox_backends import defaults
from sandbox_backends.cgroups import Ceilings
from sandbox_backends.contract import Enforces, Limits, SandboxSpec
from sandbox_backends.errors import UnsupportedSpecError
from sandbox_backends.hierarchies import Hierarchies

COUNTS_BY_NAMESPACE = (5, 14)
"""Since this Linux RLIMIT_NPROC, set inside a user namespace, counts what runs in that namespace. Before, it counts all
that the uid runs on the host, and would be passed before the session has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """By what means limits are held on this host."""

    groups: Hierarchies
    by_namespace: bool

    @classmethod
    def of(cls, groups: Hierarchies) -> Holding:
        numbers = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
        return cls(groups=groups, by_namespace=tuple(numbers) >= COUNTS_BY_NAMESPACE)

    @property
    def enforces(self) -> Enforces:
        """MEMORY, PROCESSES and CPU, as far as they hold for a session as a whole."""
        return self.groups.enforces | (Enforces.PROCESSES if self.by_namespace else Enforces.NOTHING)

    def refuse_exempt(self, spec: SandboxSpec) -> None:
        """For a session that is the host's uid 0, which the kernel exempts from RLIMIT_NPROC.

        Raises UnsupportedSpecError.
        """
        asked = spec.limits.pids is not None or Enforces.PROCESSES in spec.requires
        if asked and Enforces.PROCESSES not in self.groups.enforces:
            raise UnsupportedSpecError(
                "The bubblewrap sandbox cannot enforce a limit on processes in a project of root's without control "
                "groups: give it to an ordinary user, drop the limit, or take docker."
            )

    @property
    def mend(self) -> str:
        """Where the bounds that are missing here are to be had."""
        if os.geteuid() == 0:
            return "Mount the control groups so that they can be written, or take the docker backend."
        return "Run the controller as root, or take the docker backend."

    def tmp_bytes(self, spec: SandboxSpec, ceilings: Ceilings, count: int) -> int:
        """The size of each of ``count`` directories in memory. Raises UnsupportedSpecError."""
        held = Enforces.MEMORY in self.enforces
        return defaults.tmp_bytes(spec.limits, ceilings.memory_bytes, count, held=held)

    def rlimits(self, limits: Limits, ceilings: Ceilings) -> dict[str, int]:
        """What the runner sets on itself inside, where no control group does it."""
        found = {"CORE": 0, "NOFILE": limits.open_files or defaults.OPEN_FILES}
        if Enforces.PROCESSES not in self.groups.enforces and self.by_namespace:
            found["NPROC"] = ceilings.pids
        if Enforces.MEMORY not in self.groups.enforces:
            found["DATA"] = ceilings.memory_bytes
        return found

    def missing(self, ceilings: Ceilings, *, host_root: bool = False) -> tuple[str, ...]:
        """A sentence on the bounds that do not hold here; none if all do. The kernel exempts uid 0 from rlimits."""
        held = self.groups.enforces if host_root else self.enforces
        flags = {Enforces.MEMORY: "memory", Enforces.PROCESSES: "number of processes", Enforces.CPU: "CPU time"}
        names = [name for flag, name in flags.items() if flag not in held]
        if not names:
            return ()
        why = "No control groups can be used here" if os.geteuid() == 0 else "An ordinary user has no control groups"
        private = f"each process may use {ceilings.memory_bytes >> 20} MiB of its own; what it shares is not counted"
        each = f" ({private})" if "memory" in names else ""
        return (f"{why}, so nothing bounds the {' and the '.join(names)} of a session as a whole{each}.",)
