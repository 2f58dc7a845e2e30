"""All tools there are, in one box."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bubbles.config.schema import FileSettings
from bubbles.controller.controller import Controller
from bubbles.tools.access import Files
from bubbles.tools.contract import PlaceOf, Tool, ToolSource
from bubbles.tools.edit import EditFile
from bubbles.tools.files import ListDir, ReadFile, WriteFile
from bubbles.tools.processes import Process, Processes
from bubbles.tools.registry import Toolbox
from bubbles.tools.shell import Exec
from bubbles.tools.todo import Todo
from bubbles.tools.truncate import DeskSpill, FoldersOf


def make_tools(
    controller: Controller,
    place_of: PlaceOf,
    folders_of: FoldersOf,
    settings: FileSettings,
    mask: Callable[[str], str] = str,
    more: Iterable[Tool[Any]] = (),
    sources: Iterable[ToolSource] = (),
) -> Toolbox:
    """The tools of SPEC 6.5, for every session of this program: those of a desk, and ``more``."""
    files = Files(controller, place_of)
    processes = Processes()
    tokens = settings.tools.result_tokens
    return Toolbox(
        (
            ReadFile(files, tokens),
            WriteFile(files),
            EditFile(files),
            ListDir(files),
            Exec(controller, place_of, processes, settings.tools.exec),
            Process(controller, place_of, processes, tokens),
            Todo(folders_of),
            *more,
        ),
        result_tokens=tokens,
        spill=DeskSpill(controller, place_of, folders_of),
        mask=mask,
        sources=sources,
    )
