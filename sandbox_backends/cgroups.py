"""Control groups for the sessions of a root controller: memory, number of processes, CPU. Versions 1 and 2, no systemd.

A session's group is ``bubbles/<sandbox id>`` at the top of each hierarchy, so that the next controller finds it by its
id alone. Its processes enter it before they give up their rights (``drop.py``) and cannot leave it afterwards.
Sources: cgroups(7), the kernel's admin-guide/cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends import defaults
from sandbox_backends.claims import claim_group
from sandbox_backends.contract import Limits
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.hierarchies import TOP, Hierarchies, read_control

END_S = 5.0
"""How long killed processes may take to be gone before their group is left for the next reaper."""
PERIOD_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What the processes of one session may use together."""

    memory_bytes: int
    """Swap included; so are temporary directories in memory."""
    pids: int
    cpus: float

    @classmethod
    def of(cls, limits: Limits) -> Ceilings:
        """The spec's limits; where it names none, those of ``defaults.py``."""
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            memory_bytes=defaults.memory_bytes(limits, machine),
            pids=limits.pids or defaults.PIDS,
            cpus=defaults.cpus(limits, os.cpu_count() or 1),
        )


class ControlGroup:
    """One session's group, or what a dead owner left of one; without hierarchies it holds and counts nothing."""

    def __init__(self, name: str, hierarchies: Hierarchies) -> None:
        self.directories = hierarchies.groups(name)
        self._unified = hierarchies.unified
        self._freezer = hierarchies.controllers.get("freezer")
        self._freezer = self._freezer / TOP / name if self._freezer and not self._unified else None
        memory = hierarchies.controllers.get("memory")
        self._counter = _open_counter(memory / TOP / name, memory == self._unified) if memory else None
        self._claim: int | None = None
        self._ooms = 0

    @property
    def entries(self) -> tuple[str, ...]:
        """The files into which a process writes its pid to be held by the group."""
        return tuple(str(directory / "cgroup.procs") for directory in self.directories)

    def claim(self) -> None:
        """Say to every reaper on this host, for as long as this process lives, that the group is not to be swept."""
        self._claim = claim_group(self.directories)

    def disown(self) -> None:
        """Take back the claim, as the end of the process does."""
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def oom_kills(self) -> int:
        """How many processes of the group the kernel has killed for memory so far."""
        if self._counter is not None:
            try:
                rows = os.pread(self._counter, 4096, 0).decode()
            except OSError:  # the group is gone
                return self._ooms
            self._ooms = sum(int(row.split()[1]) for row in rows.splitlines() if row.startswith("oom_kill "))
        return self._ooms

    def pids(self) -> set[int]:
        """Processes in the group; 0 stands for one that is outside this pid namespace."""
        found: set[int] = set()
        for directory in self.directories:
            try:
                found.update(map(int, read_control(directory / "cgroup.procs").split()))
            except OSError:
                continue
        return found

    def end(self, within_s: float = END_S) -> bool:
        """Kill what is left in the group and remove it; whether it is gone. Blocks for up to ``within_s``."""
        deadline = time.monotonic() + within_s
        while True:
            self._kill()
            self._await_empty(deadline)
            if self._remove() or time.monotonic() > deadline:
                break
        if self._counter is not None:
            self.oom_kills()
            os.close(self._counter)
            self._counter = None
        self.disown()
        return not any(directory.exists() for directory in self.directories)

    def _kill(self) -> None:
        """All at once: a process that forks meanwhile does not get away."""
        if self._unified is not None and _try_write(self.directories[0] / "cgroup.kill", "1"):
            return  # since Linux 5.14
        if not self.pids():
            return
        freezer = self._freezer
        if freezer is not None and _try_write(freezer / "freezer.state", "FROZEN"):
            _await_frozen(freezer)
        for pid in self.pids() - {0}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if freezer is not None:
            _try_write(freezer / "freezer.state", "THAWED")

    def _await_empty(self, deadline: float) -> None:
        if self._unified is None:
            while self.pids() and time.monotonic() < deadline:
                time.sleep(0.002)  # version 1 tells nobody
            return
        try:
            fd = os.open(self.directories[0] / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            poller = select.poll()
            poller.register(fd, select.POLLPRI)
            while b"populated 1" in os.pread(fd, 4096, 0) and time.monotonic() < deadline:
                poller.poll(max(1.0, (deadline - time.monotonic()) * 1000))
        except OSError:
            return
        finally:
            os.close(fd)

    def _remove(self) -> bool:
        gone = True
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # EBUSY: the last process is still on its way out
                gone = False
        if not gone:
            time.sleep(0.005)
        return gone


def _await_frozen(freezer: Path) -> None:
    for _ in range(100):
        try:
            if read_control(freezer / "freezer.state").strip() == "FROZEN":
                return
        except OSError:  # another reaper has removed the group
            return
        time.sleep(0.001)  # version 1 tells nobody when it is done


def create_group(name: str, ceilings: Ceilings, hierarchies: Hierarchies) -> ControlGroup:
    """A new group with these ceilings. Raises OSError, and then leaves nothing behind."""
    directories = hierarchies.groups(name)
    made: list[Path] = []
    try:
        for directory in directories:
            top = directory.parent
            top.mkdir(mode=0o755, exist_ok=True)
            if top.parent == hierarchies.unified:
                handed_down = " ".join(f"+{c}" for c, mount in hierarchies.controllers.items() if mount == top.parent)
                _write(top.parent / "cgroup.subtree_control", handed_down)
                _write(top / "cgroup.subtree_control", handed_down)
            directory.mkdir(mode=0o755)
            made.append(directory)
        for controller, mount in hierarchies.controllers.items():
            for file, value in settings_of(controller, ceilings, mount == hierarchies.unified):
                try:
                    _write(mount / TOP / name / file, value)
                except FileNotFoundError:
                    if file not in _OPTIONAL:
                        raise
        group = ControlGroup(name, hierarchies)
        group.claim()
        return group
    except OSError:
        for directory in made:
            directory.rmdir()
        raise


@contextmanager
def held_group(name: str, ceilings: Ceilings, hierarchies: Hierarchies) -> Iterator[ControlGroup]:
    """A group for as long as the context; what is left in it is killed. Blocks. Raises BackendUnavailableError."""
    try:
        group = create_group(name, ceilings, hierarchies)
    except OSError as error:
        raise BackendUnavailableError(
            f"The session's control group cannot be made: {error}.", "Look at it with 'bubbles sandbox doctor'."
        ) from error
    try:
        yield group
    finally:
        group.end()


_OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Missing where the kernel does not account for swap."""


def settings_of(controller: str, ceilings: Ceilings, unified: bool) -> list[tuple[str, str]]:
    """Files of a group and what is written into them, in this order."""
    quota = str(max(1000, int(ceilings.cpus * PERIOD_US)))
    memory = str(ceilings.memory_bytes)
    if unified:
        return {
            "memory": [("memory.max", memory), ("memory.swap.max", "0")],
            "pids": [("pids.max", str(ceilings.pids))],
            "cpu": [("cpu.max", f"{quota} {PERIOD_US}")],
        }[controller]
    return {
        # With memsw equal to the limit there is no room for swap.
        "memory": [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)],
        "pids": [("pids.max", str(ceilings.pids))],
        "cpu": [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota)],
        "freezer": [],
    }[controller]


def _open_counter(group: Path, unified: bool) -> int | None:
    try:
        return os.open(group / ("memory.events" if unified else "memory.oom_control"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _try_write(path: Path, text: str) -> bool:
    try:
        _write(path, text)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
            return False
        raise
    return True
