"""Which tests may run beside which, when several processes share one run (``make test``, pytest-xdist).

Tests run beside each other unless they say otherwise: ``@pytest.mark.alone`` beside none, ``@pytest.mark.turns("x")``
beside none of the same name. In a run of one process, where nothing is beside anything, the marks do nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def turn(directory: Path, names: Sequence[str] = (), *, alone: bool = False) -> Iterator[None]:
    """Held while a test runs; waits until it may. ``directory`` is that of the whole run. Locks end with their process.

    Who waits to be alone stands in the door, so that it is not passed over by those who need not be.
    """
    with ExitStack() as held:
        for name in sorted(names):
            held.enter_context(_locked(directory / f"turns-{name}", fcntl.LOCK_EX))
        with _locked(directory / "door", fcntl.LOCK_EX):
            held.enter_context(_locked(directory / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        # Not by closing alone: a process that was forked meanwhile has the descriptor, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
