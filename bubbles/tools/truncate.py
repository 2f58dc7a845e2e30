"""What is too long for the model: its head and its tail, and where all of it lies (CORE-07)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from typing import Protocol

from bubbles.bus import Origin
from bubbles.controller.controller import Controller
from bubbles.controller.places import SandboxError
from bubbles.errors import BubblesError
from bubbles.sessions.contract import Folders
from bubbles.sessions.tokens import estimate
from bubbles.tools.contract import PlaceOf

FOLDER = "tool-output"
MAX_KEPT = 8 << 20
"""Characters of a result that are kept at all."""
MAX_NAME = 80
LONG = 100_000
"""Characters from which on counting and cutting is left to a thread."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")

FoldersOf = Callable[[Origin], Folders]


class Spill(Protocol):
    """Where the whole of a text goes of which the model gets a part."""

    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        """The absolute path, as tools can read it, or None if it could not be kept."""
        ...


class DeskSpill:
    """Into ``data/tool-output/`` of the session's desk, as a file of the session's own: through the gate."""

    def __init__(self, controller: Controller, place_of: PlaceOf, folders_of: FoldersOf) -> None:
        self._controller = controller
        self._place_of = place_of
        self._folders_of = folders_of

    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        data = await asyncio.to_thread(_encoded, text)
        try:
            name = safe_name(f"{origin.task}_{call_id}" if origin.task else call_id)  # a task counts its own calls
            path = str(self._folders_of(origin).data / FOLDER / f"{name}.txt")
            await self._controller.write_file(path, data, self._place_of(origin), origin)
        except (BubblesError, SandboxError):
            return None
        return path


def _encoded(text: str) -> bytes:
    if len(text) > MAX_KEPT:
        text = cut(text, MAX_KEPT, "")
    return text.encode("utf-8", "backslashreplace")


def safe_name(call_id: str) -> str:
    """A file's name for any id that a provider may give; different ones for different ids."""
    name = _UNSAFE.sub("_", call_id[:MAX_NAME])
    if name == call_id and name:
        return name
    return f"{name}-{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def cut(text: str, size: int, where: str) -> str:
    """Head and tail of ``text``, about ``size`` characters in all, and a line between them that says what is missing.

    Cut where lines end, unless that would lose more than a fourth of a half. ``where`` is added to that line.
    """
    half = max(size // 2, 1)
    if len(text) <= 2 * half:
        return text
    head, tail = text[:half], text[-half:]
    border = head.rfind("\n")
    if border > half * 3 // 4:
        head = head[: border + 1]
    border = tail.find("\n")
    if 0 <= border < half // 4:
        tail = tail[border + 1 :]
    left_out = text[len(head) : len(text) - len(tail)]
    lines = left_out.count("\n")
    count = f"{len(left_out):,} characters" + (f", {lines:,} lines," if lines > 1 else "")
    gap = "" if head.endswith("\n") else "\n"
    return f"{head}{gap}[… {count} are left out here{where} …]\n{tail}"


def cut_to_tokens(text: str, tokens: int, where: str) -> str:
    """As ``cut``, such that an estimate of what is left is within ``tokens``, the line between included."""
    size = len(text)
    shortened = text
    while (cost := estimate(shortened)) > tokens and size > 2:
        size = min(size * 9 // 10, size * tokens // cost)
        shortened = cut(text, size, where)
        if size < 200:
            break  # the line between is most of it
    return shortened
