"""Runs INSIDE a place: every probe in a child of its own, one JSON line of answer each.

The configuration says which probes to ``run`` and what was planted outside (``canaries.py``). Each line printed is
``{"id", "held", "detail"}``; ``held`` is null where the probe does not apply here. A probe that crashes, hangs or is
killed costs itself only, and whatever it made is removed.

A probe changes nothing where it gets through: it calls with arguments that the kernel looks at only after it has said
yes, so a fault instead of a refusal is the proof that the way is open.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Config = dict[str, Any]
    Answer = tuple[bool | None, str]
    """True held, False open, None does not apply; and what was seen."""
    Check = Callable[[Config], Answer]

CHECKS: dict[str, Check] = {}
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
MIB = 1 << 20
PATIENCE_S = 30.0
NOT_PLANTED = "its canary could not be planted"

_CALLS = {
    "x86_64": {
        "add_key": 248,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "open_by_handle_at": 304,
        "init_module": 175,
        "kexec_load": 246,
    },
    "aarch64": {
        "add_key": 217,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "open_by_handle_at": 265,
        "init_module": 105,
        "kexec_load": 104,
    },
}
LINUX = platform.system() == "Linux"
CALLS = _CALLS.get(platform.machine(), {})
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def probe(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return register


def plain(name: str, check: Callable[..., Answer], *arguments: object) -> None:
    """A probe that needs to know nothing of the outside."""
    CHECKS[name] = lambda _config: check(*arguments)


def held(detail: object) -> Answer:
    return True, str(detail)


def opened(detail: object) -> Answer:
    return False, str(detail)


def name_of(number: int | None) -> str:
    return errno.errorcode.get(number or 0, str(number))


def judge(result: int, refusals: Sequence[int] = REFUSALS) -> Answer:
    """A C call's result: done, refused, or let through to where its arguments were found wanting."""
    if result >= 0:
        return opened("it was done")
    number = ctypes.get_errno()
    return held(name_of(number)) if number in refusals else opened("allowed, then " + name_of(number))


def syscall(name: str, *arguments: int | bytes | ctypes.Array[Any] | None) -> int | None:
    """The call's result, or ``None`` where its number is not known."""
    if name not in CALLS:
        return None
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(LIBC.syscall(ctypes.c_long(CALLS[name]), *words))


def try_call(name: str, *arguments: int | bytes | ctypes.Array[Any] | None) -> Answer:
    result = syscall(name, *arguments)
    return (None, "the number of this call is not known here") if result is None else judge(result)


def read(path: str, limit_bytes: int = MIB) -> bytes:
    """The start of a file. /proc gives a page or less at a time."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    data = b""
    try:
        while len(data) < limit_bytes:
            piece = os.read(fd, limit_bytes - len(data))
            if not piece:
                break
            data += piece
    finally:
        os.close(fd)
    return data


def first_open(answers: Sequence[Answer]) -> Answer:
    return next((answer for answer in answers if answer[0] is False), answers[0])


def _child_main(check: Check, config: Config, report: int) -> NoReturn:
    status = 1
    try:
        try:
            answer = check(config)
        except AttributeError:
            if LINUX:
                raise
            answer = (None, "this system has no such call")
        os.write(report, json.dumps([answer[0], answer[1][:400]]).encode() + b"\n")
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _verdict(name: str, line: bytes, status: int | None) -> Answer:
    """What a child said; of a child that said nothing, what its end means. Doubt counts as open."""
    if line.endswith(b"\n"):
        answer = json.loads(line)
        return answer[0], answer[1]
    if status is None:
        return opened(f"not measured: no end within {PATIENCE_S:.0f} s")
    number = status & 0x7F
    if number == signal.SIGSYS:
        return held("ended by the system call filter")
    if number == signal.SIGKILL and name.startswith(("memory-", "disk-", "process-")):
        return held("ended by the memory limit")
    return opened(f"not measured: it ended with wait status {status}")


def run(name: str, config: Config) -> Answer:
    report, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(report)
        _child_main(CHECKS[name], config, child_end)
    os.close(child_end)
    line = b""
    deadline = time.monotonic() + PATIENCE_S
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([report], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(report, 4096) if ready else b""
        if not piece:
            break
        line += piece
    os.close(report)
    late = time.monotonic() >= deadline
    if late:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass  # nothing of it is left
    return _verdict(name, line, None if late else status)


def _descriptors() -> set[str]:
    """The open ones. The one that did the listing is closed again by the time it is looked at."""
    fds = "/proc/self/fd" if LINUX else "/dev/fd"
    return {name for name in os.listdir(fds) if os.path.exists(os.path.join(fds, name))}


def main(config: Config) -> None:
    config["runner_pid"] = os.getppid()
    config["fds"] = sorted(_descriptors() - {"0", "1", "2"}, key=int)
    for name in config["run"]:
        answer = run(name, config)
        sys.stdout.write(json.dumps({"id": name, "held": answer[0], "detail": answer[1]}) + "\n")
        sys.stdout.flush()
