"""What this process takes of the machine, for ``/metrics``. Names are those of Prometheus' own client libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bubbles.gateway.metrics import Metrics

KNOWN = {
    "process_resident_memory_bytes": "Memory of this process.",
    "process_open_fds": "Open files of this process.",
    "process_threads": "Threads of this process.",
    "process_start_time_seconds": "When this process was started, in seconds since 1970.",
}


class ProcessFacts:
    """They are read from the system, which may block: ``learn`` first, then let the metrics be rendered."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    async def learn(self) -> None:
        self._known = await asyncio.to_thread(_found)

    def watched(self, metrics: Metrics) -> None:
        for name, what in KNOWN.items():
            metrics.watch(name, what, self._gauge(name))

    def _gauge(self, name: str) -> Callable[[], list[tuple[dict[str, str], float]]]:
        return lambda: [({}, self._known[name])] if name in self._known else []


def _found() -> dict[str, float]:
    """What the system does not tell is left out."""
    import psutil

    process = psutil.Process()
    asked: dict[str, Callable[[], float]] = {
        "process_resident_memory_bytes": lambda: process.memory_info().rss,
        "process_open_fds": process.num_fds,
        "process_threads": process.num_threads,
        "process_start_time_seconds": process.create_time,
    }
    found: dict[str, float] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except (psutil.Error, OSError):
            continue
    return found
