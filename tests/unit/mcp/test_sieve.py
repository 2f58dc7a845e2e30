"""What a server may say, and how much of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from bubbles.mcp.client.filter import BURST, LIST_CHANGED, MAX_QUESTIONS, PER_S, MessageFilter, TooMuchError
from bubbles.mcp.client.lines import Lines, TooLongError
from bubbles.mcp.client.stderr import MAX_LINE, PER_MINUTE, StderrLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(number: int | str, method: str = "ping") -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=number, method=method)


def response(number: int | str) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=number, result={})


def notice(method: str = "notifications/message") -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=method)


def admit_all(sieve: MessageFilter, messages: Sequence[JSONRPCMessage], size: int = 10) -> None:
    for message in messages:
        sieve.admits(message, size)


def test_answers_are_heard_once_and_only_if_they_were_asked_for() -> None:
    sieve = MessageFilter(lambda: None)
    sieve.sends(request(7))
    assert [sieve.admits(response(number), 10) for number in (8, "7", 7)] == [False, True, False]
    sieve.sends(request(8))
    sieve.sends(JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 8}))
    assert not sieve.admits(response(8), 10)


def test_notices_are_let_go_but_for_a_change_of_tools() -> None:
    changes: list[int] = []
    sieve = MessageFilter(lambda: changes.append(1))
    assert not sieve.admits(notice(), 10)
    assert not changes
    assert not sieve.admits(notice(LIST_CHANGED), 10)
    assert changes


def test_a_server_that_does_not_stop_is_cut_off_and_one_that_takes_its_time_is_not() -> None:
    clock = Clock()
    patient = MessageFilter(lambda: None, clock)
    for _ in range(int(3 * BURST)):
        clock.now += 1.1 / PER_S
        patient.admits(notice(), 10)
    hasty = MessageFilter(lambda: None, clock)
    with pytest.raises(TooMuchError, match="too much unasked"):
        admit_all(hasty, [notice()] * (int(BURST) + 1))
    large = MessageFilter(lambda: None, clock)
    with pytest.raises(TooMuchError, match="too much unasked"):
        admit_all(large, [notice()] * 3, 16 << 20)


def test_a_server_that_asks_without_reading_the_answers_is_cut_off() -> None:
    sieve = MessageFilter(lambda: None)
    for number in range(1_000):
        assert sieve.admits(request(number), 10)
        sieve.sends(response(number))
    with pytest.raises(TooMuchError, match="asks more"):
        admit_all(sieve, [request(number) for number in range(MAX_QUESTIONS + 1)])


@given(some.lists(some.binary(max_size=20)))
def test_lines_come_whole_however_they_are_cut(pieces: list[bytes]) -> None:
    lines = Lines(1_000)
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert found == b"".join(pieces).split(b"\n")[:-1]


def test_a_line_without_an_end_is_refused() -> None:
    lines = Lines(100)
    assert lines.feed(b"x" * 100 + b"\n") == [b"x" * 100]
    with pytest.raises(TooLongError):
        lines.feed(b"x" * 101)


def test_what_it_complains_of_is_logged_in_lines_of_a_bounded_length_and_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    stderr = StderrLog("one", lambda text: text.replace("secret", "[redacted]"), clock)
    assert stderr.feed(b"a secret\x1b[1m and " + b"x" * 10_000 + b"\n")
    assert "secret" not in caplog.text
    assert "\x1b" not in caplog.text
    assert max(map(len, caplog.text.splitlines())) < MAX_LINE + 200
    for _ in range(3 * PER_MINUTE):
        stderr.feed(b"again\n\n")
    assert len(caplog.records) == PER_MINUTE + 1
    clock.now += 61
    stderr.feed(b"the last one\nnot whole")
    assert len(caplog.records) == PER_MINUTE + 2
    assert stderr.last == "the last one"
    assert not stderr.feed(b"y" * (80 << 20))
