"""Counts for ``/metrics``, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Labels = tuple[tuple[str, str], ...]
Gauge = Callable[[], Iterable[tuple[Mapping[str, str], float]]]
"""Looks when it is asked: labels, and the value."""

COUNTERS = {
    "bubbles_messages_total": "Messages of people that were taken, by channel.",
    "bubbles_turned_away_total": "Messages of people who are not let in, or that nobody was to answer, by channel.",
    "bubbles_duplicates_total": "Messages that came again and were dropped, by channel.",
    "bubbles_sent_total": "Messages that a platform has taken, by channel.",
    "bubbles_send_failures_total": "Tries to send that failed, by channel.",
    "bubbles_dropped_total": "Messages that could not be sent and were given up, by channel.",
    "bubbles_turns_total": "Turns that ended, by what began them and how they ended.",
    "bubbles_job_runs_total": "Runs of jobs, by outcome.",
    "bubbles_channel_restarts_total": "Times that a channel was started anew, by channel.",
}


class Metrics:
    """All calls belong to one event loop."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, int]] = {name: {} for name in COUNTERS}
        self._gauges: dict[str, tuple[str, Gauge]] = {}

    def count(self, name: str, **labels: str) -> None:
        """One more. KeyError for a name that is not in ``COUNTERS``."""
        key = tuple(sorted(labels.items()))
        counts = self._counts[name]
        counts[key] = counts.get(key, 0) + 1

    def watch(self, name: str, what: str, gauge: Gauge) -> None:
        self._gauges[name] = (what, gauge)

    def render(self) -> str:
        lines = []
        for name, counts in self._counts.items():
            lines += [f"# HELP {name} {COUNTERS[name]}", f"# TYPE {name} counter"]
            lines += [f"{name}{_labels(dict(labels))} {value}" for labels, value in sorted(counts.items())]
        for name, (what, gauge) in self._gauges.items():
            lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in gauge()]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
