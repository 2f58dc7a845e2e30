"""Runs INSIDE a place: what of the host's files, network, processes and environment is in reach."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import socket
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
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox_backends.probes.inside.frame import Answer, Config

FAMILY_REFUSALS = (*REFUSALS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)

# --- files


def own_copy(path: str, outside_sha256: str | None) -> Answer:
    """A file of this name may well stand in the place, as long as it is not the host's."""
    try:
        data = read(path)
    except OSError as error:
        return held(name_of(error.errno))
    if not data.strip():
        return held("it is empty")
    if outside_sha256 is not None and hashlib.sha256(data).hexdigest() != outside_sha256:
        return held("it is a file of the place's own")
    return opened("it reads " + path)


def try_token(path: str | None, token: str) -> Answer:
    if not path:
        return None, NOT_PLANTED
    try:
        data = read(path)
    except OSError as error:
        return held(name_of(error.errno))
    return opened("it reads " + path) if token.encode() in data else held("another file stands there")


def try_create(directory: str) -> Answer:
    path = os.path.join(directory, f".bubbles-probe-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        return held(name_of(error.errno))
    os.unlink(path)
    return opened("it made a file in " + directory)


probe("shadow")(lambda config: own_copy("/etc/shadow", config["shadow_sha256"]))
probe("machine-id")(lambda config: own_copy("/etc/machine-id", config["machine_id_sha256"]))
probe("person-file")(lambda config: try_token(config["person_file"], config["token"]))
probe("other-user-file")(lambda config: try_token(config["user_file"], config["token"]))
probe("other-session-home")(lambda config: try_token(config["session_file"], config["token"]))
probe("host-tmp")(lambda config: try_token(config["tmp_file"], config["token"]))
plain("write-usr", try_create, "/usr")
plain("write-etc", try_create, "/etc")
plain("write-root", try_create, "/")


@probe("home-logins")
def home_logins(config: Config) -> Answer:
    """As gh, aws or git look for a login: by its name under HOME."""
    if not config["person_file"]:
        return None, NOT_PLANTED
    name = os.path.basename(config["person_file"])
    return try_token(os.path.join(os.environ.get("HOME", "/"), name), config["token"])


# --- network


def try_connect(family: int, kind: int, address: object) -> Answer:
    try:
        with socket.socket(family, kind) as link:
            link.settimeout(3)
            link.connect(address)  # type: ignore[arg-type]
    except OSError as error:
        return held(name_of(error.errno) if error.errno else "no answer")
    return opened(f"connected to {address!r}")


def try_family(family: int, kind: int, protocol: int = 0) -> Answer:
    try:
        socket.socket(family, kind, protocol).close()
    except OSError as error:
        refused = error.errno in FAMILY_REFUSALS
        return held(name_of(error.errno)) if refused else opened("allowed, then " + name_of(error.errno))
    return opened("the socket opens")


@probe("engine-socket")
def engine_socket(config: Config) -> Answer:
    paths = config["engine_sockets"]
    return first_open([try_connect(socket.AF_UNIX, socket.SOCK_STREAM, path) for path in paths])


@probe("abstract-socket")
def abstract_socket(config: Config) -> Answer:
    return try_connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + config["abstract"])


@probe("host-loopback")
def host_loopback(config: Config) -> Answer:
    return try_connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", config["port"]))


# Connecting a datagram socket only asks for a route: nothing is sent.
plain("metadata-route", try_connect, socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80))
plain("internet-route", try_connect, socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
plain("raw-icmp", try_family, 2, socket.SOCK_RAW, 1)
plain("af-packet", try_family, 17, socket.SOCK_RAW, 0x0300)
plain("af-vsock", try_family, 40, socket.SOCK_STREAM)
plain("af-alg", try_family, 38, socket.SOCK_SEQPACKET)
plain("af-netlink", try_family, 16, socket.SOCK_RAW)


# --- processes


def command_line(pid: int) -> bytes:
    try:
        return read(f"/proc/{pid}/cmdline")
    except OSError:
        return b""


def is_another(config: Config) -> bool:
    """Whether the canary's number is some other process here, as it may be in a process namespace."""
    line = command_line(config["pid"])
    return bool(line) and config["token"].encode() not in line


@probe("host-processes")
def host_processes(config: Config) -> Answer:
    token = config["token"].encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and token in command_line(int(name)):
            return opened(f"process {name} of the host is seen")
    return held("the canary is not in /proc")


@probe("signal-host")
def signal_host(config: Config) -> Answer:
    try:
        os.kill(config["pid"], 0)
    except OSError as error:
        return held(name_of(error.errno))
    return held("no such process") if is_another(config) else opened("a signal would be delivered")


def try_attach(pid: int) -> Answer:
    """PTRACE_SEIZE does not stop its target, and ends with this child."""
    LIBC.ptrace.restype = ctypes.c_long
    if LIBC.ptrace(0x4206, ctypes.c_long(pid), None, None) == 0:
        return opened("it is attached")
    return held(name_of(ctypes.get_errno()))


@probe("ptrace-host")
def ptrace_host(config: Config) -> Answer:
    return held("no such process") if is_another(config) else try_attach(config["pid"])


@probe("ptrace-runner")
def ptrace_runner(config: Config) -> Answer:
    path = "/proc/{}/mem".format(config["runner_pid"])
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return try_attach(config["runner_pid"])
    return opened(path + " opens")


@probe("host-shm")
def host_shm(config: Config) -> Answer:
    if config["shm_key"] is None:
        return None, NOT_PLANTED
    found = LIBC.shmget(config["shm_key"], 0, 0)
    return opened("the segment is found") if found >= 0 else held(name_of(ctypes.get_errno()))


@probe("tiocsti")
def tiocsti(_config: Config) -> Answer:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        return held("no terminal: " + name_of(error.errno))
    # With a null pointer, allowed means EFAULT, and nothing is typed into the person's terminal.
    LIBC.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
    return judge(LIBC.ioctl(terminal, 0x5412, None), (*REFUSALS, errno.EIO))


# --- environment


def try_environ(pid: int, token: str) -> Answer:
    try:
        data = read(f"/proc/{pid}/environ")
    except OSError as error:
        return held(name_of(error.errno))
    return opened("the secret stands there") if token.encode() in data else held("the secret is not there")


@probe("own-environ")
def own_environ(config: Config) -> Answer:
    names = [name for name, value in os.environ.items() if config["token"] in value]
    return opened("it is in " + names[0]) if names else held("the secret is not there")


probe("first-environ")(lambda config: try_environ(1, config["token"]))
probe("parent-environ")(lambda config: try_environ(config["runner_pid"], config["token"]))


def leaked(text: str, paths: Sequence[str]) -> Answer:
    seen = [path for path in paths if path in text]
    return opened("it names " + seen[0]) if seen else held("no path of the host is named")


@probe("first-cmdline")
def first_cmdline(config: Config) -> Answer:
    return leaked(command_line(1).decode("utf-8", "replace"), config["host_paths"])


@probe("mountinfo")
def mountinfo(config: Config) -> Answer:
    sources = "\n".join(line.split()[3] for line in read("/proc/self/mountinfo").decode().splitlines())
    return leaked(sources, config["root_paths"])


@probe("inherited-fds")
def inherited_fds(config: Config) -> Answer:
    extra = config["fds"]
    return opened("open at the start: " + " ".join(extra)) if extra else held("only the three standard ones")
