"""What was typed in earlier conversations: a file of JSON texts, one a line, readable by its owner only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 1 << 20
KEPT = 1_000
"""Entries that are left when the file has grown too large."""
MAX_ENTRY = 20_000
"""Characters; a longer message is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """All of it may block, and nothing of it fails: a conversation goes on without its past."""

    file: Path
    redact: Callable[[str], str]
    """A key that somebody pasted is not kept."""

    def load(self) -> list[str]:
        """Oldest first."""
        try:
            with open(os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as source:
                size = os.fstat(source.fileno()).st_size
                source.seek(max(0, size - MAX_FILE_BYTES))
                lines = source.read(MAX_FILE_BYTES).splitlines()
        except OSError:
            return []
        texts = [text for line in lines if (text := _text(line))]
        if size > MAX_FILE_BYTES:
            self._rewrite(texts[-KEPT:])
        return texts[-KEPT:]

    def add(self, text: str) -> None:
        if len(text) <= MAX_ENTRY:
            self._write(self.file, _line(self.redact(text)), os.O_APPEND)

    def _rewrite(self, texts: list[str]) -> None:
        fresh = self.file.with_name(f"{self.file.name}.new")
        if self._write(fresh, b"".join(map(_line, texts)), os.O_TRUNC):
            with suppress(OSError):
                os.replace(fresh, self.file)

    def _write(self, path: Path, data: bytes, how: int) -> bool:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | how
            with open(os.open(path, flags, 0o600), "wb") as target:
                target.write(data)
        except OSError:
            return False
        return True


def _line(text: str) -> bytes:
    return json.dumps(text).encode() + b"\n"


def _text(line: bytes) -> str:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return ""  # cut off when the program ended, or by our own beginning in the middle
    return text if isinstance(text, str) else ""
