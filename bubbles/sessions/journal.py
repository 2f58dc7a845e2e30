"""``session.jsonl`` as a file: loaded from where it was last compacted, then only what is new, and appended to.

All of it blocks on the disk. One thread at a time, which holds the session's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from bubbles.sessions import codec, lines
from bubbles.sessions.blobs import Blobs
from bubbles.sessions.contract import Folders, SessionDamagedError
from bubbles.sessions.entries import VERSION, Compacted, Entry, Opened, Replied, Said, Skipped
from bubbles.sessions.transcript import Transcript

FILE = "session.jsonl"
_TAIL = 64
"""Bytes before the known end that must be as they were for what follows them to be all that is new."""


class Journal:
    """Keeps what it has read across ``open`` and ``close``."""

    def __init__(self, folders: Folders, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = folders.state / FILE
        self.transcript = Transcript()
        self.warnings: list[str] = []
        """Sentences for the person, each added once."""
        self._folders = folders
        self._blobs = Blobs(folders.state / "blobs")
        self._now = now
        self._fd = -1
        self._reset((0, 0))

    def _reset(self, identity: tuple[int, int]) -> None:
        self.transcript = Transcript()
        self._identity = identity
        self._size = 0
        self._tail = b""
        self._offsets: dict[int, int] = {}
        """Where the first line of each unit begins."""

    def open(self) -> None:
        """Read what is new, set a torn line aside; then it can be appended to.

        Raises SessionDamagedError; nothing was changed then.
        """
        try:
            self._fd = lines.open_file(self.path)
        except OSError as error:
            raise self._damaged("cannot be opened", error) from error
        try:
            self._refresh()
        except OSError as error:
            self._give_up()
            raise self._damaged("cannot be read", error) from error
        except BaseException:
            self._give_up()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _give_up(self) -> None:
        """What was taken in so far is forgotten: the next ``open`` would take it in a second time."""
        self.close()
        self._reset((0, 0))

    def append(self, entries: Sequence[Entry]) -> None:
        """On the disk when it returns. SessionDamagedError if that cannot be; the file is then as it was."""
        try:
            data, offsets = self._encoded(entries)
            found = self.path.lstat()
            if (found.st_dev, found.st_ino, found.st_size) != (*self._identity, self._size):
                raise OSError(0, "another program has changed it")
            lines.append(self._fd, data, self._size)
        except OSError as error:
            raise self._damaged("cannot be written", error) from error
        self._offsets |= offsets
        self._size += len(data)
        self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
        self._forget_offsets(entries)

    def _encoded(self, entries: Sequence[Entry]) -> tuple[bytes, dict[int, int]]:
        data = bytearray()
        offsets: dict[int, int] = {}
        time = self._now()
        for entry in entries:
            begins = self._size + len(data)
            if isinstance(entry.content, Said | Replied):
                offsets[entry.seq] = begins
            line = codec.encode(self._with_offset(entry, begins), time, self._blobs.put)
            if len(line) > lines.MAX_LINE:
                raise OSError(0, f"a line of {len(line)} bytes is too long, {lines.MAX_LINE} are the most")
            data += line
        return bytes(data), offsets

    def _with_offset(self, entry: Entry, begins: int) -> Entry:
        """A compaction says where the first line that it keeps begins; if it keeps none, where its own does."""
        if not isinstance(entry.content, Compacted):
            return entry
        kept = [offset for seq, offset in self._offsets.items() if seq >= entry.content.kept_from]
        return replace(entry, content=replace(entry.content, offset=min(kept, default=begins)))

    def _forget_offsets(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if isinstance(entry.content, Compacted):
                least = entry.content.kept_from
                self._offsets = {seq: offset for seq, offset in self._offsets.items() if seq >= least}

    def _refresh(self) -> None:
        found = os.fstat(self._fd)
        identity = (found.st_dev, found.st_ino)
        tail_at = self._size - len(self._tail)
        if (
            identity != self._identity
            or found.st_size < self._size
            or os.pread(self._fd, len(self._tail), tail_at) != self._tail
        ):
            self._reset(identity)
        if self._size == 0:
            self._check_first_line(found.st_size)
        end = self._mend_tail(found.st_size)
        if end > self._size:
            self._load(end)
        if end == 0:
            first = Entry(seq=0, turn="", content=Opened(key=self._folders.key))
            self.append([first])
            self.transcript.add(first)

    def _check_first_line(self, end: int) -> None:
        """That this is a history, and one that we understand."""
        damaged = False
        for _, line in lines.read_lines(self._fd, 0, end):
            entry = None if line is None else self._decoded(line)
            if entry is None:
                damaged = True
            elif isinstance(entry.content, Opened) and entry.content.version > VERSION:
                raise SessionDamagedError(
                    f"{self.path} was written by a newer Bubbles (format {entry.content.version}, this one knows "
                    f"{VERSION}): use that, or another session. Nothing was changed."
                )
            else:
                return
        if damaged:
            raise SessionDamagedError(
                f"{self.path} holds no line of a history: put the right file there, or move this one away to begin "
                "anew. Nothing was changed."
            )

    def _mend_tail(self, size: int) -> int:
        """Where the last whole line ends, after a last line that a crash cut off has been set aside."""
        if size == self._size or os.pread(self._fd, 1, size - 1) == b"\n":
            return size
        start = lines.last_newline(self._fd, size, self._size) + 1 or self._size
        rest = os.pread(self._fd, size - start, start) if size - start < lines.MAX_LINE else b""
        if codec.is_json(rest):
            lines.append(self._fd, b"\n", size)
            return size + 1
        aside = self.path.with_name(f"torn-{self._now().astimezone(UTC):%Y%m%dT%H%M%S.%f}Z.jsonl")
        lines.set_aside(self._fd, start, size, aside)
        self.warnings.append(
            f"The last line of the history of session {self._folders.key} was cut off by a crash; everything before it "
            f"is there, and what was left of it ({size - start} bytes) is in {aside}."
        )
        return start

    def _load(self, end: int) -> None:
        start, damaged = self._size, list[int]()
        told = 0
        if start == 0 and (compacted := self._last_compaction(end)) is not None:
            start = compacted
        for offset, line in lines.read_lines(self._fd, start, end):
            entry = None if line is None else self._decoded(line)
            if entry is None:
                damaged.append(offset)
                continue
            self.transcript.add(entry)
            if isinstance(entry.content, Said | Replied):
                self._offsets[self.transcript.next_seq - 1] = offset
            elif isinstance(entry.content, Skipped):
                told = max(told, entry.content.before)
            self._forget_offsets([entry])
        self._size = end
        self._tail = os.pread(self._fd, min(_TAIL, end), end - min(_TAIL, end))
        if new := [offset for offset in damaged if offset >= told]:
            self._tell_of_damage(new)

    def _tell_of_damage(self, offsets: list[int]) -> None:
        self.warnings.append(
            f"{len(offsets)} line{'s' if len(offsets) > 1 else ''} of {self.path} cannot be read, the first at byte "
            f"{offsets[0]}: the model does without; the file was left as it is."
        )
        told = Entry(seq=self.transcript.next_seq, turn="", content=Skipped(before=self._size))
        self.append([told])
        self.transcript.add(told)

    def _last_compaction(self, end: int) -> int | None:
        """Where reading can begin, by the last compaction, if what that says is plausible."""
        for _, line in lines.marked_lines(self._fd, end, codec.COMPACTION_MARK):
            entry = self._decoded(line)
            if entry is None or not isinstance(entry.content, Compacted):
                continue
            offset = entry.content.offset
            if offset is None or not 0 < offset < end or os.pread(self._fd, 1, offset - 1) != b"\n":
                return None
            first = next(lines.read_lines(self._fd, offset, end), (0, None))[1]
            begins = None if first is None else self._decoded(first)
            return offset if begins is not None and entry.content.kept_from <= begins.seq <= entry.seq else None
        return None

    def _decoded(self, line: bytes) -> Entry | None:
        try:
            return codec.decode(line, self._blobs.get)
        except ValueError:
            return None

    def _damaged(self, what: str, error: OSError) -> SessionDamagedError:
        return SessionDamagedError(
            f"The history {self.path} {what} ({error.strerror or error}): mend that; nothing of it is lost."
        )
