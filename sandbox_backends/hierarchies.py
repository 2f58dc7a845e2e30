"""Where control groups can be used on this host, versions 1 and 2.

Control group files never wait for a device, so reading one holds the event loop up no longer than any system call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.contract import Enforces
from sandbox_backends.owner import check_key

TOP = "bubbles"
"""The directory of ours at the top of each hierarchy."""
_HELD_BY = {"memory": Enforces.MEMORY, "pids": Enforces.PROCESSES, "cpu": Enforces.CPU}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchies:
    """Where control groups are mounted: a directory for each controller."""

    controllers: Mapping[str, Path]
    """``memory``, ``pids``, ``cpu`` and, in version 1, ``freezer``; only what this process may use."""
    unified: Path | None
    """The version 2 directory, when it is the one that holds memory, pids and cpu."""

    @property
    def enforces(self) -> Enforces:
        held = Enforces.NOTHING
        for name, flag in _HELD_BY.items():
            if name in self.controllers:
                held |= flag
        return held

    def groups(self, name: str) -> tuple[Path, ...]:
        """The directories of the group ``name`` (a sandbox id), each once. Raises InvalidSpecError."""
        check_key(name)
        return tuple(dict.fromkeys(mount / TOP / name for mount in self.controllers.values()))


def find_hierarchies(mounts: str = "/proc/self/mounts") -> Hierarchies:
    """What a root controller can use here; nothing for an ordinary user, or where control groups are read-only."""
    found: dict[str, Path] = {}
    unified = None
    if os.geteuid() == 0:
        for directory, kind, _ in _mounted(mounts):
            if kind == "cgroup2" and (usable := _usable_unified(directory)):
                unified = directory
                found.update(dict.fromkeys(usable, directory))
        for directory, kind, options in _mounted(mounts):
            if kind == "cgroup":
                for name in {"memory", "pids", "cpu", "freezer"} & set(options) - found.keys():
                    if _writable(directory):
                        found[name] = directory
    if not _HELD_BY.keys() & found.keys():
        return Hierarchies(controllers={}, unified=None)
    return Hierarchies(controllers=found, unified=unified)


def _mounted(mounts: str) -> Iterator[tuple[Path, str, list[str]]]:
    for row in read_control(mounts).splitlines():
        _, directory, kind, options, *_ = row.split(" ")
        if kind in ("cgroup", "cgroup2"):
            plain = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), directory)
            yield Path(plain), kind, options.split(",")


def _usable_unified(directory: Path) -> set[str]:
    """Controllers that a group below may have. Only the true root may share processes and hand controllers down."""
    if not _writable(directory):
        return set()
    offered = set(read_control(directory / "cgroup.controllers").split()) & _HELD_BY.keys()
    try:
        shared = bool(read_control(directory / "cgroup.procs").strip()) and bool(
            read_control(directory / "cgroup.events")
        )
    except FileNotFoundError:  # the true root has no cgroup.events
        shared = False
    if not shared:
        return offered
    return offered & set(read_control(directory / "cgroup.subtree_control").split())


def _writable(directory: Path) -> bool:
    try:
        os.close(os.open(directory / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def read_control(path: Path | str) -> str:
    """The whole of a file of the kernel's. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while data := os.pread(fd, 1 << 16, sum(map(len, parts))):
            parts.append(data)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)
