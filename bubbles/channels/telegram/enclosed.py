"""What comes with a message beside its text: files, to be fetched later, and what can be told in a line."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from bubbles.channels.contract import Attachment

Json = Mapping[str, Any]
Fetch = Callable[[str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens a file by its ``file_id``."""

_ENDINGS = {"voice": "ogg", "audio": "mp3", "video": "mp4", "video_note": "mp4", "document": "bin", "animation": "mp4"}
"""Of files that come without a name."""
MAX_LINE = 1_000
NO_BRACKETS = str.maketrans("[]", "()")
"""No name, title or question ends a line of the program, and goes on as another."""


def attachments(part: Json, fetch: Fetch) -> Iterator[Attachment]:
    """The files of one message. A picture comes in several sizes, of which the largest counts."""
    number = int(part["message_id"])
    if photos := part.get("photo"):
        best = max(photos, key=lambda photo: int(photo["width"]) * int(photo["height"]))
        yield _attachment(best, f"photo-{number}.jpg", "image/jpeg", fetch)
    for kind, ending in _ENDINGS.items():
        file = part.get(kind)
        if file is None or (kind == "animation" and "document" in part):  # that is the same file once more
            continue
        yield _attachment(file, str(file.get("file_name") or f"{kind}-{number}.{ending}"), "", fetch)


def _attachment(file: Json, name: str, mime: str, fetch: Fetch) -> Attachment:
    size = file.get("file_size")
    return Attachment(
        name=name,
        mime=str(file.get("mime_type") or mime),
        size=size if isinstance(size, int) else None,
        fetch=functools.partial(fetch, str(file["file_id"])),
    )


def told(part: Json) -> str:
    """What is neither text nor file, in a line; empty if there is no such thing."""
    for kind, line in _TOLD.items():
        if (found := part.get(kind)) is not None:
            return f"[{' '.join(line(found).translate(NO_BRACKETS).split())[:MAX_LINE]}]"
    return ""


def _contact(contact: Json) -> str:
    name = f"{contact.get('first_name', '')} {contact.get('last_name', '')}".strip()
    return f"contact: {name}, {contact.get('phone_number', '')}"


def _poll(poll: Json) -> str:
    return f"poll: {poll.get('question', '')} {' / '.join(str(option['text']) for option in poll.get('options', ()))}"


def _location(location: Json) -> str:
    return f"location: {location.get('latitude')}, {location.get('longitude')}"


def _venue(venue: Json) -> str:
    return f"place: {venue.get('title', '')}, {venue.get('address', '')} ({_location(venue.get('location', {}))})"


_TOLD: dict[str, Callable[[Json], str]] = {
    "venue": _venue,  # before its location, which is there too
    "location": _location,
    "contact": _contact,
    "poll": _poll,
    "sticker": lambda sticker: f"sticker {sticker.get('emoji', '')}",
    "dice": lambda dice: f"dice {dice.get('emoji', '')}: {dice.get('value')}",
}
