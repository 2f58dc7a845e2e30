"""The tools of files and commands for another agent: which sandbox, which directories, and what is behind each call."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.app.gate import Gate, OnWarning, whole_gate
from bubbles.app.trusted import refuse_believed
from bubbles.app.workshop import Workshop
from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.contract import Workplace
from bubbles.errors import BubblesError
from bubbles.mcp.contract import ServerAnswer
from bubbles.mcp.serving.contract import CHANNEL, OfferedTool
from bubbles.providers.contract import ToolCall, ToolSpec
from sandbox_backends.contract import Enforces, Root
from sandbox_backends.errors import SandboxError
from sandbox_backends.registry import backend_names
from sandbox_backends.roots import refuse_in_hard_place, resolve_spec

if TYPE_CHECKING:
    from bubbles.mcp.serving.calls import Calls
    from bubbles.sessions.contract import Folders
    from bubbles.tools.registry import Toolbox

HARD = Enforces.FILESYSTEM | Enforces.NETWORK
"""What a place must hold to be offered to an agent that is not ours."""
DOCTOR = "'bubbles sandbox doctor' shows what works here"
INSTALL = "install bubblewrap (Debian and Ubuntu: apt-get install bubblewrap) or Docker"
UNASKED = (
    "the program that called has no way to put a question to a person (elicitation); what rules may allow, the "
    "owner can let run by a rule in {rules}"
)
READING = {"read_file", "list_dir"}

_log = logging.getLogger(__name__)


async def hard_backend(shop: Workshop, wanted: str | None) -> str:
    """The name of the sandbox to use: ``wanted``, or the configured one if it is hard, or the strongest that works.

    Raises BubblesError if that is not hard or cannot be used here, and InvalidSpecError for a name that there is not.
    """
    configured = shop.settings.tools.sandbox.backend
    if wanted is not None or HARD in shop.backend(configured).enforces:
        name = wanted or configured
        if (why := await _unfit(shop, name)) is None:
            return name
        raise BubblesError(why)
    faults = []
    for name in backend_names():
        if HARD not in shop.backend(name).enforces:
            continue
        if (why := await _unfit(shop, name)) is None:
            return name
        faults.append(why)
    raise BubblesError(f"No hard sandbox works here, and nothing less is offered to other agents. {' '.join(faults)}")


async def _unfit(shop: Workshop, name: str) -> str | None:
    """Why this one is not to be used, with the mend."""
    backend = shop.backend(name)
    if HARD not in backend.enforces:
        return (
            f"The sandbox {name} does not hold files and network, so nothing is offered to other agents in it: take "
            f"--backend bubblewrap or docker; {DOCTOR}."
        )
    probe = await backend.probe()
    if probe.usable and HARD in backend.enforces:
        return None
    said = f"{probe.reason} {probe.remedy}".strip() or "It does not hold files and network on this host."
    return f"The sandbox {name} cannot be used: {said} Else {INSTALL}; {DOCTOR}."


def session_key(roots: Sequence[Path]) -> str:
    """The same for the same directories, whenever they are offered: HOME and rules of the session last."""
    from bubbles.sessions.key import cli_key

    places = "\0".join(str(root) for root in roots)
    name = re.sub(r"[^a-z0-9]+", "-", roots[0].name.lower()).strip("-")[:40] or "root"
    return cli_key(f"mcp-{name}-{hashlib.sha256(places.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}")


def offered_place(shop: Workshop, folders: Folders, roots: Sequence[Path], backend: str) -> Workplace:
    """Where the calls act: in ``roots``, the first of which is where relative paths begin, and the session's desk,
    where long results lie. Raises BubblesError or InvalidSpecError for what no sandbox would open; blocks.
    """
    for root in roots:
        if root.resolve().is_relative_to(shop.settings.data_dir.resolve()):
            raise BubblesError(f"Root {root} is Bubbles' own: name a directory made for the work, with --root DIR.")
    place = shop.session_place(folders, backend, None)
    wanted = (*(Root(path=root) for root in roots), *place.spec.roots)
    place = replace(place, spec=replace(place.spec, roots=wanted, requires=HARD))
    folders.desk.parent.mkdir(exist_ok=True)
    folders.desk.mkdir(mode=0o700, exist_ok=True)
    refuse_in_hard_place(resolve_spec(place.spec, shop.backends), shop.backends)
    refuse_believed(shop.settings, roots, folders.key)
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTools:
    """``Offered``: the agent's own tools for files and commands."""

    gate: Gate
    toolbox: Toolbox
    place: Workplace
    tools: tuple[OfferedTool, ...]

    @property
    def instructions(self) -> str:
        first, *others = (root.path for root in self.place.spec.roots if root.label == "project")
        also = f" (and {', '.join(map(str, others))})" if others else ""
        said = (
            f"Files and commands in {first}{also}, inside a sandbox ({self.place.backend}, network: "
            f"{self.place.network}): nothing else of this machine can be reached, and relative paths begin there. "
            "Every command is checked first: most run at once, some are put to a person, some are declined, and "
            "what was declined was not run. A result that is too long is cut, and names the file that has all of it."
        )
        return said.encode("utf-8", "backslashreplace").decode()  # a directory's name may be any bytes

    def wake(self) -> None:
        def failed(error: SandboxError) -> None:
            _log.warning("the sandbox could not be opened ahead: %s", error)

        self.gate.sandboxes.open_ahead(self.place.backend, self.place.spec, failed)

    async def run(self, call: ToolCall, origin: Origin) -> ServerAnswer:
        result = (await self.toolbox.run(call, origin)).result
        return ServerAnswer(text=result.text, is_error=result.is_error, images=result.images)


@asynccontextmanager
async def offering(
    shop: Workshop, calls: Calls, place: Workplace, folders: Folders, on_warning: OnWarning = lambda _: None
) -> AsyncIterator[OfferedTools]:
    """The tools over this workshop's gate, while the context lasts; leaving it closes the sandbox."""
    from bubbles.sessions.housekeeping import tended

    async with (
        whole_gate(shop, calls.approver_for, on_warning, calls.away) as gate,
        tended(shop.settings.data_dir),
    ):
        toolbox = _toolbox(shop, gate, place, folders)
        nobody = Origin(
            session_key=folders.key,
            address=Address(channel=CHANNEL, chat_id=folders.key),
            sender="",
            trigger=Trigger.USER,
        )
        tools = tuple(_offered(spec, place) for spec in toolbox.specs(nobody))
        yield OfferedTools(gate=gate, toolbox=toolbox, place=place, tools=tools)


async def serve_tools(
    shop: Workshop, roots: Sequence[Path], backend: str | None, files: tuple[int, int], on_warning: OnWarning
) -> None:
    """Serve one client over two open files, to read from and to write to, until it is gone.

    ``roots`` are absolute. Raises BubblesError, InvalidSpecError.
    """
    from bubbles.mcp.serving.calls import Calls
    from bubbles.mcp.serving.server import serve
    from bubbles.mcp.serving.wire import Wire
    from bubbles.sessions.session import Sessions

    settings = shop.settings
    folders = Sessions(settings.data_dir).folders(session_key(roots))
    place = await asyncio.to_thread(offered_place, shop, folders, roots, await hard_backend(shop, backend))
    calls = Calls(folders.key, UNASKED.format(rules=settings.data_dir / "rules"))
    async with offering(shop, calls, place, folders, on_warning) as tools:
        with Wire(*files) as wire:
            await serve(tools, calls, wire)


def _toolbox(shop: Workshop, gate: Gate, place: Workplace, folders: Folders) -> Toolbox:
    from bubbles.tools.access import Files
    from bubbles.tools.edit import EditFile
    from bubbles.tools.files import ListDir, ReadFile, WriteFile
    from bubbles.tools.registry import Toolbox
    from bubbles.tools.shell import Exec
    from bubbles.tools.truncate import DeskSpill

    settings = shop.settings.tools
    controller = gate.controller
    files = Files(controller, lambda _: place)
    return Toolbox(
        (
            Exec(controller, lambda _: place, None, settings.exec),
            ReadFile(files, settings.result_tokens),
            WriteFile(files),
            EditFile(files),
            ListDir(files),
        ),
        result_tokens=settings.result_tokens,
        spill=DeskSpill(controller, lambda _: place, lambda _: folders),
        mask=gate.redactor.mask,
    )


def _offered(spec: ToolSpec, place: Workplace) -> OfferedTool:
    """Reading changes nothing; what writes may overwrite; only a command may reach another machine, if any can be."""
    reads = spec.name in READING
    return OfferedTool(
        spec=spec,
        read_only=reads,
        destructive=not reads,
        idempotent=reads or spec.name == "write_file",
        open_world=spec.name == "exec" and place.network != "none",
    )
