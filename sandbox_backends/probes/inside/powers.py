"""Runs INSIDE a place: what the kernel would do for code in it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import struct
import subprocess
from typing import TYPE_CHECKING

from sandbox_backends.probes.inside.frame import (
    LIBC,
    NOT_PLANTED,
    REFUSALS,
    first_open,
    held,
    judge,
    name_of,
    opened,
    plain,
    probe,
    read,
    syscall,
    try_call,
)

if TYPE_CHECKING:
    from sandbox_backends.probes.inside.frame import Answer, Config

NEW_USER, NEW_MOUNT = 0x10000000, 0x00020000
USER_KEYRING = -4

# --- privileges


def try_unshare(flags: int) -> Answer:
    return judge(LIBC.unshare(flags))


def try_mount(kind: bytes) -> Answer:
    return judge(LIBC.mount(b"none", b"/", kind, 0, None))


plain("user-namespace", try_unshare, NEW_USER)
plain("mount-namespace", try_unshare, NEW_MOUNT)
# The kernel looks for the file system's name only after it has allowed the mount.
plain("mount", try_mount, b"bubbles-none")


@probe("userns-mount")
def userns_mount(_config: Config) -> Answer:
    """A real mount, in a namespace that ends with this child."""
    if LIBC.unshare(NEW_USER | NEW_MOUNT) != 0:
        return held("no namespace: " + name_of(ctypes.get_errno()))
    return try_mount(b"tmpfs")


def status_field(name: str) -> str:
    for line in read("/proc/self/status").decode().splitlines():
        if line.startswith(name + ":"):
            return line.split()[1]
    return ""


@probe("setuid-0")
def setuid_0(_config: Config) -> Answer:
    try:
        os.setresuid(0, 0, 0)
    except OSError as error:
        return held(name_of(error.errno))
    return opened("uid 0 with capabilities " + status_field("CapEff"))


@probe("planted-setuid")
def planted_setuid(config: Config) -> Answer:
    if not config["setuid_program"]:
        return None, "only a root controller can plant one"
    try:
        done = subprocess.run([config["setuid_program"], "-u"], capture_output=True, check=False)
    except OSError as error:
        return held("it does not start: " + name_of(error.errno))
    if not done.stdout.strip().isdigit():
        return opened(f"not measured: it started and ended with status {done.returncode}")
    return opened("euid 0") if int(done.stdout) == 0 else held(f"euid {int(done.stdout)}")


@probe("chroot")
def change_root(_config: Config) -> Answer:
    return judge(LIBC.chroot(b"/"))


@probe("hostname")
def hostname(_config: Config) -> Answer:
    name = socket.gethostname().encode()
    return judge(LIBC.sethostname(name, len(name)))


@probe("mknod")
def mknod(_config: Config) -> Answer:
    path = os.path.abspath(f".bubbles-probe-node-{os.getpid()}")
    try:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(254, 0))
    except OSError as error:
        return held(name_of(error.errno))
    os.unlink(path)
    return opened("it made a block device")


@probe("cgroup")
def cgroup(_config: Config) -> Answer:
    top = "/sys/fs/cgroup"
    try:
        parents = [top] + [entry.path for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        return held(top + ": " + name_of(error.errno))
    for parent in parents:
        path = os.path.join(parent, f"bubbles-probe-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        os.rmdir(path)
        return opened("it made a group in " + parent)
    return held("no group can be made")


@probe("confinement")
def confinement(_config: Config) -> Answer:
    fields = {name: status_field(name) for name in ("CapPrm", "CapEff", "NoNewPrivs", "Seccomp")}
    powerless = not any(int(fields[name] or "1", 16) for name in ("CapPrm", "CapEff"))
    tight = powerless and fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    return tight, " ".join(f"{name}={value}" for name, value in fields.items())


# --- devices and what /proc and /sys show


def try_open(path: str, flags: int) -> Answer:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        return held(path + ": " + name_of(error.errno))
    return opened(path + " opens")


def try_content(path: str) -> Answer:
    """A masked file may open, but it is empty."""
    try:
        data = read(path, 64)
    except OSError as error:
        return held(name_of(error.errno))
    return opened(f"{len(data)} bytes were read") if data else held("it is empty")


plain("core-pattern", try_open, "/proc/sys/kernel/core_pattern", os.O_WRONLY)
plain("sysrq", try_open, "/proc/sysrq-trigger", os.O_WRONLY)
plain("uevent-helper", try_open, "/sys/kernel/uevent_helper", os.O_WRONLY)
plain("dev-mem", try_open, "/dev/mem", os.O_RDONLY)
plain("dev-kmsg", try_open, "/dev/kmsg", os.O_RDONLY)
plain("kcore", try_content, "/proc/kcore")
plain("timer-list", try_content, "/proc/timer_list")


@probe("block-device")
def block_device(config: Config) -> Answer:
    names = config["block_devices"]
    return first_open([try_open("/dev/" + name, os.O_RDONLY) for name in names] or [(None, "the host has none")])


@probe("firmware")
def firmware(_config: Config) -> Answer:
    for top in ("/sys/firmware/dmi", "/sys/firmware/acpi"):
        for directory, _, names in os.walk(top):
            for name in names:
                path = os.path.join(directory, name)
                if try_content(path)[0] is False:
                    return opened(path + " reads")
    return held("nothing readable is there")


@probe("kernel-addresses")
def kernel_addresses(_config: Config) -> Answer:
    try:
        lines = read("/proc/kallsyms", 4096).splitlines()
    except OSError as error:
        return held(name_of(error.errno))
    shown = [line for line in lines if line.split() and line.split()[0].strip(b"0")]
    return opened("addresses are shown") if shown else held("addresses are hidden")


# --- system calls


@probe("kernel-log")
def kernel_log(_config: Config) -> Answer:
    return judge(LIBC.klogctl(3, ctypes.create_string_buffer(64), 64))


plain("bpf", try_call, "bpf", 0, struct.pack("<IIII112x", 2, 4, 4, 1), 128)
plain("userfaultfd", try_call, "userfaultfd", 0)
plain("userfaultfd-user", try_call, "userfaultfd", 1)
plain("io-uring", try_call, "io_uring_setup", 1, ctypes.create_string_buffer(128))
plain("open-by-handle", try_call, "open_by_handle_at", -100, struct.pack("<Ii8x", 8, 1), os.O_RDONLY)
plain("load-module", try_call, "init_module", None, 0, b"")
plain("kexec", try_call, "kexec_load", 0, 0, None, 0x8000)


@probe("perf-event")
def perf_event(_config: Config) -> Answer:
    """A clock of the own process, user code only: what anybody may ask for at perf_event_paranoid 2."""
    wanted = struct.pack("<IIQQQQQ80x", 1, 128, 0, 0, 0, 0, 0x60)
    return try_call("perf_event_open", wanted, 0, -1, -1, 0)


@probe("add-key")
def add_key(_config: Config) -> Answer:
    key = syscall("add_key", b"user", b"bubbles-probe", b"x", 1, USER_KEYRING)
    answer = (None, "the number of this call is not known here") if key is None else judge(key)
    if key is not None and key > 0:
        syscall("keyctl", 9, key, USER_KEYRING)
    return answer


@probe("host-key")
def host_key(config: Config) -> Answer:
    if not config["key"]:
        return None, NOT_PLANTED
    result = syscall("keyctl", 10, USER_KEYRING, b"user", config["key"].encode(), 0)
    if result is None:
        return None, "the number of this call is not known here"
    return judge(result, (*REFUSALS, errno.ENOKEY))
