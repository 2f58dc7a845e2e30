"""A file of lines: read in pieces, searched from its end, appended to whole or not at all. All of it blocks."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_LINE = 32 << 20
"""Bytes. A longer line is taken for damage, and none is written."""
CHUNK = 1 << 20
NEAR = 64 << 10
"""Bytes from the beginning of a line within which a mark is looked for."""

FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS fsync leaves it to the drive when the data is really kept. Source: fsync(2) there."""


def read_lines(fd: int, start: int, end: int) -> Iterator[tuple[int, bytes | None]]:
    """Where each line begins, and the line without its newline; None for one that is too long. Bytes past the last
    newline before ``end`` are left out.
    """
    offset, position, size = start, start, 0
    pieces: list[bytes] = []
    while position < end and (chunk := os.pread(fd, min(CHUNK, end - position), position)):
        position += len(chunk)
        begin = 0
        while (stop := chunk.find(b"\n", begin)) >= 0:
            size += stop - begin
            if size <= MAX_LINE:
                pieces.append(chunk[begin:stop])
            yield offset, b"".join(pieces) if size <= MAX_LINE else None
            offset += size + 1
            pieces, size, begin = [], 0, stop + 1
        size += len(chunk) - begin
        if size <= MAX_LINE:
            pieces.append(chunk[begin:])
        else:
            pieces = []


def last_newline(fd: int, end: int, least: int = 0) -> int:
    """Where the last newline in ``least`` to ``end`` is; -1 if there is none."""
    return _last(fd, b"\n", end, least)


def marked_lines(fd: int, end: int, mark: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines that hold ``mark`` near their beginning, from the last one to the first, with where they begin."""
    while (found := _last(fd, mark, end)) >= 0:
        before = last_newline(fd, found, max(0, found - NEAR))
        if before < 0 and found > NEAR:
            end = found - NEAR  # all between is the same line, so that no line is looked at more often than its size
            continue
        start = before + 1
        line = next(read_lines(fd, start, end if end - start <= MAX_LINE else start + MAX_LINE), None)
        if line is not None and line[1] is not None:
            yield start, line[1]
        end = start


def open_file(path: Path) -> int:
    """A regular file that its owner alone can read, for reading and appending; made if it is not there."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, 0o600)
        sync_directory(path.parent)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is not a regular file")
        if found.st_mode & 0o077:
            os.fchmod(fd, 0o600)
    except OSError:
        os.close(fd)
        raise
    return fd


def append(fd: int, data: bytes, size: int) -> None:
    """All of ``data`` at the end of a file of ``size`` bytes, on the disk; or OSError, and the file is as it was."""
    try:
        if os.write(fd, data) != len(data):
            raise OSError(0, "there is no space for all of it")
        _sync(fd)
    except OSError:
        os.ftruncate(fd, size)
        raise


def _sync(fd: int) -> None:
    if FULL_SYNC is not None:
        fcntl.fcntl(fd, FULL_SYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(fd)


def set_aside(fd: int, start: int, end: int, to: Path) -> None:
    """Move what is from ``start`` to the end of the file into a new file, and cut it off."""
    with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
        position = start
        while position < end and (chunk := os.pread(fd, min(CHUNK, end - position), position)):
            stream.write(chunk)
            position += len(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    sync_directory(to.parent)
    os.ftruncate(fd, start)
    os.fsync(fd)


def sync_directory(path: Path) -> None:
    """So that a new file's name outlives a power cut as its content does."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _last(fd: int, mark: bytes, end: int, least: int = 0) -> int:
    """Where ``mark`` last occurs as a whole in ``least`` to ``end``."""
    tail = b""
    position = end
    while position > least:
        start = max(least, position - CHUNK)
        block = os.pread(fd, position - start, start) + tail
        found = block.rfind(mark)
        if found >= 0:
            return start + found
        tail = block[: len(mark) - 1]
        position = start
    return -1
