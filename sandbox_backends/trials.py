"""Trying something out on the host before a person relies on it: a short command, a directory for it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox_backends.errors import BackendUnavailableError

SHORT_S = 10.0


async def run_short(argv: Sequence[str], fds: Sequence[int] = ()) -> tuple[int, str]:
    """Exit status and output (both streams) of a short command with an empty environment.

    Raises BackendUnavailableError when it cannot be run or takes longer than 10 s.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env={},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=fds,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise BackendUnavailableError(f"{argv[0]} cannot be run: {error.strerror}.") from error
    try:
        async with asyncio.timeout(SHORT_S):
            said, _ = await process.communicate()
    except TimeoutError:
        raise BackendUnavailableError(f"{argv[0]} did not end within {SHORT_S:.0f} s.") from None
    finally:
        if process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it ended meanwhile, and that has not been told yet
                pass
            await process.wait()
    return process.returncode or 0, said.decode("utf-8", "replace")


@contextmanager
def trial_directory() -> Iterator[Path]:
    """A private directory (0700) for as long as the context. Blocks."""
    with tempfile.TemporaryDirectory(prefix="bubbles-") as directory:
        yield Path(os.path.realpath(directory))
