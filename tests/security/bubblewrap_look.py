"""What is seen from inside a bubblewrap, gathered there and brought out as one JSON object.

Standard library and ``sandbox_backends`` only: the text of this file is also run as an ordinary user.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

from sandbox_backends.bubblewrap import BubblewrapBackend
from sandbox_backends.contract import BackendSettings, ExecRequest, Limits, Network, Root, SandboxSpec
from sandbox_backends.owner import Owner

INSIDE = r"""
import ctypes, errno, json, os, re, socket, stat, sys
port, abstract, *canaries = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def code(result):
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def tried(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "done"

def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)

def opened(flags, *tops):
    found = []
    for top in tops:
        for directory, names, files in os.walk(top):
            if directory == "/proc":
                names[:] = [name for name in names if not name.isdigit()]
            for name in files:
                path = os.path.join(directory, name)
                try:
                    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY))
                except OSError:
                    continue
                found.append(path)
    return found

status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
mounts = [line.split() for line in read("/proc/self/mountinfo").splitlines()]
look = {
    "uid": os.getuid(), "gid": os.getgid(), "uid_map": read("/proc/self/uid_map").split(),
    "groups": sorted(set(os.getgroups())),
    "caps": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "nnp": status["NoNewPrivs"].strip(), "seccomp": status["Seccomp"].strip(),
    "namespaces": {
        name: os.readlink("/proc/self/ns/" + name) for name in ("user", "mnt", "pid", "ipc", "uts", "cgroup", "net")
    },
    "unshare_user": code(libc.unshare(0x10000000)),
    "mount": code(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "chroot": tried(lambda: os.chroot("/tmp")),
    "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "cmdline_1": read("/proc/1/cmdline").split("\0"),
    "environ_1": tried(lambda: read("/proc/1/environ")),
    "fd_1": tried(lambda: os.readlink("/proc/1/fd/0")), "mem_1": tried(lambda: open("/proc/1/mem")),
    "attach_1": code(libc.ptrace(16, 1, 0, 0)),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "env": dict(os.environ),
    "root": sorted(os.listdir("/")), "etc": sorted(os.listdir("/etc")), "home": os.listdir("/home"),
    "run": sorted(os.listdir("/run")), "dev": sorted(os.listdir("/dev")),
    "passwd": read("/etc/passwd"), "resolv": os.path.exists("/etc/resolv.conf"), "hostname": os.uname().nodename,
    "writable_mounts": sorted(row[4] for row in mounts if "rw" in row[5].split(",")),
    "suid_mounts": [row[4] for row in mounts if "nosuid" not in row[5].split(",")],
    "dev_mounts": [row[4] for row in mounts if "nodev" not in row[5].split(",")],
    "written": opened(os.O_WRONLY, "/proc", "/etc", "/usr/lib/os-release", "/run"),
    "root_only": [p for p in opened(os.O_RDONLY, "/proc") if not stat.S_IMODE(os.stat(p).st_mode) & 4],
    "made": {path: tried(lambda: os.mkdir(path + "/made")) for path in ("/", "/etc", "/usr", "/dev", "/run/bubbles")},
    "support_renamed": tried(lambda: os.rename("/run/bubbles", "/run/moved")),
    "canaries": [path for path in canaries if os.path.lexists(path)],
    "loopback": tried(lambda: connect(socket.AF_INET, ("127.0.0.1", int(port)))),
    "abstract": tried(lambda: connect(socket.AF_UNIX, "\0" + abstract)),
    "internet": tried(lambda: connect(socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM)),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "setuid": tried(lambda: (open("suid", "w").close(), os.chmod("suid", 0o4755))),
    "git": os.popen("git init -q repo 2>&1; git -C repo status --short 2>&1").read(),
}
print(json.dumps(look))
"""


async def _look(base: Path, label: Literal["desk", "project"], network: str, arguments: list[str]) -> dict[str, Any]:
    owner = Owner(base / "data")
    host_env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "ANTHROPIC_API_KEY": "host-secret"}
    settings = BackendSettings(data_dir=base / "data", person_home=base / "person", host_env=host_env)
    home = base / "data" / "session_homes" / "s"
    spec = SandboxSpec(
        session="s",
        roots=(Root(path=base / "project", label=label),),
        home=home,
        network=Network(network) if network else None,
        env={"FROM_SPEC": "spec-value"},
        limits=Limits(pids=200),
    )
    try:
        async with BubblewrapBackend(settings, owner).open(spec) as session:
            argv = ("python3", "-c", INSIDE, *arguments)
            result = await session.exec(ExecRequest(argv=argv, timeout_s=15, max_output_bytes=1 << 20))
            if not result.ok:
                raise AssertionError((result, session.lost))
            look: dict[str, Any] = json.loads(result.stdout)
            return {**look, "warnings": list(session.warnings)}
    finally:
        owner.close()


def look(base: str, label: Literal["desk", "project"], network: str, *arguments: str) -> dict[str, Any]:
    """``base`` holds data, person and project. ``arguments``: port, abstract name, canaries."""
    return asyncio.run(_look(Path(base), label, network, list(arguments)))
