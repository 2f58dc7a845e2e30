"""Asking at the terminal that the program was started from."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TextIO

from bubbles.bus import Origin
from bubbles.controller.approvals.answers import understood
from bubbles.controller.approvals.broker import decided, nobody
from bubbles.controller.approvals.card import MIN_WIDTH, WIDTH, render
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome

BY = "terminal"
MAX_TRIES = 5
MAX_LINE_BYTES = 4096
HEIGHT = 24
"""Rows of a terminal that does not tell its size."""
WRITE_AGAIN_S = 0.05
PROMPT = "Run it? [y/n] "
PROMPT_AGAIN = "y or n? "
CLOSED = {
    Outcome.TIMED_OUT: "nobody answered in time, so it is declined",
    Outcome.CANCELLED: "the turn was ended, so it is not run",
}


class TerminalApprover:
    """Shows one card at a time on standard error and reads ``y`` or ``n`` from standard input.

    Both must be the terminal, and this process in front of it: ``agent -m`` in a pipe has nobody to ask (APPR-02).
    Ctrl-C and Ctrl-D mean no. What was typed before the card was there is thrown away: it answers something else.

    While a card is open, Ctrl-C belongs to it; one that comes after the answer is delivered to the program as soon as
    its own handler is back. A handler that was set on the event loop, not by ``signal.signal``, is called as well.

    The terminal is opened anew, so that neither reading nor writing can block, whatever others do with it.
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
            attention = _Attention()
            try:
                with self._keys() as keys, self._screen() as screen, _interruption(attention):
                    return await _Conversation(keys=keys, screen=screen, attention=attention).about(card)
            except (OSError, termios.error) as error:
                return unshown(f"the terminal cannot be used ({error})")

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        if why := CLOSED.get(answer.outcome):
            with suppress(OSError), self._screen() as screen:
                await screen.say(f"\n[{card.id}] {why}.\n")

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

    @contextmanager
    def _keys(self) -> Iterator[int]:
        keys = _opened_anew(self._source, os.O_RDONLY)
        try:
            yield keys
        finally:
            os.close(keys)

    @contextmanager
    def _screen(self) -> Iterator[_Screen]:
        stream = self._stream or sys.stderr
        if stream is None:
            raise OSError("standard error is closed")
        descriptor = _opened_anew(stream.fileno(), os.O_WRONLY)
        try:
            yield _Screen(descriptor=descriptor, encoding=stream.encoding or "utf-8")
        finally:
            os.close(descriptor)


@dataclass(slots=True, kw_only=True)
class _Screen:
    descriptor: int
    encoding: str

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        size = os.get_terminal_size(self.descriptor)
        return size.columns or WIDTH, size.lines or HEIGHT

    async def say(self, text: str, given_up: Callable[[], bool] = lambda: False) -> None:
        """Returns when the terminal has taken all of it: Ctrl-S stops that for as long as a person likes."""
        left = text.encode(self.encoding, "backslashreplace")
        while left and not given_up():
            try:
                left = left[os.write(self.descriptor, left) :]
            except BlockingIOError:
                await asyncio.sleep(WRITE_AGAIN_S)


@dataclass(slots=True)
class _Attention:
    """Which came first, the answer or Ctrl-C. The fields are set by single steps, which a signal cannot divide."""

    answered: bool = False
    interrupted: bool = False
    """Before there was an answer: it is the answer."""
    interrupted_late: bool = False
    """After there was one: meant for the program."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def interrupt(self) -> None:
        if self.answered:
            self.interrupted_late = True
        else:
            self.interrupted = True

    def settles(self) -> bool:
        """Whether the answer that was just read is the first word."""
        self.answered = True
        return not self.interrupted


@dataclass(slots=True, kw_only=True)
class _Conversation:
    keys: int
    screen: _Screen
    attention: _Attention

    async def about(self, card: ApprovalCard) -> Answer:
        columns, rows = self.screen.size()
        if columns < MIN_WIDTH:
            return unshown(f"the terminal has {columns} columns and a question needs {MIN_WIDTH}")
        await self._say(f"{render(card, columns, height=rows, encoding=self.screen.encoding)}\n{how(card)}\n")
        termios.tcflush(self.keys, termios.TCIFLUSH)
        for number in range(MAX_TRIES):
            await self._say(PROMPT_AGAIN if number else PROMPT)
            line = await self._line()
            if not line:
                break
            word = understood(line.decode("utf-8", "replace"))
            if word is not None and word.card in (None, "", card.id):
                return decided(approved=self.attention.settles() and word.approves, by=BY)
        else:
            self.attention.settles()
            return unclear()
        self.attention.settles()
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_AGAIN_S):  # no answer waits for a terminal that Ctrl-S has stopped
                await self.screen.say("\n")
        return decided(approved=False, by=BY)

    async def _say(self, text: str) -> None:
        await self.screen.say(text, lambda: self.attention.interrupted)

    async def _line(self) -> bytes:
        """What was typed; empty after Ctrl-D or Ctrl-C."""
        woken = self.attention.woken
        loop = asyncio.get_running_loop()
        loop.add_reader(self.keys, woken.set)
        try:
            while not self.attention.interrupted:
                with suppress(BlockingIOError):  # another reader, or Ctrl-C, took what was there
                    return os.read(self.keys, MAX_LINE_BYTES)
                woken.clear()
                if not self.attention.interrupted:
                    await woken.wait()
            return b""
        finally:
            loop.remove_reader(self.keys)


def how(card: ApprovalCard) -> str:
    """The line below a card at a terminal."""
    within = "" if card.timeout_s is None else f", within {card.timeout_s:g} s"
    return f"Answer y or n{within}; OK, 同意, no and 拒绝 work too."


def unclear() -> Answer:
    """Several lines were typed, and none of them was an answer."""
    told = f"It was declined: none of {MAX_TRIES} lines that were typed was a clear answer, y or n."
    return Answer(outcome=Outcome.UNCLEAR, by=BY, told=told)


def unshown(why: str) -> Answer:
    """The card was not put before anybody."""
    return Answer(outcome=Outcome.NOT_SHOWN, told=f"It was declined unseen: {why}.")


def _opened_anew(descriptor: int, access: int) -> int:
    """The same terminal with a state of its own: not to block is then no matter of those who share ``descriptor``."""
    flags = access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(os.ttyname(descriptor), flags)
    except OSError:
        os.tcgetpgrp(
            descriptor
        )  # after su it belongs to somebody else; the one that controls us is open to us all the same
        return os.open("/dev/tty", flags)


@contextmanager
def _interruption(attention: _Attention) -> Iterator[None]:
    """Give SIGINT to ``attention``, unless it is ignored or does not arrive in this thread."""
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        attention.interrupt()
        loop.call_soon_threadsafe(attention.woken.set)

    try:
        if before in (signal.SIG_IGN, None):
            raise ValueError("ignored")
        signal.signal(signal.SIGINT, interrupted)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if attention.interrupted_late:
            signal.raise_signal(signal.SIGINT)
