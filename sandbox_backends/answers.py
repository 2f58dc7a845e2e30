"""What a runner answers, read with distrust: every field is checked before it becomes a value of the contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from sandbox_backends.contract import DirEntry, ExecResult, FileStat, Outcome, StreamName
from sandbox_backends.errors import ProtocolError
from sandbox_backends.link import Meta, field
from sandbox_backends.runner import wire

MAX_ROW_BYTES = 4096
"""Of one entry of a directory, as it is sent: a name of 255 bytes may take six times as much."""
UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, RecursionError)


class Listing:
    """Takes a directory listing as it comes, one entry a line, and believes no line before it has read it."""

    def __init__(self) -> None:
        self.entries: list[DirEntry] = []
        self.partial = b""

    def receive(self, _stream: StreamName, data: bytes) -> None:
        *lines, self.partial = (self.partial + data).split(b"\n")
        if len(self.partial) > MAX_ROW_BYTES or len(self.entries) + len(lines) > wire.MAX_ENTRIES:
            raise ProtocolError("the sandbox's runner sent a directory listing that is too large")
        for line in lines:
            try:
                if len(line) > MAX_ROW_BYTES:
                    raise ValueError("too long")
                row = json.loads(line)
                self.entries.append(DirEntry(name=_name(row[0]), stat=file_stat(row[1:])))
            except UNREADABLE as error:
                raise ProtocolError("the sandbox's runner sent a directory entry that cannot be read") from error


def _name(name: Any) -> str:
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > 1024:
        raise ValueError("not a file name")
    return name


def file_stat(row: Any) -> FileStat:
    """``[kind, size, mode, mtime]`` as it was sent; one of ``UNREADABLE`` is raised when it is not that."""
    kind, size, mode, mtime = row
    if kind not in ("file", "directory", "symlink", "other") or type(size) is not int or type(mode) is not int:
        raise ValueError("not a file description")
    if not 0 <= size < 2**63 or type(mtime) not in (int, float) or not abs(mtime) < 2**63:
        raise ValueError("not a file description")
    return FileStat(kind=kind, size_bytes=size, mode=mode & 0o7777, mtime_s=float(mtime))


def exec_result(meta: Meta, streams: Mapping[str, bytes]) -> ExecResult:
    """The end of a command; ProtocolError when it is none."""
    try:
        outcome = Outcome(field(meta, "outcome", str))
    except ValueError:
        raise ProtocolError("the sandbox's runner sent an outcome that is not known") from None
    code = None if meta.get("code") is None else field(meta, "code", int, -128, 255)
    if (code is None) != (outcome not in (Outcome.EXITED, Outcome.SIGNALED)):
        raise ProtocolError("the sandbox's runner sent an outcome without its exit status")
    return ExecResult(
        outcome=outcome,
        exit_code=cast("int | None", code),
        stdout=streams.get("stdout", b""),
        stderr=streams.get("stderr", b""),
        dropped_bytes=field(meta, "dropped", int, 0),
        duration_s=field(meta, "duration", float, 0),
        detached=field(meta, "detached", bool),
    )
