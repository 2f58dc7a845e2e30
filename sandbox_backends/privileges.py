"""Which user of the host a session's processes are: the controller's own, or, under a root controller, a lesser one.

A session that is bound to a project works as the project's owner, so that what it makes belongs to that person. Any
other session has a uid of its own, which no other session ever gets: what one leaves behind, another cannot open.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import secrets
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.contract import SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.owner import check_key
from sandbox_backends.runner import kernel

SESSION_UIDS = range(1_900_000_000, 2_000_000_000)
"""Between what systemd and the subordinate-id tools hand out and 2**31, past which file systems and tools disagree."""
NARROW_SESSION_UIDS = range(30_000, 60_000)
"""Where the controller's user namespace maps no such uid: in a container with a 16-bit range."""
MAX_DEPTH = 200
"""Directories held open at once while a tree is given away; what lies deeper keeps its owner."""

_O_PATH = getattr(os, "O_PATH", 0)
_AT_EMPTY_PATH = 0x1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """Whose rights a session's processes have.

    Under a root controller the launcher drops to them, without a capability or a supplementary group.
    """

    uid: int
    gid: int
    refuse_setid: bool = False
    """uid 0: a file made setuid by the session would be setuid root, so the system call filter refuses it."""
    warnings: tuple[str, ...] = ()

    @property
    def dropped(self) -> bool:
        """Whether the launcher must become this user; false: it is already."""
        return controller_drops()


def controller_drops() -> bool:
    """Whether this controller gives its sessions lesser rights than its own: it is root, on Linux."""
    return kernel.LINUX and os.geteuid() == 0


def run_as(spec: SandboxSpec, data_dir: Path) -> RunAs:
    """Who the session of this (resolved) spec runs as; its desk and home are made ready for that user.

    The desk and the home come to belong to that user, a project root never changes hands. Blocks on files. Raises
    BackendUnavailableError.
    """
    try:
        if not controller_drops():
            if spec.home is not None:
                spec.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            return RunAs(uid=os.geteuid(), gid=os.getegid())
        who = _who(spec, data_dir)
        if spec.home is not None:
            spec.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            give(spec.home, who.uid, who.gid)
        for root in spec.roots:
            if root.label == "desk":
                give(root.path, who.uid, who.gid)
    except OSError as error:
        raise BackendUnavailableError(
            f"The session's directories could not be made ready: {error}.", f"Look at what is in {data_dir}."
        ) from error
    return who


def _who(spec: SandboxSpec, data_dir: Path) -> RunAs:
    for root in spec.roots:
        if root.label == "project":
            owner = root.path.stat()
            if root.identity not in (None, (owner.st_dev, owner.st_ino)):
                raise InvalidSpecError(f"Root {root.path} was replaced while the sandbox opened: try again.")
            if owner.st_uid == 0:
                return RunAs(uid=0, gid=0, refuse_setid=True, warnings=(_owned_by_root(root.path),))
            # Not the directory's group: that may be docker's or shadow's.
            return RunAs(uid=owner.st_uid, gid=_group_of(owner.st_uid))
    uid = session_uid(spec.session, data_dir)
    return RunAs(uid=uid, gid=uid)


def _owned_by_root(project: Path) -> str:
    return (
        f"{project} belongs to root, so its commands run as root without any capability; "
        f"give it to an ordinary user (chown -R USER {shlex.quote(str(project))}) for a stronger boundary."
    )


def _group_of(uid: int) -> int:
    """An ordinary user's own group."""
    try:
        return pwd.getpwuid(uid).pw_gid or uid
    except KeyError:
        return uid


# -- a uid for each session --


def session_uid(session: str, data_dir: Path) -> int:
    """The uid that belongs to this session for good; the first call allots it.

    Drawn at random, so that two data directories on one machine do not hand out the same numbers. A session that is
    removed keeps its number: files of it may be left somewhere. Raises BackendUnavailableError, OSError.
    """
    check_key(session)
    with _uid_table(data_dir) as table:
        if session not in table:
            taken = set(table.values())
            while True:
                uid = secrets.choice(usable_uids())
                if uid not in taken and not _is_a_user(uid):
                    break
            table[session] = uid
        return table[session]


@contextmanager
def _uid_table(data_dir: Path) -> Iterator[dict[str, int]]:
    """``session_uids.json``, locked against other controllers; written back when the block has changed it."""
    path = data_dir / "session_uids.json"
    lock = os.open(data_dir / "session_uids.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = _read_table(path)
        before = dict(table)
        yield table
        if table != before:
            aside = path.with_suffix(".new")
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(table, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)
    finally:
        os.close(lock)


def _read_table(path: Path) -> dict[str, int]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        table = None
    allotted = (SESSION_UIDS, NARROW_SESSION_UIDS)
    if not isinstance(table, dict) or not all(
        isinstance(uid, int) and any(uid in numbers for numbers in allotted) for uid in table.values()
    ):
        # Starting over would hand one session's uid, and with it its files, to another.
        raise BackendUnavailableError(
            f"{path}, which says which user number each session has, cannot be read.",
            "Restore it from a backup; or remove it together with every session's desk and home.",
        )
    return table


def usable_uids() -> range:
    """The wide range if this user namespace maps it all."""
    with open("/proc/self/uid_map") as rows:
        for row in rows:
            first, _, count = map(int, row.split())
            if first <= SESSION_UIDS.start and SESSION_UIDS.stop <= first + count:
                return SESSION_UIDS
    return NARROW_SESSION_UIDS


def _is_a_user(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


# -- reaching and owning directories --


def reaches(path: Path, uid: int, gid: int) -> bool:
    """Whether this user, without groups and capabilities, may walk to ``path`` (and into it if it is a directory).

    Only by mode bits: an access list that grants more is not seen.
    """
    for step in (*reversed(path.parents), path):
        info = step.stat()
        if step == path and not stat.S_ISDIR(info.st_mode):
            return True
        if info.st_uid == uid:
            allowed = info.st_mode & 0o100
        elif info.st_gid == gid:
            allowed = info.st_mode & 0o010
        else:
            allowed = info.st_mode & 0o001
        if not allowed:
            return False
    return True


def give(path: Path, uid: int, gid: int) -> None:
    """Make a directory and all beneath it belong to ``uid``; nothing is done when its top belongs to it already.

    Its last owner may have planted anything there and may still be at work. So every entry is opened, looked at and
    given by that descriptor; no link is followed, no mount crossed, and a file that has other names (it may be one of
    the host's, linked here) keeps its owner. The top comes last: a walk that was cut short is done again.
    Raises OSError.
    """
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        info = os.fstat(top)
        if info.st_uid != uid:
            _give_beneath(top, info.st_dev, uid, gid)
            os.fchown(top, uid, gid)
    finally:
        os.close(top)


def _give_beneath(top: int, device: int, uid: int, gid: int) -> None:
    walk = [(os.dup(top), os.listdir(top))]
    try:
        while walk:
            directory, names = walk[-1]
            if not names:
                os.close(directory)
                walk.pop()
                continue
            try:
                inner = _give_entry(directory, names.pop(), device, uid, gid)
            except FileNotFoundError:
                continue  # removed meanwhile
            if inner is None:
                continue
            if len(walk) >= MAX_DEPTH:
                os.close(inner)
            else:
                walk.append((inner, os.listdir(inner)))
    finally:
        for directory, _ in walk:
            os.close(directory)


def _give_entry(directory: int, name: str, device: int, uid: int, gid: int) -> int | None:
    """Give one entry away; an open descriptor of it when it is a directory to go on into."""
    held = os.open(name, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        info = os.fstat(held)
        if info.st_dev != device or (not stat.S_ISDIR(info.st_mode) and info.st_nlink > 1):
            return None
        _chown_held(held, uid, gid)
        if not stat.S_ISDIR(info.st_mode):
            return None
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    finally:
        os.close(held)


def _chown_held(held: int, uid: int, gid: int) -> None:
    """fchownat(2) of the very inode that ``held`` (opened with O_PATH) is, be it a link."""
    if kernel.libc.fchownat(held, b"", ctypes.c_uint(uid), ctypes.c_uint(gid), _AT_EMPTY_PATH) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
