"""What every command does alike: complaints on stderr, colours only on a terminal, async work that Ctrl-C ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every group of commands."""
STYLES = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}


def complain(sentence: str) -> None:
    """One line on stderr, control characters made visible: a name from inside a sandbox may hold any."""
    print(f"bubbles: {visible(sentence)}", file=sys.stderr)


def visible(text: str) -> str:
    """``text`` with control and direction-changing characters and undecodable bytes written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def styled(text: str, style: str, stream: Any = None) -> str:
    """``text`` in a colour if the stream (stdout by default) is a terminal."""
    stream = sys.stdout if stream is None else stream
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if stream.isatty() else text


def session_key(text: str) -> str:
    """The key of the session that ``--session TEXT`` names; for options of typer. Raises typer.BadParameter."""
    import typer

    from bubbles.sessions.contract import SessionError
    from bubbles.sessions.key import named

    try:
        return named(text)
    except SessionError as error:
        raise typer.BadParameter(str(error)) from error


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=True, sort_keys=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be, two spaces apart."""
    lines = [tuple(header), *(tuple(visible(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(styled(text, "bold") if number == 0 else text)


def size(count: float) -> str:
    """Bytes for people: ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, with SIGTERM and SIGHUP ending the work as Ctrl-C does: contexts are left, nothing stays behind."""
    import asyncio  # with signal a third of what ``bubbles --help`` would take
    import signal

    from bubbles.cli.loop import Loop

    async def watched() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            return runner.run(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def ended_like_by_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt inside: a terminal that was made silent is given back."""
    import signal

    def end(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, meant in before.items():
            signal.signal(number, meant)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Something that moves while a person waits; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
