"""The command line by which a root controller starts a session's process as a lesser user.

One chain of programs, each of which replaces itself by the next, so that the process that the controller started is in
the end the one it wanted: ``[unshare] → sh → setpriv → the program``. The shell enters the control groups and makes the
mounts while it may; its script is fixed text, all that varies is passed as arguments or in a mount table.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.environment import SYSTEM_PATH
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.privileges import RunAs, reaches

STAGE = Path("/sys")
"""Covered, in a mount namespace of the chain's own, by a directory of mount points that every user can reach. It
exists everywhere and nothing that a session needs lies there."""

_SCRIPT = """
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done
shift
if [ -n "$1" ]; then mount -n -a -T "$1"; fi
if [ -n "$2" ]; then umount -n -l "$2"; fi
shift 2
exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountTable:
    """Mounts for the chain alone, as lines of an fstab(5)."""

    lines: tuple[str, ...] = ()
    staged: Mapping[Path, Path]
    """Where each directory that the user could not have reached is found."""
    unstage: bool = False
    """The directories are back at their own paths: uncover :data:`STAGE` again."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def stage(directories: Iterable[Path], who: RunAs) -> MountTable:
    """Mounts that bring the directories that ``who`` cannot walk to below :data:`STAGE`. Blocks. Raises OSError."""
    hidden = [path for path in dict.fromkeys(directories) if not reaches(path, who.uid, who.gid)]
    staged = {path: STAGE / str(number) for number, path in enumerate(hidden)}
    if not hidden:
        return MountTable(staged={})
    lines = [_line("bubbles", STAGE, "tmpfs", "mode=0755,size=1m")]
    lines += [_bind(path, place) for path, place in staged.items()]
    return MountTable(lines=tuple(lines), staged=staged)


def uncover(directories: Iterable[Path], who: RunAs) -> MountTable:
    """Mounts that let ``who`` walk to the directories at their own paths, and to nothing beside them.

    The topmost ancestor that stands in the way is covered by an empty one, and what is wanted is bound back into it;
    the rest of it was out of this user's reach before, too. Blocks. Raises OSError.
    """
    wanted = sorted(dict.fromkeys(directories), key=lambda path: len(path.parts))
    covers = sorted({top for path in wanted if (top := _barrier(path, who)) is not None})
    covers = [top for top in covers if not any(top != other and top.is_relative_to(other) for other in covers)]
    below = [path for path in wanted if any(path.is_relative_to(top) and path != top for top in covers)]
    if not below:
        return MountTable(staged={})
    staged = {path: STAGE / str(number) for number, path in enumerate(below)}
    lines = [_line("bubbles", STAGE, "tmpfs", "mode=0755,size=1m")]
    lines += [_bind(path, place) for path, place in staged.items()]
    lines += [_line("bubbles", top, "tmpfs", "mode=0755,size=1m") for top in covers]
    lines += [_bind(place, path) for path, place in staged.items()]
    return MountTable(lines=tuple(lines), staged={}, unstage=True)


def _barrier(path: Path, who: RunAs) -> Path | None:
    """The topmost ancestor of ``path`` that ``who`` may not pass."""
    return next((step for step in reversed(path.parents) if not reaches(step, who.uid, who.gid)), None)


def _bind(source: Path, target: Path) -> str:
    return _line(str(source), target, "none", "rbind,X-mount.mkdir")


def _line(source: str, target: Path, kind: str, options: str) -> str:
    return f"{_quoted(source)} {_quoted(str(target))} {kind} {options} 0 0"


def _quoted(text: str) -> str:
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in text)


def dropping(
    argv: Sequence[str],
    who: RunAs,
    *,
    groups: Sequence[str] = (),
    table: Path | None = None,
    unstage: bool = False,
    keep: str = "",
    no_new_privileges: bool = False,
) -> tuple[str, ...]:
    """``argv`` to be started by root, so that it runs as ``who``, in no group and without capabilities.

    ``groups``: control group entries to write its pid into. ``table``: a file with a :class:`MountTable`'s text, for a
    mount namespace of its own. ``keep``: a capability that uid 0 still has when it executes ``argv``.
    Raises BackendUnavailableError when a program is missing.
    """
    capabilities = f"-all,+{keep}" if keep else "-all"
    privileges = [
        *(program("setpriv"), "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"),
        *("--inh-caps=-all", "--ambient-caps=-all", f"--bounding-set={capabilities}"),
        *(("--no-new-privs",) if no_new_privileges else ()),
    ]
    shell = [program("sh"), "-c", _SCRIPT, "sh", *groups, "--", str(table or ""), str(STAGE) if unstage else ""]
    own = [program("unshare"), "--mount", "--propagation", "private", "--"] if table else []
    return (*own, *shell, *privileges, "--", *argv)


def program(name: str) -> str:
    """Path of a system program. Raises BackendUnavailableError."""
    path = shutil.which(name, path=SYSTEM_PATH)
    if path is None:
        raise BackendUnavailableError(f"The program {name} is missing.", "apt-get install util-linux")
    return path


def write_table(table: MountTable, directory: Path) -> Path | None:
    """The table as a file in the sandbox's private directory; ``None`` when there is nothing to mount."""
    if not table.lines:
        return None
    path = directory / "mounts"
    path.write_text(table.text, encoding="utf-8", errors="surrogateescape")
    os.chmod(path, 0o600)
    return path
