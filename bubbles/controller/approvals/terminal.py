"""Asking at the terminal that the program was started from."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from bubbles.bus import Origin
from bubbles.controller.approvals.answers import understood
from bubbles.controller.approvals.broker import decided, nobody
from bubbles.controller.approvals.card import render
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome

BY = "terminal"
MAX_TRIES = 5
MAX_LINE_BYTES = 4096
PROMPT = "Run it? [y/n] "
CLOSED = {
    Outcome.TIMED_OUT: "nobody answered in time, so it is declined",
    Outcome.CANCELLED: "the turn was ended, so it is not run",
}


class TerminalApprover:
    """Shows one card at a time on standard error and reads ``y`` or ``n`` from standard input.

    Both must be the terminal, and this process in front of it: ``agent -m`` in a pipe has nobody to ask (APPR-02).
    Ctrl-C and Ctrl-D mean no. What was typed before the card was there is thrown away: it answers something else.

    While a card is open, Ctrl-C belongs to it. A handler that was set by ``signal.signal`` is put back afterwards; one
    that was set on the event loop cannot be, and must be set again by its owner.
    """

    def __init__(self, source: int = 0, stream: TextIO | None = None) -> None:
        """``source`` is a descriptor; without a ``stream`` it is standard error as it is when a card is shown."""
        self._source = source
        self._stream = stream
        self._turn = asyncio.Lock()

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:  # noqa: ARG002 - the one person there is
        async with self._turn:
            if why := self._absent():
                return nobody(why)
            approved = await self._conversation(card)
            return decided(approved=approved, by=BY)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        if why := CLOSED.get(answer.outcome):
            await asyncio.to_thread(self._say, f"[{card.id}] {why}.\n")

    def _absent(self) -> str | None:
        """Why there is no terminal to ask in."""
        stream = self._stream or sys.stderr
        if not os.isatty(self._source):
            return "standard input is not a terminal"
        if stream is None or not stream.isatty():
            return "standard error is not a terminal"
        try:
            in_front = os.tcgetpgrp(self._source) == os.getpgrp()
        except OSError:
            return None  # not the terminal that controls this process: no job control, it can simply be read
        return None if in_front else "the program runs in the background of its terminal"

    async def _conversation(self, card: ApprovalCard) -> bool:
        """The answer. Reading waits in a thread, which ends when the pipe is closed: by Ctrl-C, or by cancelling."""
        reader, writer = os.pipe()
        ends = [writer]

        def stop() -> None:
            while ends:
                os.close(ends.pop())

        try:
            with _interruption(stop):
                reading = asyncio.ensure_future(asyncio.to_thread(self._converse, card, reader))
                try:
                    return await asyncio.shield(reading)
                finally:
                    stop()
                    await asyncio.wait({reading})
        finally:
            os.close(reader)

    def _converse(self, card: ApprovalCard, ended: int) -> bool:
        self._say(f"{render(card)}\n")
        termios.tcflush(self._source, termios.TCIFLUSH)
        for _ in range(MAX_TRIES):
            self._say(PROMPT)
            ready, _, _ = select.select([self._source, ended], [], [])
            if ended in ready:
                break
            line = os.read(self._source, MAX_LINE_BYTES)
            word = understood(line.decode("utf-8", "replace"))
            if word is not None and word.card in (None, "", card.id):
                return word.approves
            if not line:
                break
        self._say("\n")
        return False

    def _say(self, text: str) -> None:
        stream = self._stream or sys.stderr
        if stream is not None:
            stream.write(text)
            stream.flush()


@contextmanager
def _interruption(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGINT call ``stop`` and nothing else, unless it is ignored or does not arrive in this thread."""
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()
    try:
        if before in (signal.SIG_IGN, None):
            raise RuntimeError("ignored")
        loop.add_signal_handler(signal.SIGINT, stop)
    except (RuntimeError, ValueError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
