"""Ending processes of a sandbox whose runner did not live to do it, found by the marker in their environment."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from sandbox_backends.runner.processes import carries, end_tree, process_table, send_signal

END_S = 2.0
"""How long killed processes may take to be gone."""


async def end_marked(ident: str) -> None:
    """Kill every process that a command of sandbox ``ident`` started and that still carries its marker.

    Best effort, for places without a pid namespace: a process that cleared its environment is not found.
    """
    await asyncio.to_thread(end_marked_now, ident)


def end_marked_now(ident: str) -> int:
    """As :func:`end_marked`; how many processes were found. Blocks until none is found any more, for some seconds."""
    found: set[int] = set()
    deadline = time.monotonic() + END_S
    # More than once: one that was just being forked or executed shows no environment yet.
    while (left := _marked(ident)) and time.monotonic() < deadline:
        for pid in left - found:
            end_tree(pid, None, {1, os.getpid(), os.getppid()})
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        found |= left
        time.sleep(0.005)  # the kernel takes that long to end one, and tells only its parent
    return len(found)


def _marked(ident: str) -> set[int]:
    return {pid for pid in process_table() if pid != os.getpid() and carries(pid, ident + ".")}
