"""The system call filter of a hard sandbox, as classic BPF, written without libseccomp.

A coding agent needs nearly everything that Linux offers, so the filter is a deny-list: calls that make namespaces or
mounts, that administrate the kernel, or that only widen the kernel's attack surface are refused; the rest is allowed.
Calls that are newer than this file answer ENOSYS, as an older kernel would, until somebody has looked at them.

Only ``nr`` and the low half of an argument are looked at wherever the kernel itself takes that argument as ``int``,
``unsigned int`` or ``umode_t``: the kernel ignores the upper half, and the C ABI leaves garbage there. ``clone`` drops
the upper half of its flags as well; ``unshare`` does not, so there both halves count.

ptrace stays allowed: debuggers and strace are tools of a coding agent. The runner is non-dumpable, and the kernel runs
seccomp after a tracer had its say (since 4.8), so a tracer cannot bring a refused call back.

Sources: linux/seccomp.h, linux/filter.h, seccomp(2), the kernel's syscall tables.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_backends.errors import UnsupportedSpecError

Instruction = tuple[int, int, int, int]
"""``code, jt, jf, k`` of ``struct sock_filter``."""

_LD_W_ABS, _JEQ, _JGT, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_KILL_PROCESS, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_NR, _ARCH = 0, 4
_X32_BIT = 0x40000000
_LAST_KNOWN_CALL = 469
"""file_setattr, Linux 6.17. Both tables share their numbers from 424 on."""

_NEW_NAMESPACE = 0x7E020000
"""CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET. NEWTIME (0x80) is part of clone's signal
number and can only be asked for by unshare and clone3."""
_UNSHARE_HARMLESS = 0x40600
"""CLONE_FS | CLONE_FILES | CLONE_SYSVSEM."""
_PERSONALITY_HARMLESS = 0x60008
"""PER_LINUX32 | UNAME26 | ADDR_NO_RANDOMIZE (gdb, setarch -R)."""
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_IP_PROTOCOLS = (0, 1, 6, 17, 58)
"""Default, ICMP, TCP, UDP, ICMPv6. SCTP, DCCP, L2TP, SMC and the like would load kernel modules; raw sockets need a
capability that no session has."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_O_CREAT_OR_TMPFILE = 0x40 | 0x400000
_SETID = 0o6000
_OF_ANOTHER = {
    **dict.fromkeys(("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"), 0),
    **dict.fromkeys(("setpriority", "ioprio_set"), 1),
}
"""Calls that change how another process is treated, and which argument names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    audit_arch: int
    x32: bool
    calls: Mapping[str, int]


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (pair.split("=") for pair in text.split())}


_COMMON = _table("""
    clone3=435 open_tree=428 move_mount=429 fsopen=430 fsconfig=431 fsmount=432 fspick=433 mount_setattr=442
    open_tree_attr=467 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 quotactl_fd=443 openat2=437
    fchmodat2=452
    """)

_X86_64 = _Machine(
    audit_arch=0xC000003E,
    x32=True,
    calls=_COMMON
    | _table("""
    prlimit64=302 sched_setparam=142 sched_setscheduler=144 sched_setaffinity=203 sched_setattr=314
    setpriority=141 ioprio_set=251 clone=56 unshare=272 setns=308 mount=165 umount2=166 pivot_root=155 chroot=161
    keyctl=250 add_key=248
    request_key=249 bpf=321 perf_event_open=298 userfaultfd=323 open_by_handle_at=304 init_module=175
    finit_module=313 delete_module=176 create_module=174 get_kernel_syms=177 query_module=178 kexec_load=246
    kexec_file_load=320 reboot=169 swapon=167 swapoff=168 acct=163 quotactl=179 settimeofday=164
    clock_settime=227 adjtimex=159 clock_adjtime=305 syslog=103 iopl=172 ioperm=173 kcmp=312 lookup_dcookie=212
    nfsservctl=180 uselib=134 _sysctl=156 vhangup=153 sethostname=170 setdomainname=171 fanotify_init=300
    ustat=136 sysfs=139 personality=135 socket=41 socketpair=53 ioctl=16 chmod=90 fchmod=91 fchmodat=268 open=2
    openat=257 creat=85 mknod=133 mknodat=259
    """),
)

_AARCH64 = _Machine(
    audit_arch=0xC00000B7,
    x32=False,
    calls=_COMMON
    | _table("""
    prlimit64=261 sched_setparam=118 sched_setscheduler=119 sched_setaffinity=122 sched_setattr=274
    setpriority=140 ioprio_set=30 clone=220 unshare=97 setns=268 mount=40 umount2=39 pivot_root=41 chroot=51
    keyctl=219 add_key=217
    request_key=218 bpf=280 perf_event_open=241 userfaultfd=282 open_by_handle_at=265 init_module=105
    finit_module=273 delete_module=106 kexec_load=104 kexec_file_load=294 reboot=142 swapon=224 swapoff=225 acct=89
    quotactl=60 settimeofday=170 clock_settime=112 adjtimex=171 clock_adjtime=266 syslog=116 kcmp=272
    lookup_dcookie=18 nfsservctl=42 vhangup=58 sethostname=161 setdomainname=162 fanotify_init=262 personality=92
    socket=198 socketpair=199 ioctl=29 fchmod=52 fchmodat=53 openat=56 mknodat=33
    """),
)

_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _X86_64,
    "amd64": _X86_64,
    "aarch64": _AARCH64,
    "arm64": _AARCH64,
}

_REFUSED = (
    *("setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "keyctl", "add_key", "request_key", "bpf", "perf_event_open"),
    *("userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "open_by_handle_at", "init_module"),
    *("finit_module", "delete_module", "create_module", "get_kernel_syms", "query_module", "kexec_load"),
    *("kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday"),
    *("clock_settime", "adjtimex", "clock_adjtime", "syslog", "iopl", "ioperm", "kcmp", "lookup_dcookie"),
    *("nfsservctl", "uselib", "_sysctl", "vhangup", "sethostname", "setdomainname", "fanotify_init", "ustat", "sysfs"),
)


def build_filter(machine: str, *, refuse_setid: bool) -> bytes:
    """The filter for ``machine`` (as ``uname -m`` says it), as an array of ``struct sock_filter`` in its byte order.

    Refused calls answer EPERM; socket families that are not allowed EAFNOSUPPORT; clone3 (whose flags a filter cannot
    see) and calls newer than this table ENOSYS. A foreign call table, such as i386 code, ends the process with SIGSYS.

    ``refuse_setid`` is for a session that runs as uid 0 without capabilities: no file can then be made setuid or
    setgid, on any path that carries a mode (openat2 hides its mode in memory, so it answers ENOSYS).

    Raises :class:`UnsupportedSpecError` for a machine whose call table is not written here: a hard sandbox without
    its filter would be a weaker one in silence (SBX-08).
    """
    table = _MACHINES.get(machine)
    if table is None:
        raise UnsupportedSpecError(
            f"There is no system call filter for the machine type {machine!r}; "
            "use the backend local or local_isolated there."
        )
    program: list[Instruction] = [
        (_LD_W_ABS, 0, 0, _ARCH),
        (_JEQ, 1, 0, table.audit_arch),
        _return(_KILL_PROCESS),
        (_LD_W_ABS, 0, 0, _NR),
    ]
    if table.x32:
        program += [(_JGE, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    program += [(_JGT, 0, 1, _LAST_KNOWN_CALL), _refuse(errno.ENOSYS)]
    for name, body in _rules(refuse_setid=refuse_setid):
        if name in table.calls:
            program += [(_JEQ, 0, len(body), table.calls[name]), *body]
    program.append(_return(_ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _rules(*, refuse_setid: bool) -> Iterable[tuple[str, list[Instruction]]]:
    """Every named call with what to do with it. A body always ends in RET: the call number is gone from A by then."""
    yield "socket", _socket_body()
    yield "socketpair", _allow_only(0, (_AF_UNIX,), errno.EAFNOSUPPORT)
    yield "ioctl", [_low(1), (_JEQ, 1, 0, _TIOCSTI), (_JEQ, 0, 1, _TIOCLINUX), _refuse(errno.EPERM), _return(_ALLOW)]
    yield "clone", _refuse_bits(0, _NEW_NAMESPACE)
    yield "clone3", [_refuse(errno.ENOSYS)]
    yield "unshare", _unshare_body()
    yield "personality", _personality_body()
    for name, pid in _OF_ANOTHER.items():
        # Commands share their user with the runner, process 1, and must not starve it.
        yield name, [_low(pid), (_JEQ, 0, 1, 1), _refuse(errno.EPERM), _return(_ALLOW)]
    if refuse_setid:
        yield "openat2", [_refuse(errno.ENOSYS)]
        for name, mode in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2), ("creat", 1)):
            yield name, _refuse_bits(mode, _SETID)
        for name, mode in (("mknod", 1), ("mknodat", 2)):
            yield name, _refuse_bits(mode, _SETID)
        for name, flags in (("open", 1), ("openat", 2)):
            # Without O_CREAT or O_TMPFILE there is no mode argument and its register holds garbage.
            yield (
                name,
                [_low(flags), (_JSET, 1, 0, _O_CREAT_OR_TMPFILE), _return(_ALLOW), *_refuse_bits(flags + 1, _SETID)],
            )
    for name in _REFUSED:
        yield name, [_refuse(errno.EPERM)]


def _socket_body() -> list[Instruction]:
    """UNIX; INET and INET6 of the usual protocols; NETLINK for routes only, which libc's getaddrinfo needs."""
    netlink = _allow_only(2, (0,), errno.EPROTONOSUPPORT)
    internet = _allow_only(2, _IP_PROTOCOLS, errno.EPROTONOSUPPORT)
    return [
        _low(0),
        (_JEQ, 0, 1, _AF_UNIX),
        _return(_ALLOW),
        (_JEQ, 0, len(netlink), _AF_NETLINK),
        *netlink,
        (_JEQ, 1, 0, _AF_INET),
        (_JEQ, 0, len(internet), _AF_INET6),
        *internet,
        _refuse(errno.EAFNOSUPPORT),
    ]


def _unshare_body() -> list[Instruction]:
    return [
        _high(0),
        (_JEQ, 1, 0, 0),
        _refuse(errno.EPERM),
        _low(0),
        (_AND, 0, 0, ~_UNSHARE_HARMLESS & 0xFFFFFFFF),
        (_JEQ, 1, 0, 0),
        _refuse(errno.EPERM),
        _return(_ALLOW),
    ]


def _personality_body() -> list[Instruction]:
    """0xffffffff only asks. The rest must be made of harmless bits."""
    return [
        _low(0),
        (_JEQ, 2, 0, 0xFFFFFFFF),
        (_AND, 0, 0, ~_PERSONALITY_HARMLESS & 0xFFFFFFFF),
        (_JEQ, 0, 1, 0),
        _return(_ALLOW),
        _refuse(errno.EPERM),
    ]


def _allow_only(argument: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    tests = [(_JEQ, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [_low(argument), *tests, _refuse(error), _return(_ALLOW)]


def _refuse_bits(argument: int, mask: int) -> list[Instruction]:
    return [_low(argument), (_JSET, 0, 1, mask), _refuse(errno.EPERM), _return(_ALLOW)]


def _low(argument: int) -> Instruction:
    """Load the low half of an argument of ``struct seccomp_data``; both machines are little-endian."""
    return (_LD_W_ABS, 0, 0, 16 + 8 * argument)


def _high(argument: int) -> Instruction:
    return (_LD_W_ABS, 0, 0, 20 + 8 * argument)


def _return(action: int) -> Instruction:
    return (_RET, 0, 0, action)


def _refuse(error: int) -> Instruction:
    return _return(_ERRNO | error)
