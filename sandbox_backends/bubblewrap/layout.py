"""What is to be seen and done inside one bubblewrap, as bwrap's own options; and handing them over unseen.

The options go through a descriptor (``--args``) and the files that are made for the inside through others, so that no
command line, no environment and no mount inside tells anything of the host but the roots' own paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.bubblewrap.system import HOME, HOST_NAME, UID, etc_files, proc_options, system_options
from sandbox_backends.contract import Root

SUPPORT = "/run/bubbles"
LIB = f"{SUPPORT}/lib"
NET = f"{SUPPORT}/net"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
"""What ``--dev`` binds from the host, with the numbers that Linux gives them (admin-guide/devices.txt)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one session sees of the host, beside the minimal system."""

    roots: tuple[Root, ...] = ()
    home: Path | None = None
    """``None``: an empty one in memory."""
    tools: tuple[Path, ...] = ()
    lib: Path | None = None
    """The directory with the package ``runner``."""
    net: Path | None = None
    """The directory with the egress proxy's socket."""
    share_net: bool = False
    tmp_bytes: int = 64 << 20
    """Size of each directory in memory."""
    devices: Path | None = None
    """Nodes to show instead of the host's own."""
    host_root: bool = False
    """The session's user is the host's uid 0 (without capabilities)."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """Every directory that bwrap must be able to reach. Blocks."""
        others = (*map(_real, self.tools), *(path for path in (self.lib, self.net, self.home) if path is not None))
        return (*(root.path for root in self.roots), *others)

    @property
    def temporary(self) -> tuple[str, ...]:
        """The directories in memory: their sizes together must stay below the session's memory limit."""
        return ("/tmp", "/run", "/dev/shm", *((HOME,) if self.home is None else ()))


def own_devices(directory: Path) -> Path | None:
    """Device nodes for one session, so that a session as uid 0 cannot change the modes of the host's. Blocks.

    ``None`` where a file system holds no devices; raises OSError.
    """
    if os.statvfs(directory).f_flag & os.ST_NODEV:
        return None
    made = directory / "dev"
    made.mkdir(0o755)
    for name, (major, minor) in DEVICES.items():
        os.mknod(made / name, 0o020666, os.makedev(major, minor))
        (made / name).chmod(0o666)
    return made


def namespace_options(features: frozenset[str], *, share_net: bool) -> list[str]:
    """Everything unshared, nothing kept."""
    options = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup"]
    options += [] if share_net else ["--unshare-net"]
    # Without it (an older bwrap, or a setuid one) the system call filter alone refuses further user namespaces.
    options += ["--disable-userns"] if "--disable-userns" in features else []
    options += ["--uid", str(UID), "--gid", str(UID), "--hostname", HOST_NAME, "--clearenv", "--cap-drop", "ALL"]
    # The runner is process 1 itself: between it and the kernel there is no bwrap whose environment could be read.
    return [*options, "--as-pid-1", "--die-with-parent", "--chdir", "/"]


def view_options(view: View, staged: Mapping[Path, Path]) -> list[str]:
    """Mounts, outer ones first. ``staged``: where a directory is found that bwrap's user cannot walk to. Blocks."""

    def bind(path: Path, inside: str, writable: bool = False) -> list[str]:
        return ["--bind" if writable else "--ro-bind", str(staged.get(path, path)), inside]

    options = [*system_options(), *proc_options(host_root=view.host_root), "--dev", "/dev"]
    modes = {"/tmp": "1777", "/dev/shm": "1777", "/run": "0755", HOME: "0700"}
    for memory in view.temporary:
        options += ["--perms", modes[memory], "--size", str(view.tmp_bytes), "--tmpfs", memory]
    shown = {path: bind(_real(path), str(path)) for path in view.tools}
    if view.home is not None:
        shown[Path(HOME)] = bind(view.home, HOME, writable=True)
    shown |= {root.path: bind(root.path, str(root.path), root.writable) for root in view.roots}
    for path in sorted(shown, key=lambda path: len(path.parts)):  # a root may lie in another
        options += shown[path]
    options += ["--perms", "0755", "--size", "65536", "--tmpfs", SUPPORT]
    options += bind(view.lib, LIB) if view.lib else []
    options += bind(view.net, NET) if view.net else []
    for name in DEVICES if view.devices else ():
        options += ["--dev-bind", f"{view.devices}/{name}", f"/dev/{name}"]
    for whole in (SUPPORT, "/dev", "/"):  # not what is mounted below
        options += ["--remount-ro", whole]
    return options


@contextmanager
def handed_over(view: View, features: frozenset[str], staged: Mapping[Path, Path]) -> Iterator[tuple[str, list[int]]]:
    """The text for ``--args`` and every descriptor that bwrap must inherit. Blocks on files."""
    held: list[int] = []
    try:
        options = namespace_options(features, share_net=view.share_net)
        for path, content in etc_files(resolver=view.share_net).items():
            held.append(_in_memory(content))
            options += ["--perms", "0444", "--file", str(held[-1]), path]
        options += view_options(view, staged)
        held.append(_in_memory(b"".join(os.fsencode(option) + b"\0" for option in options)))
        yield str(held[-1]), held
    finally:
        for fd in held:
            os.close(fd)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("bubbles", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
