"""What ``/metrics`` says, in the text format of Prometheus."""

from __future__ import annotations

import pytest

from bubbles.gateway.metrics import COUNTERS, Metrics
from bubbles.gateway.process import KNOWN, ProcessFacts

pytestmark = pytest.mark.req("OPS-02")


def samples(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_what_was_counted_is_told_by_label() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.count("bubbles_job_runs_total", trigger="user", outcome="done")
    metrics.count("bubbles_job_runs_total", outcome="failed", trigger="cron")
    assert samples(metrics.render()) == {
        'bubbles_job_runs_total{outcome="done",trigger="user"}': "3",
        'bubbles_job_runs_total{outcome="failed",trigger="cron"}': "1",
    }


def test_every_name_is_explained_once_before_its_values() -> None:
    metrics = Metrics()
    metrics.count("bubbles_sent_total", channel="telegram")
    metrics.watch("bubbles_new", "Two\nlines \\ and more.", lambda: [({}, 1)])
    lines = metrics.render().splitlines()
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == [*COUNTERS, "bubbles_new"]
    assert r"# HELP bubbles_new Two\nlines \\ and more." in lines
    place = lines.index("# TYPE bubbles_sent_total counter")
    assert lines[place - 1] == f"# HELP bubbles_sent_total {COUNTERS['bubbles_sent_total']}"
    assert lines[place + 1] == 'bubbles_sent_total{channel="telegram"} 1'


def test_a_name_that_nobody_explained_is_not_counted() -> None:
    with pytest.raises(KeyError):
        Metrics().count("bubbles_mystery_total")


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (2.5, "2.5"), (123_456_789_012, "123456789012")])
def test_no_digit_of_a_value_is_lost(value: float, text: str) -> None:
    metrics = Metrics()
    metrics.watch("bubbles_new", "New.", lambda: [({}, value)])
    assert samples(metrics.render()) == {"bubbles_new": text}


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    metrics = Metrics()
    metrics.watch("bubbles_new", "New.", lambda: [({"channel": 'a"} 1\nx{y="\\'}, 1)])
    assert metrics.render().splitlines()[-1] == r'bubbles_new{channel="a\"} 1\nx{y=\"\\"} 1'


async def test_the_process_is_measured() -> None:
    metrics, facts = Metrics(), ProcessFacts()
    facts.watched(metrics)
    assert samples(metrics.render()) == {}
    await facts.learn()
    found = samples(metrics.render())
    assert found.keys() == KNOWN.keys()
    assert 10**6 < int(found["process_resident_memory_bytes"]) < 10**10
    assert int(found["process_open_fds"]) >= 3
