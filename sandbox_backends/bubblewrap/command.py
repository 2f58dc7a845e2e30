"""The whole command line of one bubblewrap, from root's or an ordinary user's side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox_backends.bubblewrap.layout import View, handed_over
from sandbox_backends.bubblewrap.program import Program
from sandbox_backends.drop import MountTable, dropping, stage, write_table
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.privileges import RunAs


@contextmanager
def command(
    inner: Sequence[str], view: View, program: Program, who: RunAs, *, directory: Path, groups: Sequence[str] = ()
) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """The argv that runs ``inner`` with this view, and the descriptors it must inherit, good inside the context.

    ``directory`` is a private one of the controller's. ``groups``: control group entries. Blocks on files. Raises
    BackendUnavailableError.
    """
    try:
        table = stage(view.directories, who) if who.dropped else MountTable(staged={})
    except OSError as error:
        raise BackendUnavailableError(f"{error.filename} cannot be shown in a sandbox: {error.strerror}.") from error
    with handed_over(view, program.features, table.staged) as (args, fds):
        argv: Sequence[str] = (program.path, "--args", args, "--", *inner)
        if who.dropped:
            # bwrap must hold no right of root: whatever uid it maps inside, the host would still see root. Only to map
            # uid 0 itself the kernel asks for CAP_SETFCAP outside (user_namespaces(7)); bwrap drops that, too.
            keep = "setfcap" if who.uid == 0 else ""
            argv = dropping(argv, who, groups=groups, table=write_table(table, directory), keep=keep)
        yield tuple(argv), fds
