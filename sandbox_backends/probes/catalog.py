"""The doctor's list: what code in a sandbox may try, what it would mean, and which backends promise to hold it.

A title completes "code in the sandbox can …"; *held* means that it cannot. Numbers are stable: they are cited in
SECURITY.md §4.1, which is made from this list (SEC-02).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sandbox_backends.contract import Enforces

Group = Literal["files", "network", "processes", "privileges", "kernel", "environment", "limits"]

BACKENDS = ("local", "local_isolated", "bubblewrap", "docker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeInfo:
    number: int
    id: str
    group: Group
    title: str
    """Completes "code in the sandbox can …"."""
    meaning: str
    """What it would mean if it were open, in one sentence for the person."""
    promises: str
    """One letter each of ``BACKENDS``: ``y`` held, ``r`` held under a root controller (it gives a session a user of its
    own, unless a project of root's is bound), ``u`` held under an ordinary user, ``-`` not promised."""

    def holders(self, *, root: bool) -> tuple[str, ...]:
        """The backends that promise to hold it."""
        return tuple(name for name in BACKENDS if self.id in promised(name, root=root))


def _group(group: Group, *rows: tuple[int, str, str, str, str]) -> tuple[ProbeInfo, ...]:
    return tuple(
        ProbeInfo(number=number, id=ident, group=group, title=title, meaning=meaning, promises=promises)
        for number, ident, promises, title, meaning in rows
    )


_FILES = _group(
    "files",
    (
        1,
        "shadow",
        "--yy",
        "read the host's /etc/shadow",
        "The host's password hashes could be carried off and cracked.",
    ),
    (2, "person-file", "-ryy", "read a private file in your home", "Your keys, mail and documents could be read."),
    (3, "other-user-file", "--yy", "read what another user left readable", "Other people's files could be read."),
    (4, "other-session-home", "-ryy", "read another session's home", "One chat could use the logins of another."),
    (5, "host-tmp", "--yy", "read the host's /tmp", "What other programs put down for a moment could be read."),
    (6, "machine-id", "--yy", "read the host's machine id", "The machine could be recognised again elsewhere."),
    (27, "write-usr", "-ryy", "write in /usr", "Programs that others run could be replaced."),
    (28, "write-etc", "-ryy", "write in /etc", "The system's settings could be changed."),
    (29, "write-root", "-ryy", "write in /", "Files could be left outside the session's directories."),
    (72, "home-logins", "-yyy", "find your logins under HOME", "gh, aws or git would act with your own accounts."),
)

_NETWORK = _group(
    "network",
    (7, "engine-socket", "-ryy", "reach a container engine's socket", "Whoever reaches it rules the whole machine."),
    (8, "abstract-socket", "--yy", "reach the host's abstract sockets", "Desktop and system services could be driven."),
    (
        9,
        "host-loopback",
        "--yy",
        "reach services on the host's 127.0.0.1",
        "Databases that trust local calls lie open.",
    ),
    (
        10,
        "metadata-route",
        "--yy",
        "reach the cloud's metadata address",
        "The machine's cloud credentials could be had.",
    ),
    (11, "internet-route", "--yy", "send to the internet past the proxy", "Whatever can be read could be carried off."),
    (20, "raw-icmp", "-ryy", "open a raw IP socket", "Packets could be forged."),
    (21, "af-packet", "-ryy", "open a packet socket", "The network's traffic could be listened to."),
    (22, "af-vsock", "--yy", "open a socket to the hypervisor", "Services of the virtual machine's host are in reach."),
    (23, "af-alg", "--yy", "open a kernel crypto socket", "Seldom used kernel code would be exposed."),
    (24, "af-netlink", "----", "open a netlink socket", "Routes and addresses of its own network can be listed."),
)

_PROCESSES = _group(
    "processes",
    (12, "host-processes", "--yy", "see the host's processes", "Command lines, some with secrets, could be read."),
    (13, "signal-host", "-ryy", "signal the host's processes", "Your programs could be stopped."),
    (14, "ptrace-host", "-ryy", "attach to the host's processes", "Your programs' memory could be read and changed."),
    (15, "ptrace-runner", "uyyy", "attach to the sandbox's runner", "Results and exit codes could be forged."),
    (39, "host-shm", "--yy", "find the host's shared memory", "Data of other programs could be read and changed."),
    (40, "tiocsti", "yyyy", "type into your terminal", "A command could be run as you after the sandbox ends."),
)

_PRIVILEGES = _group(
    "privileges",
    (16, "user-namespace", "--yy", "make a user namespace", "It could gain powers over kernel code meant for root."),
    (17, "mount-namespace", "-ryy", "make a mount namespace", "It could build itself another view of the files."),
    (18, "userns-mount", "--yy", "mount in a namespace of its own", "Kernel code for file systems would be exposed."),
    (19, "mount", "-ryy", "mount a file system", "The sandbox's own mounts could be covered or undone."),
    (25, "setuid-0", "-ryy", "become uid 0", "It could act as root wherever a file is shared."),
    (26, "planted-setuid", "-ryy", "become root by a setuid file", "A program left in a root would give root."),
    (33, "mknod", "-ryy", "make a device file", "A disk could be read past all file permissions."),
    (54, "hostname", "-ryy", "change the host name", "It has powers that belong to root."),
    (55, "chroot", "-ryy", "change its root directory", "It has powers that belong to root."),
    (61, "cgroup", "-ryy", "make a control group", "It could escape its own limits."),
    (63, "confinement", "--yy", "hold capabilities, or run unfiltered", "The other lines rest on one wall only."),
)

_KERNEL = _group(
    "kernel",
    (30, "core-pattern", "-ryy", "set the kernel's core pattern", "The kernel would run a program of its as root."),
    (31, "sysrq", "-ryy", "trigger system requests", "The machine could be stopped at once."),
    (32, "uevent-helper", "-ryy", "set the kernel's device helper", "The kernel would run a program of its as root."),
    (34, "block-device", "-ryy", "open the host's disks", "Every file of the machine could be read."),
    (35, "dev-mem", "-ryy", "open physical memory", "The memory of the whole machine could be read."),
    (36, "dev-kmsg", "--yy", "open the kernel log device", "The kernel's messages could be read and forged."),
    (37, "add-key", "--yy", "put keys into the kernel's keyring", "Logins kept there could be replaced."),
    (38, "host-key", "-ryy", "find keys in your keyring", "Logins kept there could be used."),
    (46, "bpf", "--yy", "use bpf", "The part of the kernel most often broken would be exposed."),
    (47, "perf-event", "--yy", "use performance counters", "Other processes could be spied on by timing."),
    (48, "userfaultfd", "--yy", "use userfaultfd", "Attacks on the kernel become far easier."),
    (49, "userfaultfd-user", "--yy", "use userfaultfd for user faults", "Attacks on other programs become easier."),
    (50, "io-uring", "--yy", "use io_uring", "Work could be done past the system call filter."),
    (51, "open-by-handle", "-ryy", "open files by handle", "Files outside the mounts could be opened."),
    (52, "load-module", "-ryy", "load a kernel module", "It would own the kernel."),
    (53, "kexec", "-ryy", "load another kernel", "It would own the machine."),
    (56, "kernel-log", "--yy", "read the kernel log", "Addresses and devices of the host would be known."),
    (57, "kernel-addresses", "--yy", "read the kernel's addresses", "Attacks on the kernel become far easier."),
    (58, "kcore", "-ryy", "read the kernel's memory", "Every secret in memory could be read."),
    (59, "timer-list", "-ryy", "read the kernel's timers", "Other processes could be spied on by timing."),
    (60, "firmware", "--yy", "read the firmware's tables", "The machine and its serial numbers would be known."),
)

_ENVIRONMENT = _group(
    "environment",
    (41, "own-environ", "yyyy", "find a secret in its environment", "API keys of the assistant could be carried off."),
    (
        42,
        "first-environ",
        "--yy",
        "find one in process 1's environment",
        "API keys of the assistant could be carried off.",
    ),
    (
        43,
        "parent-environ",
        "yyyy",
        "find one in the runner's environment",
        "API keys of the assistant could be carried off.",
    ),
    (44, "first-cmdline", "--yy", "read host paths from process 1", "It would know where your files lie."),
    (45, "mountinfo", "----", "read the path of a root from its mounts", "It knows where its own files lie outside."),
    (62, "inherited-fds", "yyyy", "use descriptors left open", "One open directory would be a way out."),
)

_LIMITS = _group(
    "limits",
    (64, "process-count", "-ryy", "start 2,000 processes", "A fork bomb would stop the machine."),
    (
        65,
        "memory-one",
        "--ry",
        "take memory past the limit that was set, in one process",
        "One program could push others out of memory.",
    ),
    (66, "disk-tmp", "--yy", "put 400 MB into /tmp", "The disk or the memory could be filled."),
    (67, "disk-roots", "----", "put 400 MB into its roots and lasting home", "The disk can be filled."),
    (68, "disk-shm", "--yy", "put 400 MB into /dev/shm", "The memory could be filled."),
    (69, "disk-home", "--yy", "put 400 MB into a throw-away home", "The disk or the memory could be filled."),
    (70, "core-dumps", "--yy", "leave core dumps", "Memory with secrets would be left on the disk."),
    (71, "open-files", "--yy", "open more than 65,536 files", "The kernel's own tables could be filled."),
    (
        73,
        "memory-together",
        "-rry",
        "take memory past the limit that was set, in four processes",
        "Together they could starve all others.",
    ),
    (74, "cpu-share", "-rry", "use more processor time than was set", "Everything else would become slow."),
)

PROBES = tuple(
    sorted(
        (*_FILES, *_NETWORK, *_PROCESSES, *_PRIVILEGES, *_KERNEL, *_ENVIRONMENT, *_LIMITS),
        key=lambda info: info.number,
    )
)
GROUPS: tuple[Group, ...] = ("files", "network", "processes", "privileges", "kernel", "environment", "limits")

MEASURED_BY: Mapping[Enforces, tuple[str, ...]] = {
    Enforces.FILESYSTEM: ("person-file", "other-user-file", "other-session-home", "host-tmp", "write-usr", "write-etc"),
    Enforces.NETWORK: ("abstract-socket", "host-loopback", "metadata-route", "internet-route"),
    Enforces.PROCESSES: ("host-processes", "signal-host", "process-count"),
    Enforces.MEMORY: ("memory-one", "memory-together"),
    Enforces.CPU: ("cpu-share",),
    Enforces.CREDENTIALS: ("home-logins",),
}
"""Which probes show that a flag of a backend is true."""

_MARKS = {"y": "held", "r": "held (root)", "u": "held (user)", "-": "-"}


def promised(backend: str, *, root: bool) -> frozenset[str]:
    """Ids of the probes that this backend promises to hold under such a controller; none for a foreign backend."""
    if backend not in BACKENDS:
        return frozenset()
    column, marks = BACKENDS.index(backend), ("y", "r" if root else "u")
    return frozenset(info.id for info in PROBES if info.promises[column] in marks)


def security_table() -> str:
    """The Markdown table of SECURITY.md §4.1: what each backend promises, by group and number."""
    lines = [
        f"| | code in the sandbox can … | {' | '.join(BACKENDS)} |",
        f"|---:|---|{'---|' * len(BACKENDS)}",
    ]
    for group in GROUPS:
        lines.append(f"| | **{group}** |{' |' * len(BACKENDS)}")
        lines += [
            f"| {info.number} | {info.title} | {' | '.join(_MARKS[mark] for mark in info.promises)} |"
            for info in PROBES
            if info.group == group
        ]
    return "\n".join(lines) + "\n"
