"""Ending processes of a sandbox whose runner did not live to do it, found by the marker in their environment."""

from __future__ import annotations

import asyncio
import os
import signal

from sandbox_backends.runner.processes import carries, end_tree, process_table, send_signal


async def end_marked(ident: str) -> None:
    """Kill every process that a command of sandbox ``ident`` started and that still carries its marker.

    Best effort, for places without a pid namespace: a process that cleared its environment is not found.
    """
    await asyncio.to_thread(end_marked_now, ident)


def end_marked_now(ident: str) -> int:
    """As :func:`end_marked`; how many processes were found."""
    mine = os.getpid()
    found = [pid for pid in process_table() if pid != mine and carries(pid, ident + ".")]
    for pid in found:
        end_tree(pid, None, {1, mine, os.getppid()})
        send_signal(pid, signal.SIGKILL)
    return len(found)
