"""Puts a command line before the lane, as the reader reads it."""

from __future__ import annotations

import os
from pathlib import Path

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.lane import judge
from bubbles.controller.policy.shell.reader import read
from bubbles.controller.policy.shell.reading import Segment

ROOT = "/home/agent/work/project"
LINK = f"{ROOT}/link_out"
"""Leads out of the project."""


def resolve(path: str) -> str:
    path = os.path.normpath(path)
    return "/elsewhere" + path[len(LINK) :] if path == LINK or path.startswith(LINK + "/") else path


def place(*, cwd: str = ROOT, contained: bool = False) -> Context:
    return Context(
        cwd=cwd,
        roots=(ROOT, "/home/agent/desk"),
        home="/home/agent",
        person_home="/home/person",
        contained=contained,
        resolve=resolve,
    )


def parts(command: str, context: Context) -> tuple[Segment, ...]:
    reading = read(command.replace("@ROOT@", ROOT), context)
    return () if reading.doubts or reading.broken else reading.segments


def refusal(command: str, context: Context | None = None) -> str | None:
    """Why the lane does not accept ``command``, or None."""
    context = context or place()
    segments = parts(command, context)
    if not segments:
        return "it is not understood"
    return next(filter(None, (judge(segment, context) for segment in segments)), None)


def listed(name: str) -> dict[str, list[str]]:
    """The commands of a list beside this file, by family."""
    families: dict[str, list[str]] = {}
    commands: list[str] = []
    for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()[1:]:
        if line.startswith("## "):
            commands = families[line[3:]] = []
        elif line:
            commands.append(line)
    return families
