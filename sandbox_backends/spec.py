"""What a spec demands against what a backend enforces. There is no fall-back to less (SBX-08)."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_backends.contract import Enforces, Limits, Network, SandboxSpec
from sandbox_backends.errors import InvalidSpecError, UnsupportedSpecError

NEEDS = {
    "memory_bytes": (Enforces.MEMORY, "a memory limit"),
    "pids": (Enforces.PROCESSES, "a limit on processes"),
    "cpus": (Enforces.CPU, "a CPU limit"),
}
LEAST = {"memory_bytes": 16 << 20, "pids": 8, "cpus": 0.01, "disk_bytes": 1 << 20, "tmp_bytes": 4096, "open_files": 32}


def refuse_beyond(spec: SandboxSpec, backend: str, enforces: Enforces, *, soft: bool = True) -> None:
    """Raise UnsupportedSpecError for the first demand that ``backend`` does not enforce.

    ``soft``: a local backend, which cannot hold ``tmp_bytes``. No backend holds ``disk_bytes``.
    """

    def refuse(what: str, mend: str) -> UnsupportedSpecError:
        return UnsupportedSpecError(f"The {backend} sandbox cannot enforce {what} here: {mend}.")

    missing = spec.requires & ~enforces
    if missing:
        names = ", ".join(flag.name.lower() for flag in missing if flag.name)
        raise refuse(names, "take another backend, see 'bubbles sandbox doctor'")
    if spec.network in (Network.NONE, Network.ALLOWLIST) and Enforces.NETWORK not in enforces:
        raise refuse(f"network '{spec.network}'", "take bubblewrap or docker, or network 'full'")
    if spec.allow and spec.network is not Network.ALLOWLIST:
        raise refuse("allowed hosts without network 'allowlist'", "set network to 'allowlist', or drop the hosts")
    for name, (flag, what) in NEEDS.items():
        if getattr(spec.limits, name) is not None and flag not in enforces:
            raise refuse(what, "drop the limit, or take a backend that holds it, see 'bubbles sandbox doctor'")
    if spec.limits.disk_bytes is not None:
        raise refuse(
            "a disk limit", "drop it; tmp_bytes bounds what is in memory, and a file system of its own bounds a root"
        )
    if spec.limits.tmp_bytes is not None and soft:
        raise refuse("a limit on temporary files", "drop it, or take bubblewrap or docker")
    if soft and not all(root.writable for root in spec.roots):
        raise refuse("a read-only root", "take bubblewrap or docker, or make the root writable")
    _check_numbers(spec.limits)
    _check_env(spec.env)


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidSpecError(f"Variable {name[:80]!r} of the environment cannot be set: mend its name or value.")


def _check_numbers(limits: Limits) -> None:
    for name, least in LEAST.items():
        value = getattr(limits, name)
        if value is not None and not least <= value < 2**50:
            raise UnsupportedSpecError(f"Limit {name} is {value}: it must be at least {least}.")
