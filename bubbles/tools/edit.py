"""Replaces a text in a file, exactly or not at all (TOOL-01)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Annotated

from pydantic import Field

from bubbles.bus import Origin
from bubbles.tools.access import Files
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.encodings import encoding_of, kind_of
from bubbles.tools.files import Path, quoted
from bubbles.tools.nearest import nearest

MAX_FILE_BYTES = 10_000_000
MAX_TEXT = 1_000_000
"""Characters of either text."""
MAX_NAMED = 10
"""Matches whose lines are named."""
MAX_PLACES = 100_000
"""Matches that are replaced at once."""


class EditFileArgs(Args):
    path: Path
    """Relative to the working directory, or absolute."""
    old: Annotated[str, Field(max_length=MAX_TEXT)]
    """What is there now, exactly, blanks and line breaks included: enough of it to occur only once."""
    new: Annotated[str, Field(max_length=MAX_TEXT)]
    """What is to be there instead."""
    all: bool = False
    """Replace every occurrence."""


class EditFile:
    name = "edit_file"
    description = (
        "Replace a text in a file. The old text must occur exactly once, or set all. Line ends, encoding and mode of "
        "the file stay as they are."
    )
    args = EditFileArgs

    def __init__(self, files: Files) -> None:
        self._files = files

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: EditFileArgs) -> str:
        return f"edit_file({quoted(args.path)})"

    async def run(self, args: EditFileArgs, origin: Origin) -> ToolResult:
        if not args.old:
            raise ToolError("old is empty: name the text to be replaced, or write the whole file with write_file.")
        if args.old == args.new:
            raise ToolError("old and new are the same: there is nothing to change.")
        before = await self._files.read(args.path, origin, max_bytes=MAX_FILE_BYTES + 1)
        if len(before) > MAX_FILE_BYTES:
            raise ToolError(f"{args.path} has over {MAX_FILE_BYTES:,} bytes: use exec, with sed or a script.")
        after, told = await asyncio.to_thread(edited, before, args)
        if await self._files.read(args.path, origin, max_bytes=MAX_FILE_BYTES + 1) != before:
            raise ToolError(f"{args.path} was changed by something else meanwhile: nothing was written; read it again.")
        await self._files.write(args.path, after, origin)
        return ToolResult(text=told)


def edited(before: bytes, args: EditFileArgs) -> tuple[bytes, str]:
    """The file's new bytes, and what is told of them. Raises ToolError."""
    encoding = encoding_of(before)
    if encoding is None:
        raise ToolError(f"{args.path} is no text but {kind_of(before)}: it cannot be edited like this.")
    try:
        text = Lines(encoding.decode(before))
    except UnicodeError:
        raise ToolError(f"{args.path} is {encoding.codec} that is damaged: it cannot be edited like this.") from None
    places = text.places(args.old, overlapping=not args.all)
    if not places:
        raise ToolError(_missed(text.plain, args))
    if len(places) > 1 and not args.all:
        named = ", ".join(str(text.line(place)) for place in places[:MAX_NAMED])
        more = ", …" if len(places) > MAX_NAMED else ""
        raise ToolError(
            f"old occurs more than once in {args.path}, on lines {named}{more}: give more of the text around the one "
            "that is meant, or set all."
        )
    if len(places) > MAX_PLACES or len(text.plain) + len(places) * (len(args.new) - len(args.old)) > MAX_FILE_BYTES:
        raise ToolError(
            f"old occurs very often in {args.path}, or the file would have over {MAX_FILE_BYTES:,} characters: nothing "
            "was written."
        )
    try:
        after = encoding.encode(text.replaced(places, args.old, args.new))
    except UnicodeError:
        raise ToolError(f"new has characters that {args.path} cannot hold, for it is {encoding.codec}.") from None
    if after == before:
        raise ToolError("old and new differ in nothing but line ends, which stay as they are: nothing to change.")
    where = f"on line {text.line(places[0])}" if len(places) == 1 else f"{len(places):,} times"
    return after, f"Replaced {where} in {args.path}, which has {len(after):,} bytes now."


def _missed(text: str, args: EditFileArgs) -> str:
    found = nearest(text, args.old.replace("\r\n", "\n"))
    if found is None:
        return f"old does not occur in {args.path}, and nothing much like it: read the file."
    differs = ", which differs in nothing but white space" if found.only_blanks else ""
    return f"old does not occur in {args.path}. The nearest is on line {found.line}{differs}:\n{found.text}"


class Lines:
    """A text whose lines may end with CR LF, looked at as if they ended with LF."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.plain = text.replace("\r\n", "\n")
        self._returns: list[int] = []
        """Where in ``plain`` the line ends are that have a CR before them."""
        at = text.find("\r\n")
        while at >= 0:
            self._returns.append(at - len(self._returns))
            at = text.find("\r\n", at + 2)
        self._mostly_returns = 2 * len(self._returns) > self.plain.count("\n")

    def line(self, place: int) -> int:
        return self.plain.count("\n", 0, place) + 1

    def places(self, wanted: str, *, overlapping: bool) -> list[int]:
        """Where ``wanted`` occurs in ``plain``. Overlapping ones are ambiguous too, and a few are enough to say so."""
        wanted = wanted.replace("\r\n", "\n")
        step = 1 if overlapping else len(wanted)
        found: list[int] = []
        at = self.plain.find(wanted)
        while at >= 0 and len(found) <= (MAX_NAMED if overlapping else MAX_PLACES):
            found.append(at)
            at = self.plain.find(wanted, at + step)
        return found

    def replaced(self, places: list[int], old: str, new: str) -> str:
        """The text with ``new`` at each place, which do not overlap; every other character as it was."""
        size = len(old.replace("\r\n", "\n"))
        new = new.replace("\r\n", "\n")
        if self._mostly_returns:
            new = new.replace("\n", "\r\n")
        parts, done = [], 0
        for place in places:
            parts += [self._text[done : self._original(place)], new]
            done = self._original(place + size)
        return "".join([*parts, self._text[done:]])

    def _original(self, place: int) -> int:
        """Where in the text it is; a line end belongs together with its CR."""
        return place + bisect_right(self._returns, place - 1)
