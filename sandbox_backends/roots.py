"""Which directories may be shown to a sandbox. Text of the refusals is for the person (SBX-08)."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox_backends.contract import BackendSettings, Root, SandboxSpec
from sandbox_backends.engine_sockets import engine_sockets
from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.owner import check_key

SYSTEM_TREES = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"),
    *("/var/lib", "/var/run", "/var/log", "/var/spool", "/var/cache", "/lost+found"),
    *("/System", "/Library", "/Applications", "/private/etc", "/private/var/db", "/private/var/root"),
)
"""Refused with all that lies below."""
SYSTEM_DIRECTORIES = (
    *("/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/tmp", "/snap"),
    *("/Users", "/Volumes", "/private", "/private/tmp", "/private/var", "/private/var/folders", "/private/var/tmp"),
)
"""Refused themselves; a directory below may be a root."""
O_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC
MEND = "Name a directory made for the work, with --root DIR."


def resolve_spec(spec: SandboxSpec, settings: BackendSettings) -> SandboxSpec:
    """The spec with its roots resolved once and checked; InvalidSpecError names the root and why it cannot be one."""
    check_key(spec.session)
    if not spec.roots:
        raise InvalidSpecError("A sandbox needs at least one root. " + MEND)
    roots = tuple(_resolve_root(root, settings) for root in spec.roots)
    paths = [root.path for root in roots]
    for path in paths:
        if paths.count(path) > 1:
            raise InvalidSpecError(f"{path} is given twice as a root: name it once.")
    home = spec.home
    if home is not None:
        home = Path(os.path.realpath(home))
        for path in paths:
            if home.is_relative_to(path) or path.is_relative_to(home):
                raise InvalidSpecError(f"The session's home {home} and the root {path} lie in one another. {MEND}")
    return SandboxSpec(
        session=spec.session,
        roots=roots,
        home=home,
        network=spec.network,
        allow=spec.allow,
        limits=spec.limits,
        env=spec.env,
        requires=spec.requires,
    )


def _resolve_root(root: Root, settings: BackendSettings) -> Root:
    if not root.path.is_absolute():
        raise InvalidSpecError(f"Root {str(root.path)!r} is not an absolute path. {MEND}")
    path = Path(os.path.realpath(root.path))
    if any(ord(c) < 32 or c in ":\\" for c in str(path)):
        raise InvalidSpecError(
            f"Root {str(path)!r} holds a control character, ':' or '\\', which mounts cannot name. {MEND}"
        )
    if not path.is_dir():
        raise InvalidSpecError(f"Root {path} is not a directory. Create it, or name another with --root DIR.")
    if str(path) in SYSTEM_DIRECTORIES or any(path.is_relative_to(tree) for tree in SYSTEM_TREES):
        raise InvalidSpecError(f"Root {path} is a system directory. {MEND}")
    home = Path(os.path.realpath(settings.person_home))
    if home.is_relative_to(path):
        raise InvalidSpecError(f"Root {path} is or holds your home directory, with its keys and logins. {MEND}")
    data = Path(os.path.realpath(settings.data_dir))
    if data.is_relative_to(path) or (path.is_relative_to(data) and not path.is_relative_to(data / "sessions")):
        raise InvalidSpecError(f"Root {path} holds the assistant's own files in {data}. {MEND}")
    sockets = engine_sockets(path, settings)
    if sockets:
        raise InvalidSpecError(f"Root {path} holds {sockets[0]}, and whoever reaches that rules the machine. {MEND}")
    info = identify(path)
    return Root(path=path, writable=root.writable, label=root.label, identity=(info.st_dev, info.st_ino))


def identify(path: Path) -> os.stat_result:
    """What lies at ``path`` when no link is followed on the way. Raises InvalidSpecError when there is one now."""
    fd = os.open("/", O_DIRECTORY)
    try:
        for name in path.parts[1:]:
            below = os.open(name, O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.fstat(fd)
    except OSError as error:
        raise InvalidSpecError(f"Root {path} changed while it was looked at ({error.strerror}): try again.") from error
    finally:
        os.close(fd)
