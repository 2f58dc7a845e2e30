"""Where a path leads, judged by text and the context's resolver."""

from __future__ import annotations

import os

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.shell.reading import UNKNOWN, Directories


def lead_to(path: str, directories: Directories, context: Context) -> tuple[str, ...]:
    """The real places that ``path`` may mean, one for each directory it may be used in; none if that is not known."""
    if UNKNOWN in path:
        return ()
    if path.startswith("/"):
        return (context.resolve(path),)
    if directories is None:
        return ()
    return tuple(context.resolve(os.path.join(context.resolve(directory), path)) for directory in directories)


def beneath(place: str, roots: tuple[str, ...]) -> bool:
    """``place`` is one of ``roots`` or lies in one. All are absolute and normal."""
    return any(place == root or place.startswith(root if root.endswith("/") else root + "/") for root in roots)


def inside(path: str, directories: Directories, context: Context) -> bool:
    """Whether ``path`` certainly lies within the roots, whichever of ``directories`` it is used in."""
    places = lead_to(path, directories, context)
    return bool(places) and all(beneath(place, real_roots(context)) for place in places)


def real_roots(context: Context) -> tuple[str, ...]:
    return context.real_roots or tuple(context.resolve(root) for root in context.roots)
