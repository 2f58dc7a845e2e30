"""Pictures of a session, in ``blobs/`` of its state directory, each under its SHA-256. All of it blocks."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from bubbles.config.files import content
from bubbles.providers.contract import Image
from bubbles.sessions.lines import sync_directory

MAX_BYTES = 64 << 20
_ASIDE = ".new"
"""Where a picture is written first. Who writes holds the session's lock, and may remove what a crash left there."""


class Blobs:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, image: Image) -> str:
        """The picture's name; it is on the disk. Raises OSError."""
        name = hashlib.sha256(image.data).hexdigest()
        path = self._directory / name
        try:
            if stat.S_ISREG((found := path.lstat()).st_mode) and found.st_size == len(image.data):
                return name
        except FileNotFoundError:
            self._directory.mkdir(mode=0o700, exist_ok=True)
        aside = self._directory / _ASIDE
        aside.unlink(missing_ok=True)
        try:
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
                stream.write(image.data)
                stream.flush()
                os.fsync(stream.fileno())
            aside.rename(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)
        return name

    def get(self, name: str) -> bytes | None:
        """None for what is not there, or cannot be read."""
        try:
            data = content(self._directory / name, MAX_BYTES)
        except (OSError, ValueError):
            return None
        return data if hashlib.sha256(data).hexdigest() == name else None
