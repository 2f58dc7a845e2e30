"""Files that come with messages: into the session's ``data/received/``, and to the model as lines of text (CHAN-05).

Everything about them is anybody's choice: name, kind, size, how long they take. So a file first comes into a place of
our own, where a limit ends it, and is put into the desk whole, beneath it, under a name of our making (SESS-09).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from bubbles.channels.contract import Attachment, ChannelError
from bubbles.controller.approvals.card import UNSEEN
from bubbles.errors import BubblesError
from bubbles.sessions import beneath
from bubbles.sessions.contract import SessionError
from bubbles.sessions.history import completed
from bubbles.sessions.session import Sessions

FOLDER = "data/received"
MAX_FILES = 20
"""Of one message."""
LIMIT_S = 60.0
"""For all files of one message: whoever sent it waits for an answer."""
MAX_NAME_BYTES = 80
MAX_LOOKED_AT = 200
"""Characters of a name that are looked at."""
TRIES = 5
CHUNK = 256 << 10
BREATH = 64
"""Pieces after which others have their turn."""
AT_ONCE = 2
"""Files that are in memory at a time, on their way into a desk."""

KIND = re.compile(r"[a-z0-9][a-z0-9.+-]{0,30}/[a-z0-9][a-z0-9.+-]{0,60}")
EXTENSION = re.compile(r"[A-Za-z0-9]{1,10}")
EXTENSIONS = {
    "application/pdf": "pdf",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/webp": "webp",
    "text/plain": "txt",
    "video/mp4": "mp4",
}
"""Of files that come without one, as voice messages do."""
INVISIBLE = re.compile("[\u034f\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks of which nothing is seen; others are parts of letters in many scripts."""

_log = logging.getLogger(__name__)


def _today() -> datetime:
    return datetime.now(UTC).astimezone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What became of the files of a message."""

    lines: tuple[str, ...] = ()
    """One for each, for the model."""
    desk: Path | None = None
    names: tuple[str, ...] = ()
    """Of those that are there, from ``desk`` on."""


class _TooLargeError(Exception):
    pass


def folder(data_dir: Path) -> Path:
    """Where files lie while they come: out of every sandbox's reach."""
    return data_dir / "gateway" / "incoming"


def clear(data_dir: Path) -> None:
    """Remove what an earlier process left when it was killed. Blocks; only while no ``Files`` is at work."""
    place = folder(data_dir)
    if place.is_symlink():
        raise BubblesError(f"{place} is a link, and files would be removed where it leads: remove the link.")
    with suppress(FileNotFoundError):
        for path in place.iterdir():
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                path.unlink()


class Files:
    """``max_bytes`` is the owner's limit of one file; a platform's own may be lower."""

    def __init__(
        self,
        data_dir: Path,
        sessions: Sessions,
        max_bytes: int,
        *,
        limit_s: float = LIMIT_S,
        today: Callable[[], datetime] = _today,
    ) -> None:
        self._folder = folder(data_dir)
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._limit_s = limit_s
        self._today = today
        self._placing = asyncio.Semaphore(AT_ONCE)

    async def fetch(self, attachments: Sequence[Attachment], session_key: str, platform_bytes: int) -> Fetched:
        """A file that cannot be had costs a sentence, never the message. Cancelled, it leaves nothing behind."""
        if not attachments:
            return Fetched()
        try:
            desk = (await self._sessions.open(session_key)).folders.desk
        except SessionError as error:
            _log.warning("files for session %s were not fetched: %s", session_key, error)
            return Fetched(lines=tuple(_missing(each, "there is no place to put it") for each in attachments))
        most = min(self._max_bytes, platform_bytes)
        deadline = asyncio.get_running_loop().time() + self._limit_s
        names: list[str] = []
        try:
            lines = [await self._one(each, desk, deadline, most, names) for each in attachments[:MAX_FILES]]
        except BaseException:
            await self.discard(Fetched(desk=desk, names=tuple(names)))
            raise
        if (more := len(attachments) - MAX_FILES) > 0:
            lines.append(f"[{more} more not attached, since {MAX_FILES} files come with one message at most.]")
        return Fetched(lines=tuple(lines), desk=desk, names=tuple(names))

    async def discard(self, fetched: Fetched) -> None:
        """Remove the files of a message that comes again: they would lie there twice."""
        if fetched.desk is not None and fetched.names:
            await completed(asyncio.to_thread(_remove, fetched.desk, fetched.names))

    async def _one(self, attachment: Attachment, desk: Path, deadline: float, most: int, names: list[str]) -> str:
        """The line for the model. ``names`` gets that of the file as soon as it is there."""
        if attachment.size is not None and attachment.size > most:
            return _missing(attachment, _too_large(most))
        path = self._folder / secrets.token_hex(16)
        try:
            async with asyncio.timeout_at(deadline):
                size = await self._stream(attachment, path, most)
            async with self._placing:
                await completed(asyncio.to_thread(self._place, path, desk, attachment, names))
        except Exception as error:  # noqa: BLE001 - an edge: what a platform's library raises costs the file alone
            late = asyncio.get_running_loop().time() >= deadline
            return _missing(attachment, self._reason(error, most, late=late))
        finally:
            await completed(asyncio.to_thread(path.unlink, missing_ok=True))
        kind = attachment.mime.lower() if KIND.fullmatch(attachment.mime.lower()) else ""
        return f"[Attached: {names[-1]} ({f'{kind}, ' if kind else ''}{size:,} bytes)]"

    def _reason(self, error: Exception, most: int, *, late: bool) -> str:
        """Why a file is missing, for the model. The log says more."""
        match error:
            case _TooLargeError():
                return _too_large(most)
            case TimeoutError() if late:
                return f"it had not come after {self._limit_s:g} seconds"
            case SessionError() | FileExistsError():
                _log.warning("a file was not put into a desk: %s", error)
                return f"{FOLDER} does not take it"
            case ChannelError():
                _log.warning("a file was not fetched: %s", error)
            case _:
                _log.warning("a file was not fetched", exc_info=error)
        return "it could not be fetched"

    async def _stream(self, attachment: Attachment, path: Path, most: int) -> int:
        """How many bytes came."""
        size = count = 0
        waiting = bytearray()
        async with self._opened(path) as file, attachment.fetch() as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > most:
                    raise _TooLargeError
                waiting += piece
                if len(waiting) >= CHUNK:
                    await completed(asyncio.to_thread(file.write, bytes(waiting)))
                    waiting.clear()
                count += 1
                if count % BREATH == 0:
                    await asyncio.sleep(0)  # else a source that never waits could not be interrupted
            await completed(asyncio.to_thread(file.write, bytes(waiting)))
        return size

    @asynccontextmanager
    async def _opened(self, path: Path) -> AsyncIterator[BinaryIO]:
        opened: list[BinaryIO] = []  # a cancellation would lose what a thread returns
        try:
            await completed(asyncio.to_thread(lambda: opened.append(_create(path))))
            yield opened[0]
        finally:
            for file in opened:
                await completed(asyncio.to_thread(file.close))

    def _place(self, path: Path, desk: Path, attachment: Attachment, names: list[str]) -> None:
        """Whole, or not at all, and never in the place of something else. Blocks."""
        data = path.read_bytes()
        for directory in ("data", FOLDER):
            beneath.make_directory(desk, directory)
        day = self._today().strftime("%Y-%m-%d-")
        for number in range(TRIES):
            mark = f"-{secrets.token_hex(3)}" if number else ""
            name = f"{FOLDER}/{safe_name(attachment.name, attachment.mime, before=day, mark=mark)}"
            if beneath.write_bytes(desk, name, data, replace=False, durable=True):
                names.append(name)
                return
        raise FileExistsError(f"{FOLDER} has a file of every name that was tried.")


def safe_name(name: str, mime: str = "", *, before: str = "", mark: str = "") -> str:
    """A file name that is one on every system, is not hidden, needs no quotes, and in which everything is seen.

    Of at most ``MAX_NAME_BYTES``, with ``before`` at its beginning and ``mark`` at the end of its stem.
    """
    last = re.split(r"[/\\]", name)[-1]
    stem, _, extension = last.rpartition(".")
    if not stem or not EXTENSION.fullmatch(extension):
        stem, extension = last, EXTENSIONS.get(mime.lower(), "")
    plain = unicodedata.normalize("NFC", stem[:MAX_LOOKED_AT])
    kept = "".join(each if _is_plain(each) else "-" for each in plain)
    kept = re.sub(r"-[-.]*|\.{2,}", "-", kept).strip("-._") or "file"
    end = f"{mark}.{extension}" if extension else mark
    room = MAX_NAME_BYTES - len(f"{before}{end}".encode())
    return f"{before}{kept.encode()[:room].decode(errors='ignore').rstrip('-._')}{end}"


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in "-_."
    if UNSEEN.match(character) or INVISIBLE.match(character):
        return False
    return unicodedata.category(character)[0] in "LNM"


def _too_large(most: int) -> str:
    return f"it is larger than {most:,} bytes"


def _missing(attachment: Attachment, why: str) -> str:
    return f"[Not attached: {safe_name(attachment.name, attachment.mime)}, since {why}.]"


def _create(path: Path) -> BinaryIO:
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def _remove(desk: Path, names: Sequence[str]) -> None:
    for name in names:
        with suppress(OSError, SessionError):
            beneath.remove(desk, name)
