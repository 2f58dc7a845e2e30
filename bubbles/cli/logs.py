"""The log of a command that talks to a model: a small file always, standard error if it is asked for (CORE-08, ERR-01).
The gateway's is a file of its own and standard error, from what it does on (OPS-02).

Secrets are taken out of every line, and control characters are made visible.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.cli.chat.text import shown

if TYPE_CHECKING:
    from bubbles.config.schema import Settings
    from bubbles.controller.redaction import Redactor

MAX_BYTES = 1_000_000
FILES = 3
"""How many of that size are kept, the one that is written included."""
IN_FILE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
ON_SCREEN = "%(asctime)s %(levelname).1s %(message)s"

TELLTALE = ("httpx", "httpcore", "telegram")
"""Libraries that log each address they ask, and the token is in it."""

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is kept, and how it is shown."""

    file: Path
    kept: int = logging.WARNING
    """The level from which on the file has what Bubbles says; of libraries it has warnings."""
    service: bool = False
    """Nobody sits before it: warnings of libraries are shown too, and what is shown is one line each."""


RECORDS = "bubbles.controller.timeline"
COMMAND = Kind(file=Path("logs", "bubbles.log"))
GATEWAY = Kind(file=Path("logs", "gateway.log"), kept=logging.INFO, service=True)


def level_of(*, logs: bool, debug: bool) -> int | None:
    """What ``--logs`` and ``--debug`` show; None for nothing."""
    if debug:
        return logging.DEBUG
    return logging.INFO if logs else None


@dataclass(slots=True)
class Log:
    path: Path
    """Of the file. It is made when there is something to log."""
    write: Callable[[str], None]
    """Takes lines for the person, from any thread."""
    learn: Callable[[str], None] = lambda _: None
    """Told of a secret that came up meanwhile, such as a renewed token: no later line has it."""


def to_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def logging_for(settings: Settings, level: int | None, kind: Kind = COMMAND) -> Iterator[Log]:
    """Log while the context lasts: warnings and what broke to the file, from ``level`` on to the person."""

    @functools.cache
    def redactor() -> Redactor:
        from bubbles.app.gate import owners_redactor

        return owners_redactor(settings)

    def redact() -> Redact:
        return redactor().redact

    log = Log(settings.data_dir / kind.file, to_stderr, lambda secret: redactor().learn(secret))
    ours, everything = logging.getLogger("bubbles"), logging.getLogger()
    telltale = [logging.getLogger(name) for name in TELLTALE]
    before = {each: each.level for each in (ours, *telltale)}
    kept = _LogFile(log.path, redact, kind.kept)
    screen = _Lines(log, redact, level or logging.CRITICAL, single=kind.service and level != logging.DEBUG)
    shown_of = everything if kind.service else ours
    everything.addHandler(kept)
    for each in telltale:
        each.setLevel(logging.WARNING)
    if kind.service and level != logging.DEBUG:
        screen.addFilter(lambda record: not record.name.startswith(RECORDS))  # they are in the timeline's own file
    if level is not None:
        ours.setLevel(min(level, kind.kept))
        shown_of.addHandler(screen)
    try:
        yield log
    finally:
        for each, its in before.items():
            each.setLevel(its)
        shown_of.removeHandler(screen)
        everything.removeHandler(kept)


def _formatted(handler: logging.Handler, record: logging.LogRecord) -> str:
    """A library's message whose arguments do not fit it must not end what it tells of."""
    try:
        return handler.format(record)
    except (TypeError, ValueError, LookupError):
        return f"{record.levelname} {record.name}: {record.msg} (its arguments do not fit it)"


class _Lines(logging.Handler):
    """For the person who asked to see it. ``single``: of several lines the first and the last."""

    def __init__(self, log: Log, redact: Callable[[], Redact], level: int, *, single: bool) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter(ON_SCREEN, "%H:%M:%S"))
        self._log = log
        self._redact = redact
        self._single = single

    def emit(self, record: logging.LogRecord) -> None:
        text = shown(self._redact()(_formatted(self, record)))
        if self._single and "\n" in text:
            first, *_, last = text.strip().split("\n")
            text = f"{first} … {last.strip()}"
        if self._single:
            text = text.replace("\t", " ")
        with suppress(RuntimeError):  # the event loop is closed
            self._log.write(text + "\n")


class _LogFile(logging.Handler):
    """Opened for each line: there are few, and another program may write to it, or have renamed it, meanwhile."""

    def __init__(self, path: Path, redact: Callable[[], Redact], level: int) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter(IN_FILE))
        self._path = path
        self._redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a log that cannot be written must not end what it tells of
            data = shown(self._redact()(_formatted(self, record))).encode("utf-8", "replace") + b"\n"
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._size() + len(data) > MAX_BYTES:
                self._turn_over()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self._path, flags, 0o600), "wb") as target:
                target.write(data)

    def _size(self) -> int:
        try:
            return os.lstat(self._path).st_size
        except FileNotFoundError:
            return 0

    def _turn_over(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, FILES))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                os.replace(newer, older)
