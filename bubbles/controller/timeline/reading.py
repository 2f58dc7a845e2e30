"""Reads the timeline: in order, across months, past damaged lines."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bubbles.controller.timeline.events import Fields
from bubbles.errors import BubblesError

MONTH = re.compile(r"\d{4}-\d{2}\.jsonl")
MAX_LINE_BYTES = 1 << 20
"""Ours are far shorter."""
FIRST_YEAR, LAST_YEAR = 1971, 9998
"""What every clock can be set to, in every time zone."""
LOOK_S = 0.25
"""How often a followed file is looked at. The standard library cannot wait for a file to grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    line: str
    """As stored, without its end."""
    fields: Fields
    at: datetime
    """Its ``time``, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which entries. What is None filters nothing."""

    session: str | None = None
    policy: str | None = None
    since: datetime | None = None

    def admits(self, entry: Entry) -> bool:
        return (
            (self.session is None or entry.fields.get("session") == self.session)
            and (self.policy is None or entry.fields.get("policy") == self.policy)
            and (self.since is None or entry.at >= self.since)
        )


EVERYTHING = Wanted()


class TimelineReader:
    """Reads ``directory``, or only its last ``months`` files. ``damaged`` counts the lines left out so far.

    With ``holding``, lines without these bytes are passed over unread.
    """

    def __init__(self, directory: Path, *, months: int | None = None, holding: bytes = b"") -> None:
        self._directory = directory
        self._holding = holding
        self._months = months
        self._tails: dict[Path, _Tail] = {}
        self.damaged = 0

    def files(self) -> list[Path]:
        """The months there are, oldest first. Raises BubblesError."""
        try:
            named = (path for path in self._directory.iterdir() if MONTH.fullmatch(path.name))
            found = sorted(path for path in named if path.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self._directory, error) from error
        return found[-self._months :] if self._months else found

    def entries(self, wanted: Wanted = EVERYTHING) -> Iterator[Entry]:
        """Those that are there now and were not given yet. Raises BubblesError for a file that cannot be read."""
        since = "" if wanted.since is None else _month(wanted.since)
        files = self.files()
        for path in files:
            if path.stem < since or (path in self._tails and path not in files[-2:]):
                continue  # nobody writes to a month that is over, but for the moment when it ends
            tail = self._tails.setdefault(path, _Tail(path))
            for line in tail.lines():
                if self._holding not in line:
                    continue
                entry = parsed(line)
                if entry is None:
                    self.damaged += 1
                elif wanted.admits(entry):
                    yield entry

    def follow(
        self, wanted: Wanted = EVERYTHING, *, wait: Callable[[], None] = lambda: time.sleep(LOOK_S)
    ) -> Iterator[Entry]:
        """``entries``, for ever; ``wait`` is called between two looks."""
        while True:
            yield from self.entries(wanted)
            wait()


def _month(moment: datetime) -> str:
    at = moment.astimezone(UTC)
    return f"{at.year:04}-{at.month:02}"


class _Tail:
    """Whole lines of a file, from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> Iterator[bytes]:
        """An unfinished last line stays for the next look. An oversized line is given as ``MAX_LINE_BYTES`` of it."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0  # somebody has cut it shorter
                file.seek(self._offset)
                while chunk := file.readline(MAX_LINE_BYTES):
                    if not chunk.endswith(b"\n") and len(chunk) < MAX_LINE_BYTES:
                        return
                    whole = chunk
                    while not chunk.endswith(b"\n"):
                        if not (chunk := file.readline(MAX_LINE_BYTES)):
                            return
                    self._offset = file.tell()
                    yield whole
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(self._path, error) from error


def parsed(line: bytes) -> Entry | None:
    """The entry that a line holds; None for a damaged one."""
    if not line.endswith(b"\n"):
        return None
    try:
        text = line[:-1].decode("utf-8")
        fields = json.loads(text)
        at = datetime.fromisoformat(fields["time"])
        named = isinstance(fields["event"], str)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    dated = at.tzinfo is not None and FIRST_YEAR <= at.year <= LAST_YEAR
    return Entry(line=text, fields=fields, at=at.astimezone(UTC)) if named and dated else None


def unreadable(path: Path, error: OSError) -> BubblesError:
    return BubblesError(f"{path} cannot be read ({error.strerror or error}): give its owner permission to.")
