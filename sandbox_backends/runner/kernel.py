"""The few kernel calls that Python does not offer: prctl(2), seccomp(2), openat2(2)."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Union


LINUX = sys.platform.startswith("linux")
libc = ctypes.CDLL(None, use_errno=True)
SYS_OPENAT2 = 437  # the same on every Linux architecture
RESOLVE_BENEATH_NO_MAGICLINKS = 0x08 | 0x02
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38


def prctl(option: int, *arguments: int) -> None:
    """Raises OSError. Unused arguments are 0, as the kernel demands of some options."""
    words = [ctypes.c_ulong(word) for word in arguments + (0,) * (4 - len(arguments))]
    if libc.prctl(option, *words) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d)" % option)


def install_filter(program: bytes) -> None:
    """Put a classic BPF program on this process and all that it starts (seccomp(2))."""
    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HL" if struct.calcsize("P") == 8 else "HI", len(program) // 8, ctypes.addressof(code))
    holder = ctypes.create_string_buffer(fprog, len(fprog))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(holder))


def openat2(dirfd: int, path: Union[str, bytes], flags: int) -> int:
    """open(2) that the kernel keeps beneath ``dirfd``; EXDEV says that the path leads out or holds an absolute link."""
    how = struct.pack("=QQQ", flags, 0, RESOLVE_BENEATH_NO_MAGICLINKS)
    fd = libc.syscall(SYS_OPENAT2, dirfd, ctypes.c_char_p(os.fsencode(path)), how, ctypes.c_size_t(len(how)))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(fd)


def held_capabilities() -> str:
    """The capability masks of this process that are not empty, as text; empty text when there are none."""
    with open("/proc/self/status") as status:
        rows = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    return " ".join(n for n in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int(rows.get(n, "0"), 16))
