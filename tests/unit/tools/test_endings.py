"""How commands end, in words."""

from __future__ import annotations

from typing import Any

import pytest

from bubbles.controller.places import ExecResult, Outcome
from bubbles.tools.endings import ending, output

pytestmark = pytest.mark.req("TOOL-02")


def result(outcome: Outcome = Outcome.EXITED, exit_code: int | None = 0, **more: Any) -> ExecResult:
    return ExecResult(outcome=outcome, exit_code=exit_code, **more)


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (result(), ""),
        (result(exit_code=3), "exit status 3"),
        (result(Outcome.SIGNALED, -9), "ended by signal 9"),
        (result(Outcome.TIMED_OUT, None), "over the time limit of 7 s: everything it started was ended"),
        (result(Outcome.TIMED_OUT, None, detached=True), "over the time limit of 7 s: everything it started was ended"),
        (result(Outcome.OOM, None), "killed: over the memory limit of the sandbox"),
        (result(detached=True), "a background process that it started is still running, and its output is lost"),
    ],
)
def test_an_end_is_told_in_a_line(done: ExecResult, said: str) -> None:
    assert ending(done, 7) == said


def test_an_end_that_is_not_known_is_told_as_that() -> None:
    assert "how it ended is not known" in ending(result(Outcome.LOST, None))


def test_output_that_was_not_kept_is_counted_where_it_is_missing() -> None:
    assert output(result(stdout=b"caf\xc3\xa9 \xff\n")) == "café \\xff\n"
    assert output(result(stdout=b"headtail", dropped_bytes=1234)) == (
        "head\n[… 1,234 bytes in between were not kept …]\ntail"
    )
