"""Counts for ``/metrics``, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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
    "bubbles_job_runs_total": "Runs of jobs, by outcome.",
    "bubbles_channel_restarts_total": "Times that a channel was started anew, by channel.",
}


class Metrics:
    """All calls belong to one event loop. Labels are words of the program, never of a person or a platform: each
    combination is kept for as long as the program runs.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, int]] = {name: {} for name in COUNTERS}
        self._gauges: dict[str, tuple[str, Gauge]] = {}

    def count(self, name: str, **labels: str) -> None:
        """One more. KeyError for a name that is not in ``COUNTERS``."""
        key = tuple(sorted(labels.items()))
        counts = self._counts[name]
        counts[key] = counts.get(key, 0) + 1

    def watch(self, name: str, what: str, gauge: Gauge) -> None:
        """Show what ``gauge`` says, whenever somebody asks; ``what`` is a sentence."""
        self._gauges[name] = (what, gauge)

    def render(self) -> str:
        lines = []
        for name, counts in self._counts.items():
            lines += _about(name, COUNTERS[name], "counter")
            lines += [f"{name}{_labels(labels)} {value}" for labels, value in sorted(counts.items())]
        for name, (what, gauge) in self._gauges.items():
            lines += _about(name, what, "gauge")
            lines += [f"{name}{_labels(tuple(labels.items()))} {_number(value)}" for labels, value in gauge()]
        return "\n".join(lines) + "\n"


def _about(name: str, what: str, kind: str) -> list[str]:
    told = what.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    """Whole numbers whole: a number of bytes has more digits than ``%g`` keeps."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
