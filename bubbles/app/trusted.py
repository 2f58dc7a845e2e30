"""Files that are believed whatever they say, rules and settings, and whether a sandbox could write them.

File tools never ask inside a root: a rule file there would be permission that a model gives itself. They may lead into
a root though nobody put them there on purpose, such as by a link into a repository of dotfiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bubbles.config.load import FILE
from bubbles.config.schema import Settings
from bubbles.errors import BubblesError

MAX_LINKS = 40
"""On the way to one file, as the kernel has it."""


def refuse_believed(settings: Settings, roots: Iterable[Path], session: str | None = None) -> None:
    """Raises BubblesError for a root in which rules of ``session`` or settings lie, or a link on the way to them.

    Blocks. What leads elsewhere only later is its owner's doing: nothing in a sandbox can change what this looks at.
    """
    resolved = [Path(os.path.realpath(root)) for root in roots]
    for believed, what in _believed(settings, session):
        for name in _way(believed):
            root = next((each for each in resolved if name.is_relative_to(each)), None)
            if root is not None:
                raise BubblesError(
                    f"{what} are read from {believed}, which lies or leads in the root {root}: whatever works there "
                    "could permit itself anything. Name a directory made for the work, or keep that file elsewhere."
                )


def _believed(settings: Settings, session: str | None) -> Iterator[tuple[Path, str]]:
    from bubbles.controller.rulefiles import load_rulebook, rule_layers

    yield settings.data_dir / FILE, "Settings"
    layers = rule_layers(settings, session)
    for _, directory in layers:
        yield directory, "Rules"
    for layer in load_rulebook(layers).layers:
        for file in layer.files:
            yield Path(file), "Rules"


def _way(path: Path) -> Iterator[Path]:
    """Every name that is looked up to open ``path``, each link followed by where it leads."""
    pending = list(reversed(Path(os.path.abspath(path)).parts[1:]))
    here = Path("/")
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            here = here.parent
            continue
        here = here / name
        yield here
        try:
            target = Path(os.readlink(here))
        except (OSError, ValueError):
            continue  # no link, or nothing
        links += 1
        if links > MAX_LINKS:
            return
        here = here.parent
        if target.is_absolute():
            here, target = Path("/"), target.relative_to("/")
        pending.extend(reversed(target.parts))
