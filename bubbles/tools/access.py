"""The files of a session for its tools: through the gate, with refusals that say what may be reached (TOOL-01)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bubbles.bus import Origin
from bubbles.controller.contract import Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.places import MAX_READ_BYTES, DirListing, FileError, FileStat, PathRefusedError
from bubbles.tools.contract import PlaceOf, ToolError

HOME = re.compile(r"~([a-z_][a-z0-9_.-]*)?(/|$)")
"""What a shell would take for a home directory (B125)."""


class Files:
    """Raises ToolError for what the model can mend, and what the sandbox raises."""

    def __init__(self, controller: Controller, place_of: PlaceOf) -> None:
        self._controller = controller
        self._place_of = place_of

    async def read(self, path: str, origin: Origin, *, offset: int = 0, max_bytes: int = MAX_READ_BYTES) -> bytes:
        place = self._place_of(origin)
        with explained(path, place):
            return await self._controller.read_file(path, place, origin, offset=offset, max_bytes=max_bytes)

    async def write(self, path: str, data: bytes, origin: Origin) -> None:
        place = self._place_of(origin)
        with explained(path, place):
            await self._controller.write_file(path, data, place, origin)

    async def list_dir(self, path: str, origin: Origin) -> DirListing:
        place = self._place_of(origin)
        with explained(path, place):
            return await self._controller.list_dir(path, place, origin)

    async def stat(self, path: str, origin: Origin) -> FileStat | None:
        """None if there is nothing of this name."""
        place = self._place_of(origin)
        with explained(path, place):
            try:
                return await self._controller.stat(path, place, origin)
            except FileError as error:
                if error.code == "not_found":
                    return None
                raise


@contextmanager
def explained(path: str, place: Workplace) -> Iterator[None]:
    """What the sandbox says of ``path``, as a ToolError that says what may be reached."""
    if HOME.match(path):
        raise outside(path, place)
    try:
        yield
    except PathRefusedError:
        raise outside(path, place) from None
    except FileError as error:
        raise ToolError(f"{error}.{_HINTS.get(error.code, '').format(cwd=place.spec.cwd)}") from None


_HINTS = {
    "not_found": " A relative path starts in {cwd}.",
    "not_a_directory": " To see a file, use read_file.",
    "not_a_file": " If it is a directory, list_dir shows what is in it.",
}


def outside(path: str, place: Workplace) -> ToolError:
    roots = ", ".join(str(root.path) for root in place.spec.roots)
    return ToolError(
        f"{path} is, or leads, outside the session's directories, and files are only reached inside them: {roots}."
    )
