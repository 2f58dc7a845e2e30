"""Questions to the person at the terminal. Enter takes what stands in brackets."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from bubbles.cli.report import ended_like_by_ctrl_c, spinner, styled, visible
from bubbles.config.keys import is_key


def heading(text: str) -> None:
    print(f"\n{styled(text, 'bold')}")


def ask(question: str, default: str = "") -> str:
    """One line, or ``default`` for an empty one. Raises EOFError, KeyboardInterrupt."""
    shown = f" [{visible(default)}]" if default else ""
    print(f"{question}{shown} ", end="", flush=True)  # input() itself writes to stderr
    return _line().strip() or default


def choose(question: str, among: Sequence[str], default: str) -> str:
    """One of ``among``, by its first letter or whole."""
    while True:
        answer = ask(question, default).lower()
        found = next((word for word in among if answer in (word, word[0])), None)
        if found is not None:
            return found
        print(f"Please answer {', '.join(word[0] for word in among)}.")


def agrees(question: str) -> bool:
    """Yes, unless it is a no."""
    while True:
        answer = ask(f"{question} [Y/n]").lower()
        if answer in ("", "y", "yes", "n", "no"):
            return answer in ("", "y", "yes")
        print("Please answer y or n.")


def hidden(question: str) -> str:
    """One line that is not shown while it is typed; empty for what can be no key. Raises as ``ask`` does."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    with ended_like_by_ctrl_c():
        try:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent)
            print(f"{question} ", end="", flush=True)
            text = _line().strip()
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
            print()
    if text and not is_key(text):
        print("That is no key: it must be one line of ASCII characters, as the provider gave it.")
        return ""
    return text


def _line() -> str:
    """One line of the terminal. Raises EOFError, KeyboardInterrupt.

    ``input()`` alone would miss a Ctrl-C that comes just before it begins to read, which another thread that imports
    makes likely: the signal is noticed only when the reading ends. So the waiting is done where a signal shows too.
    """
    descriptor = sys.stdin.fileno()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        while descriptor not in select.select([descriptor, woken], [], [])[0]:
            os.read(woken, 64)
        return input()  # the terminal has a whole line
    except UnicodeDecodeError:
        return "\N{REPLACEMENT CHARACTER}"
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Something that moves while the person waits. What is typed meanwhile answers nothing that comes after.

    The name of a model may have brackets in it, which the library would take for marks.
    """
    try:
        with spinner(visible(text).replace("[", "\\[")):
            yield
    finally:
        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
