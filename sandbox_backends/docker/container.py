"""What a sandbox's container is, as the body of the engine's create request (SBX-05). Everything hard is here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_backends.contract import Network, SandboxSpec
from sandbox_backends.docker.ceilings import Ceilings
from sandbox_backends.docker.doorway import SOCKET, TOKEN

HOME = "/home/agent"
HOSTNAME = "sandbox"
INSIDE_LIB = "/run/bubbles/lib"
"""Holds ``runner/``."""
INSIDE_LINK = "/run/bubbles/link"
"""Holds what leads out: the runner's door, and the socket of the egress proxy."""

LABEL = "org.bubbles.sandbox"
"""Of every container of ours: the sandbox's id."""
LABEL_DATA, LABEL_OWNER = f"{LABEL}.data", f"{LABEL}.owner"
LABEL_SESSION = f"{LABEL}.session"

MASKED = (
    *("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    *("/proc/slabinfo", "/proc/vmallocinfo", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup"),
    *("/proc/pagetypeinfo", "/proc/iomem", "/proc/ioports", "/proc/interrupts", "/sys/devices/virtual/powercap"),
)
"""What the engine hides by itself, and what a session as uid 0 could read besides; setting it replaces its own."""

CLOSED_IN_IMAGES = "/root"
"""0700 in every image, so a session that is not root could not walk to a root below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One container, decided in full."""

    id: str
    spec: SandboxSpec
    """Resolved; what it leaves open is decided by the fields below."""
    image: str
    user: tuple[int, int]
    """As numbered inside."""
    peer_uid: int
    """As whom the host sees it."""
    home: Path | None
    """``None``: in memory, gone with the container."""
    ceilings: Ceilings
    directory: Path
    """The session's own, with what :func:`lay` put there."""
    lib: Path
    tool_dirs: tuple[Path, ...] = ()
    runtime: str | None = None
    host_users: bool = False
    """Take part in no mapping of uids that the engine makes for others."""
    own_cgroup_view: bool = True
    stdio: bool = False
    """The runner talks through stdin and stdout instead of a socket."""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def link(self) -> Path:
        return self.directory / "link"


def lay(plan: Plan) -> None:
    """Make the files that the container is to see: who is who inside, and a way to roots below /root."""
    uid, gid = plan.user
    etc = plan.directory / "etc"
    for made in (etc, plan.link):
        made.mkdir()
        made.chmod(0o755)
    root = "" if uid == 0 else "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    (etc / "passwd").write_text(f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n{root}{nobody}")
    (etc / "group").write_text(f"agent:x:{gid}:\n{'' if gid == 0 else 'root:x:0:' + chr(10)}nogroup:x:65534:\n")
    for path in etc.iterdir():
        path.chmod(0o644)
    for inside in _below_closed(plan):
        made = plan.directory / "way" / inside.relative_to(CLOSED_IN_IMAGES)
        made.mkdir(parents=True, exist_ok=True)
        for path in (made, *made.parents):
            if path == plan.directory:
                break
            path.chmod(0o755)


def body(plan: Plan) -> dict[str, Any]:
    """See ContainerCreate in the Docker Engine API."""
    runner = ["python3", "-I", "-S", "-B", f"{INSIDE_LIB}/runner/start.py"]
    if plan.stdio:
        runner.append("--stdio")
    else:
        runner += ["--unix", f"{INSIDE_LINK}/{SOCKET}", "--token-file", f"{INSIDE_LINK}/{TOKEN}"]
    return {
        "Image": plan.image,
        "Entrypoint": runner,
        "Cmd": [],
        "User": f"{plan.user[0]}:{plan.user[1]}",
        "WorkingDir": "/",
        "StopSignal": "SIGKILL",  # the runner heeds no signal, so that none from inside can end it
        "Hostname": HOSTNAME,
        "OpenStdin": plan.stdio,
        "StdinOnce": plan.stdio,
        "AttachStdin": plan.stdio,
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {**dict(plan.labels), LABEL: plan.id, LABEL_SESSION: plan.spec.session},
        "HostConfig": _host_config(plan),
    }


def _host_config(plan: Plan) -> dict[str, Any]:
    limits = plan.ceilings
    config: dict[str, Any] = {
        "AutoRemove": True,  # the runner ends with its controller, and then so does the container
        "Init": False,  # the runner is process 1: it reaps, and nothing beside it can be signalled
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        # With an allow-list too: the way to the proxy is a unix socket.
        "NetworkMode": "bridge" if plan.spec.network is Network.FULL else "none",
        "IpcMode": "private",
        "MaskedPaths": list(MASKED),
        "LogConfig": {"Type": "none"},
        "ExtraHosts": [f"{HOSTNAME}:127.0.0.1"],
        "ShmSize": limits.tmp,
        "Tmpfs": _tmpfs(plan),
        "Mounts": _mounts(plan),
        "Memory": limits.memory or 0,
        "MemorySwap": limits.memory or 0,  # memory and swap together: no swap
        "PidsLimit": limits.pids,
        "NanoCpus": int((limits.cpus or 0) * 1e9),
    }
    if plan.own_cgroup_view:
        config["CgroupnsMode"] = "private"
    if plan.host_users:
        config["UsernsMode"] = "host"
    if plan.runtime is not None:
        config["Runtime"] = plan.runtime
    return config


def _tmpfs(plan: Plan) -> dict[str, str]:
    limits, (uid, gid) = plan.ceilings, plan.user
    made = {
        "/tmp": f"rw,exec,nosuid,nodev,size={limits.tmp},mode=1777",
        "/run": f"rw,noexec,nosuid,nodev,size={limits.tmp},mode=755",
    }
    if plan.home is None:
        made[HOME] = f"rw,exec,nosuid,nodev,size={limits.tmp},mode=700,uid={uid},gid={gid}"
    return made


def _mounts(plan: Plan) -> list[dict[str, Any]]:
    """Bind mounts. ``Mounts``, not ``Binds``: a missing source is an error then, not a new directory of root's."""
    mounts = [
        _bind(plan.lib, INSIDE_LIB, writable=False),
        _bind(plan.directory / "etc" / "passwd", "/etc/passwd", writable=False),
        _bind(plan.directory / "etc" / "group", "/etc/group", writable=False),
    ]
    if plan.home is not None:
        mounts.append(_bind(plan.home, HOME, writable=True))
    if not plan.stdio or plan.spec.network is Network.ALLOWLIST:
        mounts.append(_bind(plan.link, INSIDE_LINK, writable=False))
    if _below_closed(plan):
        mounts.append(_bind(plan.directory / "way", CLOSED_IN_IMAGES, writable=False))
    mounts += [_bind(path, str(path), writable=False) for path in plan.tool_dirs]
    mounts += [_bind(root.path, str(root.path), writable=root.writable) for root in plan.spec.roots]
    return mounts


def _bind(source: Path, target: str, *, writable: bool) -> dict[str, Any]:
    # A read-only bind leaves what is mounted below it writable in engines before 25: leave that out of it.
    options = {"Propagation": "rprivate", "NonRecursive": not writable}
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": not writable, "BindOptions": options}


def _below_closed(plan: Plan) -> list[Path]:
    if plan.user[0] == 0:
        return []
    shown = [*plan.tool_dirs, *(root.path for root in plan.spec.roots)]
    return [path for path in shown if path.is_relative_to(CLOSED_IN_IMAGES) and path != Path(CLOSED_IN_IMAGES)]
