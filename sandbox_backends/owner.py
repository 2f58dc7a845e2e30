"""Which process owns which sandbox, so that what a dead owner left behind is removed and a live one's never is.

Every controller process holds a lock file in ``<data_dir>/run/owners/`` for as long as it lives (flock(2), released by
the kernel even after SIGKILL). Every sandbox has a directory ``<data_dir>/run/<id>/`` with a ``sandbox.json`` that
names its owner. A sandbox is an orphan exactly when its owner's lock can be taken.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import py_compile
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.trees import remove_tree

KEY = re.compile(r"[A-Za-z0-9._-]{1,120}")
ASIDE = ".new-"
"""Begins the name of a sandbox's directory in ``run/`` until its record is in it."""
RUNNER = "runner-"
"""Begins the name of a directory in ``run/`` with one version of the runner, 16 hexadecimal digits follow."""


def check_key(session: str) -> str:
    """The session's key, if it can name a directory safely; InvalidSpecError otherwise."""
    if not KEY.fullmatch(session) or session.startswith("."):
        raise InvalidSpecError(
            f"session {session[:80]!r} cannot be used: "
            "take up to 120 letters, digits, '.', '_' or '-', not starting with '.'"
        )
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """What is known of a sandbox on disk."""

    id: str
    """The name of its directory."""
    backend: str
    session: str
    owner: str
    owner_pid: int
    created_s: float
    roots: tuple[str, ...]


class Owner:
    """This process as the owner of sandboxes under one data directory. Close it, or just exit."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.id = secrets.token_hex(8)
        self.run_dir = data_dir / "run"
        locks = self.run_dir / "owners"
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = locks / f"{self.id}.lock"
        # Locked under another name first: a reaper must never see the final name unlocked.
        aside = locks / f"{self.id}.new"
        self._fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.write(self._fd, str(os.getpid()).encode())
            aside.rename(self._path)
        except BaseException:  # such as a full disk
            os.close(self._fd)
            aside.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)

    @contextmanager
    def sandbox(self, backend: str, session: str, roots: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
        """A new sandbox's id and private directory (0700); both are gone when the context is left."""
        ident = f"{check_key(session)[:40].lower()}-{secrets.token_hex(4)}"
        directory = self.run_dir / ident
        # Under another name first: a crash between two steps must not leave a directory that says nothing of its owner.
        aside = self.run_dir / f"{ASIDE}{ident}"
        aside.mkdir(mode=0o700)
        try:
            record = SandboxRecord(
                id=ident,
                backend=backend,
                session=session,
                owner=self.id,
                owner_pid=os.getpid(),
                created_s=time.time(),
                roots=roots,
            )
            (aside / "sandbox.json").write_text(json.dumps(asdict(record)), encoding="utf-8")
            aside.rename(directory)
            yield ident, directory
        finally:
            remove_tree(aside)
            remove_tree(directory)


def owner_alive(data_dir: Path, owner: str) -> bool:
    """Whether the process that holds this owner's lock still runs."""
    try:
        fd = os.open(data_dir / "run" / "owners" / f"{Path(owner).name}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # out of descriptors, say: what cannot be found out must not cost a live owner its sandboxes
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def owner_pid(data_dir: Path, owner: str) -> int:
    """The process id that this owner wrote down; 0 when there is none to read."""
    try:
        return int((data_dir / "run" / "owners" / f"{Path(owner).name}.lock").read_bytes())
    except (OSError, ValueError):
        return 0


def records(data_dir: Path) -> list[SandboxRecord]:
    """Every sandbox on record, live or orphaned, oldest first. A record that cannot be read is left out."""
    found = [read_record(path.parent) for path in (data_dir / "run").glob("*/sandbox.json")]
    return sorted((record for record in found if record is not None), key=lambda record: record.created_s)


def read_record(directory: Path) -> SandboxRecord | None:
    """The record of the sandbox that has this directory. Only the directory says which sandbox that is."""
    try:
        row = json.loads((directory / "sandbox.json").read_text(encoding="utf-8"))
        record = SandboxRecord(**{**row, "id": check_key(directory.name), "roots": tuple(row["roots"])})
    except (OSError, ValueError, TypeError, KeyError, InvalidSpecError):
        return None
    texts = (record.backend, record.session, record.owner, *record.roots)
    numbers = (record.owner_pid, record.created_s)
    return (
        record if all(isinstance(v, str) for v in texts) and all(isinstance(v, int | float) for v in numbers) else None
    )


def forget(data_dir: Path, record: SandboxRecord) -> None:
    """Remove the directory of an orphaned sandbox, after its backend has ended what ran in it."""
    if not owner_alive(data_dir, record.owner):
        remove_tree(data_dir / "run" / check_key(record.id))


def sweep_locks(data_dir: Path) -> None:
    """Remove lock files of dead owners that own nothing any more."""
    owning = {record.owner for record in records(data_dir)}
    for path in (data_dir / "run" / "owners").glob("*.lock"):
        if path.stem not in owning and not owner_alive(data_dir, path.stem):
            path.unlink(missing_ok=True)


def stage_runner(data_dir: Path) -> Path:
    """A directory that holds the package ``runner``, readable by everyone, compiled; made once for each version of it.

    The installed package may lie where a sandbox's user or a container engine cannot read it.
    """
    target = data_dir / "run" / staged_name()
    try:
        os.utime(target)  # in use again: see litter.py
    except FileNotFoundError:
        pass
    else:
        return target
    aside = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    (aside / "runner").mkdir(parents=True, mode=0o755)
    for path in _runner_files():
        copy = aside / "runner" / path.name
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o644)
        py_compile.compile(str(copy), dfile=path.name, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for directory in (aside, *aside.rglob("*/")):
        if directory.is_dir():
            directory.chmod(0o755)
    try:
        aside.rename(target)
    except OSError:  # another process was faster
        remove_tree(aside)
    return target


def staged_name() -> str:
    """Of the directory for this version of the runner."""
    return RUNNER + hashlib.sha256(b"\0".join(path.read_bytes() for path in _runner_files())).hexdigest()[:16]


def _runner_files() -> list[Path]:
    return sorted(Path(__file__).with_name("runner").glob("*.py"))
