"""Reading, writing and listing files (TOOL-01)."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from pydantic import Field

from bubbles.bus import Origin
from bubbles.controller.places import MAX_READ_BYTES, DirEntry
from bubbles.providers.contract import Image
from bubbles.tools.access import Files
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.encodings import SAMPLE, Encoding, encoding_of, kind_of, picture
from bubbles.tools.paging import LinePicker

MAX_CONTENT = 5_000_000
"""Characters that one ``write_file`` takes."""
MAX_PICTURE_BYTES = 5_000_000
LINES = 2_000
PIECE = 1 << 20
MAX_COUNTED = 16 << 20
"""Bytes up to which the lines of a file are counted beyond those that are shown."""
MAX_SCANNED = 1 << 30
"""Bytes before the first line that is wanted."""
MAX_SHOWN = 1_000
"""Entries of a directory."""
REMARKS = 80
"""Tokens that are left for what is said about a text."""

Path = Annotated[str, Field(min_length=1, max_length=4096)]


class ReadFileArgs(Args):
    path: Path
    """Relative to the working directory, or absolute."""
    first_line: Annotated[int, Field(ge=1)] | None = None
    """Where to begin; the first line is 1."""
    lines: Annotated[int, Field(ge=1, le=20_000)] | None = None
    """How many at most; 2000 if left out."""


class ReadFile:
    name = "read_file"
    description = (
        "Read a text file, as it is and without line numbers. What is not shown of a long file is said at the end in "
        "square brackets, with the first_line to go on with. PNG, JPEG, GIF and WebP files are shown as pictures."
    )
    args = ReadFileArgs

    def __init__(self, files: Files, result_tokens: int) -> None:
        self._files = files
        self._tokens = max(result_tokens - REMARKS, result_tokens // 2)

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: ReadFileArgs) -> str:
        where = "" if args.first_line is None else f", {args.first_line}"
        return f"read_file({quoted(args.path)}{where})"

    async def run(self, args: ReadFileArgs, origin: Origin) -> ToolResult:
        piece = await self._files.read(args.path, origin, max_bytes=PIECE)
        media = picture(piece)
        if media is not None:
            return await self._picture(args.path, media, origin)
        encoding = encoding_of(piece)
        if encoding is None:
            size = await self._size(args.path, len(piece), origin)
            raise ToolError(f"{args.path} is no text but {kind_of(piece)}, {size}: use a program that reads it.")
        picker = LinePicker(
            encoding=encoding, first=args.first_line or 1, count=args.lines or LINES, tokens=self._tokens
        )
        whole = await self._pick(picker, args.path, piece, origin)
        return ToolResult(text=_told(args, picker, whole))

    async def _picture(self, path: str, media: str, origin: Origin) -> ToolResult:
        data = await self._files.read(path, origin, max_bytes=MAX_PICTURE_BYTES + 1)
        if len(data) > MAX_PICTURE_BYTES:
            raise ToolError(f"{path} is a picture of over {MAX_PICTURE_BYTES:,} bytes: make it smaller to see it.")
        return ToolResult(text=f"{path}: {media}, {len(data):,} bytes.", images=(Image(media_type=media, data=data),))

    async def _size(self, path: str, seen: int, origin: Origin) -> str:
        if seen < PIECE:
            return f"{seen:,} bytes"
        found = await self._files.stat(path, origin)
        return f"{found.size_bytes:,} bytes" if found and found.kind == "file" else f"over {PIECE:,} bytes"

    async def _pick(self, picker: LinePicker, path: str, piece: bytes, origin: Origin) -> bool:
        """Whether the lines of the whole file have been counted."""
        encoding = picker.encoding
        if encoding.wide:
            picker.encoding = Encoding(codec="utf-8", remark=encoding.remark)
            await _fed(picker, await self._narrowed(path, encoding, piece, origin))
            picker.finish()
            return True
        offset, size = 0, PIECE
        rest = piece[len(encoding.mark) :]
        while piece:
            if offset > MAX_COUNTED and picker.full:
                return False
            if offset > MAX_SCANNED and not picker.lines:
                raise ToolError(
                    f"Line {picker.first:,} of {path} does not end within its first {MAX_SCANNED:,} bytes: use exec, "
                    "with tail, sed or cut."
                )
            await _fed(picker, rest)
            offset += len(piece)
            if len(piece) < size:
                break
            size = 4 * PIECE
            piece = rest = await self._files.read(path, origin, offset=offset, max_bytes=size)
        picker.finish()
        return True

    async def _narrowed(self, path: str, encoding: Encoding, piece: bytes, origin: Origin) -> bytes:
        """The whole of a UTF-16 file, as UTF-8."""
        data = piece if len(piece) < PIECE else await self._files.read(path, origin, max_bytes=MAX_READ_BYTES)
        if len(data) == MAX_READ_BYTES:
            raise ToolError(f"{path} is UTF-16 and has over {MAX_READ_BYTES:,} bytes: use exec, with iconv.")
        return await asyncio.to_thread(
            lambda: encoding.shown(data[len(encoding.mark) :]).encode("utf-8", "backslashreplace")
        )


async def _fed(picker: LinePicker, data: bytes) -> None:
    if len(data) > SAMPLE:
        await asyncio.to_thread(picker.feed, data)
    else:
        picker.feed(data)


def _told(args: ReadFileArgs, picker: LinePicker, whole: bool) -> str:
    """The lines, and in brackets what there is to know of them."""
    if not picker.lines:
        if not picker.ended:
            return "[the file is empty]"
        raise ToolError(f"{args.path} has {picker.ended:,} lines: line {picker.first:,} is past its end.")
    remarks = []
    last = picker.first + len(picker.lines) - 1
    total = f"{picker.ended:,}" if whole else f"more than {picker.ended:,}"
    if last < picker.ended:
        remarks.append(f"lines {picker.first}-{last} of {total}; go on with first_line={last + 1}")
    elif picker.first > 1:
        remarks.append(f"lines {picker.first}-{last}, the last")
    if picker.shortened:
        remarks.append(f"{picker.shortened} long lines are cut: use exec, with cut -c, to see them")
    if picker.carriage_returns:
        remarks.append("lines end with CR LF, which edit_file keeps")
    if picker.encoding.remark:
        remarks.append(picker.encoding.remark)
    text = "\n".join(picker.lines) + "\n"
    return f"{text}[{'; '.join(remarks)}]" if remarks else text


class WriteFileArgs(Args):
    path: Path
    """Relative to the working directory, or absolute. Missing directories are made."""
    content: Annotated[str, Field(max_length=MAX_CONTENT)]
    """The whole file."""


class WriteFile:
    name = "write_file"
    description = "Write a whole file, in place of what is there. To change a part of a file, use edit_file."
    args = WriteFileArgs

    def __init__(self, files: Files) -> None:
        self._files = files

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: WriteFileArgs) -> str:
        return f"write_file({quoted(args.path)})"

    async def run(self, args: WriteFileArgs, origin: Origin) -> ToolResult:
        data = args.content.encode()
        before = await self._files.stat(args.path, origin)
        await self._files.write(args.path, data, origin)
        if before is None:
            return ToolResult(text=f"Created {args.path}, {len(data):,} bytes.")
        was = f", which had {before.size_bytes:,}" if before.kind == "file" else ", by the link that is there"
        return ToolResult(text=f"Replaced {args.path}: {len(data):,} bytes{was}.")


class ListDirArgs(Args):
    path: Path = "."
    """Relative to the working directory, or absolute."""


class ListDir:
    name = "list_dir"
    description = "List a directory: names, kinds, sizes in bytes. Links are named and not followed."
    args = ListDirArgs

    def __init__(self, files: Files) -> None:
        self._files = files

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: ListDirArgs) -> str:
        return f"list_dir({quoted(args.path)})"

    async def run(self, args: ListDirArgs, origin: Origin) -> ToolResult:
        listing = await self._files.list_dir(args.path, origin)
        if not listing.entries:
            return ToolResult(text="[the directory is empty]")
        lines = [_row(entry) for entry in listing.entries[:MAX_SHOWN]]
        more = len(listing.entries) - MAX_SHOWN
        if more > 0:
            lines.append(f"[{'over ' if listing.truncated else ''}{more:,} more: use exec, with ls and a pattern]")
        return ToolResult(text="\n".join(lines))


def _row(entry: DirEntry) -> str:
    name = entry.name if entry.name.isprintable() and entry.name == entry.name.strip() else quoted(entry.name)
    match entry.stat.kind:
        case "directory":
            return f"{name}/"
        case "symlink":
            return f"{name}  (link)"
        case "other":
            return f"{name}  (neither a file nor a directory)"
    return f"{name}  {entry.stat.size_bytes}"


def quoted(text: str) -> str:
    """As it would be written in a call, so that what does not show is seen."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
