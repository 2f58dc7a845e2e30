"""The list of things to do, which lasts across turns (TOOL-07)."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bubbles.bus import Origin
from bubbles.config.files import content, replace
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.truncate import FoldersOf

FILE = "todo.json"
MAX_ITEMS = 100
MAX_TITLE = 500
MAX_FILE_BYTES = 1 << 20
MARKS = {"todo": " ", "doing": ">", "done": "x"}


class Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE)]
    status: Literal["todo", "doing", "done"] = "todo"


Items = tuple[Item, ...]


class TodoFile(BaseModel):
    """``todo.json`` of a session's state directory."""

    items: Annotated[Items, Field(max_length=MAX_ITEMS)]


class TodoArgs(Args):
    items: Annotated[Items, Field(max_length=MAX_ITEMS)] | None = None
    """The whole list, in order, in place of what it is now. Leave it out to see the list."""


class Todo:
    name = "todo"
    description = (
        "The list of things to do in this session; it lasts across turns. Keep one for work of several steps: one item "
        "is doing at a time, and done as soon as it is."
    )
    args = TodoArgs

    def __init__(self, folders_of: FoldersOf) -> None:
        self._folders_of = folders_of

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: TodoArgs) -> str:
        if args.items is None:
            return "todo()"
        done = sum(item.status == "done" for item in args.items)
        return f"todo({done} of {len(args.items)} done)"

    async def run(self, args: TodoArgs, origin: Origin) -> ToolResult:
        path = self._folders_of(origin).state / FILE
        try:
            if args.items is None:
                items, told = await asyncio.to_thread(load, path)
                return ToolResult(text=f"{told}{shown(items)}")
            await asyncio.to_thread(save, path, args.items)
            return ToolResult(text=shown(args.items))
        except OSError as error:
            raise ToolError(f"The list cannot be kept ({error.strerror}).") from None


def shown(items: Items) -> str:
    if not items:
        return "The list is empty."
    return "\n".join(
        f"{number}. [{MARKS[item.status]}] {' '.join(item.title.split())}" for number, item in enumerate(items, 1)
    )


def load(path: Path) -> tuple[Items, str]:
    """The list, and what there is to tell of its file. One that is damaged is put aside. Raises OSError."""
    try:
        return TodoFile.model_validate_json(content(path, MAX_FILE_BYTES)).items, ""
    except FileNotFoundError:
        return (), ""
    except ValueError:
        aside = path.with_name(f"{FILE}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        os.replace(path, aside)
        return (), f"The earlier list could not be read; it was put aside as {aside.name}. "


def save(path: Path, items: Items) -> None:
    """Replace the file, or a link in its place, whole or not at all; the turn keeps others out. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, TodoFile(items=items).model_dump_json(indent=1))
