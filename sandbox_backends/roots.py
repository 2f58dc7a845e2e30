"""Which directories may be shown to a sandbox. Text of the refusals is for the person (SBX-08)."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from sandbox_backends.contract import BackendSettings, Root, SandboxSpec
from sandbox_backends.engine_sockets import engine_sockets
from sandbox_backends.environment import HARD_HOME
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
LOGINS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".mozilla", ".thunderbird"),
    *(".config/gh", ".config/gcloud", ".config/systemd", ".local/share/keyrings"),
)
"""Where keys and logins lie below a home: not a root, and not in one."""
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
        for outer in roots:
            # Whoever can write in the outer one could lead the mount of the inner one elsewhere.
            if outer.writable and outer.path in path.parents:
                raise InvalidSpecError(f"Root {path} lies in the root {outer.path}: name the outer one alone.")
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
    for kept in (home / name for name in LOGINS):
        if kept.is_relative_to(path) or path.is_relative_to(kept):
            raise InvalidSpecError(f"Root {path} is or holds {kept}, where keys and logins are kept. {MEND}")
    if _is_home_of_owner(path):
        raise InvalidSpecError(f"Root {path} is a user's home directory, with its keys and logins. {MEND}")
    data = Path(os.path.realpath(settings.data_dir))
    if data.is_relative_to(path) or (path.is_relative_to(data) and data / "sessions" not in path.parents):
        raise InvalidSpecError(f"Root {path} holds the assistant's own files in {data}. {MEND}")
    sockets = engine_sockets(path, settings)
    if sockets:
        raise InvalidSpecError(f"Root {path} holds {sockets[0]}, and whoever reaches that rules the machine. {MEND}")
    info = identify(path)
    return Root(path=path, writable=root.writable, label=root.label, identity=(info.st_dev, info.st_ino))


def refuse_in_hard_place(spec: SandboxSpec, settings: BackendSettings) -> None:
    """Refuse what clashes with a view of its own: a root in its HOME, a tool directory that holds more than a tool.

    Raises InvalidSpecError; blocks. A mount below HOME would follow what an earlier session left there.
    """
    for root in spec.roots:
        if root.path.is_relative_to(HARD_HOME):
            raise InvalidSpecError(f"Root {root.path} lies where the sandbox has its own HOME, {HARD_HOME}. {MEND}")
    check_tool_dirs(settings)


def check_tool_dirs(settings: BackendSettings) -> None:
    """Raise InvalidSpecError for a tool directory that no sandbox may be shown. Blocks."""
    home, data = (Path(os.path.realpath(path)) for path in (settings.person_home, settings.data_dir))
    for tool in settings.tool_dirs:
        path = Path(os.path.realpath(tool))
        mend = "Name the directory of the tool alone in tools.sandbox.toolDirs."
        if not path.is_dir():
            raise InvalidSpecError(f"The tool directory {tool} is missing. {mend}")
        hold = (home, data, Path(HARD_HOME), *(home / name for name in LOGINS))
        if any(held.is_relative_to(path) for held in hold) or engine_sockets(path, settings):
            raise InvalidSpecError(
                f"The tool directory {tool} holds your home, the assistant's own files or an engine's socket. {mend}"
            )
        if path.is_relative_to(data) or path.is_relative_to(HARD_HOME):
            raise InvalidSpecError(f"The tool directory {tool} lies where the sandbox has files of its own. {mend}")


def _is_home_of_owner(path: Path) -> bool:
    """Whether ``path`` is the home of the user to whom it belongs: under sudo the person's own is not root's."""
    try:
        return Path(os.path.realpath(pwd.getpwuid(path.stat().st_uid).pw_dir)) == path
    except (KeyError, OSError):
        return False


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
