"""Which sandbox of this machine is the strongest that holds: tried, not believed (SBX-09)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.cli.report import run
from bubbles.cli.setup.asking import waiting

if TYPE_CHECKING:
    from bubbles.app.workshop import Workshop
    from bubbles.config.schema import Settings

WITHIN_S = 15.0
"""For all that is tried: a person waits."""
PROBE_S = 8.0
"""For the first look at one."""
GIVES = {
    "docker": "commands run in a container: they see the session's folders and nothing else of yours, and no "
    "network unless you open it",
    "bubblewrap": "commands see the session's folders and nothing else of yours, and have no network unless you "
    "open it",
    "local_isolated": "no boundary: commands see your files and your network, only your logins are kept away",
    "local": "no boundary: commands run as you, with your files, your logins and your network",
}
MENDS = {
    "bubblewrap": "apt install bubblewrap (or dnf install bubblewrap)",
    "docker": "install Docker, best rootless: https://docs.docker.com/engine/security/rootless/",
}
"""Where a backend itself names no command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One backend, here and now."""

    name: str
    usable: bool
    why_not: str = ""
    """With the command that mends it."""
    held: int | None = None
    """Ways out that were tried and are closed; None: not measured."""
    tried: int = 0
    hard: bool = True
    """Whether it claims to hold files and network."""

    @property
    def holds(self) -> bool:
        return self.usable and self.hard


def try_sandboxes(settings: Settings, wanted: str | None = None) -> list[Tried]:
    """The built-in ones, strongest first. ``wanted``: the one that is set, if one is.

    All are looked at, and one is measured: the wanted one, else the strongest that can be used. Only if that breaks a
    promise is the next one measured too. What is not measured in time is taken at its word.
    """
    with _shop(settings) as shop:
        return run(_tried(shop, wanted))


def strongest(found: list[Tried]) -> Tried:
    """The first that holds, else the first that can be used."""
    return next((tried for tried in found if tried.holds), None) or next(tried for tried in found if tried.usable)


async def _tried(shop: Workshop, wanted: str | None) -> list[Tried]:
    deadline = time.monotonic() + WITHIN_S
    with waiting("looking for sandboxes"):
        found = await _looked_at(shop)
    if any(tried.name == wanted and tried.usable and not tried.hard for tried in found):
        return found  # there is nothing to measure
    for place in sorted(range(len(found)), key=lambda place: found[place].name != wanted):
        tried = found[place]
        if not tried.holds:
            continue
        left_s = deadline - time.monotonic()
        if left_s > 1:
            with waiting(f"trying some 70 ways out of {tried.name}, which takes a few seconds"):
                found[place] = await _measured(shop, tried, left_s)
        if found[place].holds:
            break
    return found


async def _looked_at(shop: Workshop) -> list[Tried]:
    from sandbox_backends.registry import BUILT_IN

    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(_look(shop, name)) for name in BUILT_IN]
    return [look.result() for look in looks]


async def _look(shop: Workshop, name: str) -> Tried:
    from sandbox_backends.contract import Enforces

    backend = shop.backend(name)
    hard = Enforces.FILESYSTEM in backend.enforces and Enforces.NETWORK in backend.enforces
    try:
        async with asyncio.timeout(PROBE_S):
            probe = await backend.probe()
    except TimeoutError:
        return Tried(name=name, usable=False, why_not=f"it did not answer within {PROBE_S:g} s", hard=hard)
    if probe.usable:
        return Tried(name=name, usable=True, hard=hard)
    mend = probe.remedy or MENDS.get(name, "")
    return Tried(name=name, usable=False, why_not=f"{probe.reason} {mend}".strip(), hard=hard)


async def _measured(shop: Workshop, tried: Tried, within_s: float) -> Tried:
    from sandbox_backends.errors import SandboxError
    from sandbox_backends.probes.run import run_probes

    try:
        async with asyncio.timeout(within_s):
            report = await run_probes(tried.name, shop.backends, shop.owner)
    except TimeoutError:
        return tried
    except SandboxError as error:
        return replace(tried, usable=False, why_not=str(error))
    if not report.usable:
        return replace(tried, usable=False, why_not=f"{report.reason} {report.remedy}".strip())
    if report.broken or report.disproved:
        titles = "; ".join(result.info.title for result in report.broken[:3]) or str(report.disproved)
        return replace(tried, usable=False, why_not=f"it breaks its promise: code in it can {titles}")
    counted = sum(result.held is not None for result in report.results)
    return replace(tried, held=len(report.held), tried=counted)


@contextmanager
def _shop(settings: Settings) -> Iterator[Workshop]:
    """A workshop in a directory of its own: nothing is made where the person has agreed to nothing yet."""
    from bubbles.app.workshop import workshop

    with tempfile.TemporaryDirectory(prefix="bubbles-onboard-") as directory:
        place = Path(directory).resolve()
        with workshop(settings.model_copy(update={"data_dir": place / "data"})) as shop:
            yield shop
