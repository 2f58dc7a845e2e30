"""Runs a script (TOOL-02)."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from pydantic import Field

from bubbles.bus import Origin
from bubbles.config.schema import ExecSettings
from bubbles.controller.contract import Execution, Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.places import ExecRequest, Outcome
from bubbles.controller.policy.contract import SHELL
from bubbles.tools.access import explained, outside
from bubbles.tools.contract import Args, PlaceOf, ToolResult
from bubbles.tools.endings import ending, output
from bubbles.tools.files import quoted
from bubbles.tools.processes import Processes
from bubbles.tools.truncate import LONG, MAX_KEPT

MAX_SCRIPT = 131_071
"""Characters; what the system runs as one argument has at most as many bytes."""
MAX_HINT = 200


class ScriptArgs(Args):
    script: Annotated[str, Field(min_length=1, max_length=MAX_SCRIPT)]
    """Run by bash -c, without any start-up file."""
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds after which it is ended with all that it started."""
    cwd: Annotated[str, Field(max_length=4096)] | None = None
    """Where to run it, inside the session's directories; the working directory if left out."""


class ExecArgs(ScriptArgs):
    background: bool = False
    """Start it and go on, without a limit of time unless one is given; its output is seen with the process tool."""


class Exec:
    name = "exec"

    def __init__(
        self, controller: Controller, place_of: PlaceOf, processes: Processes | None, settings: ExecSettings
    ) -> None:
        """Without ``processes``, which the process tool looks at, nothing can be started in the background."""
        self.args: type[ScriptArgs] = ScriptArgs if processes is None else ExecArgs
        self._controller = controller
        self._place_of = place_of
        self._processes = processes
        self._settings = settings
        self._warned: dict[str, tuple[str, ...]] = {}

    @property
    def description(self) -> str:
        background = "" if self._processes is None else "For what goes on (a server, a watcher), set background. "
        return (
            "Run a bash script in the session's sandbox. Stdout and stderr come back together, then the exit status "
            "unless it is 0. It has no terminal and no input, and each script begins anew: cd and variables do not "
            f"last. Time limit: {self._settings.timeout_s:g} s, or as given up to {self._settings.max_timeout_s:g} s. "
            f"{background}A person may be asked first; what was declined was not run."
        )

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: ScriptArgs) -> str:
        return f"exec({quoted(args.script.strip()[:MAX_HINT])}{', background' if _goes_on(args) else ''})"

    async def run(self, args: ScriptArgs, origin: Origin) -> ToolResult:
        if self._processes is not None and _goes_on(args):
            return await self._start(args, self._processes, origin)
        return await self._exec(args, origin)

    async def _exec(self, args: ScriptArgs, origin: Origin) -> ToolResult:
        timeout_s = min(args.timeout_s or self._settings.timeout_s, self._settings.max_timeout_s)
        request = ExecRequest(
            argv=(*SHELL, args.script),
            cwd=args.cwd,
            timeout_s=timeout_s,
            max_output_bytes=MAX_KEPT,
            merge_stderr=True,
        )
        place = await self._placed(args, origin)
        with explained(args.cwd or ".", place):
            done = await self._controller.exec(request, place, origin)
        long = len(done.result.stdout) > LONG
        text = await asyncio.to_thread(output, done.result) if long else output(done.result)
        last = ending(done.result, timeout_s)
        if done.lost is not None and done.result.outcome is Outcome.LOST:
            last = f"{last} ({done.lost})"
        before = self._first(done.reset, done.warnings, origin)
        return ToolResult(text=_joined(before, text, last), is_error=_failed(done))

    async def _start(self, args: ScriptArgs, processes: Processes, origin: Origin) -> ToolResult:
        processes.check_room(origin)
        limit = None if args.timeout_s is None else min(args.timeout_s, self._settings.max_timeout_s)
        request = ExecRequest(argv=(*SHELL, args.script), cwd=args.cwd, timeout_s=limit, merge_stderr=True)
        place = await self._placed(args, origin)
        with explained(args.cwd or ".", place):
            started = await self._controller.start(request, place, origin)
        running = processes.add(started.process, args.script, args.cwd, origin)
        before = self._first(started.reset, started.warnings, origin)
        return ToolResult(text=f"{before}Started in the background as process {running.id}.")

    async def _placed(self, args: ScriptArgs, origin: Origin) -> Workplace:
        """Where it would run. Raises ToolError for a directory outside the roots: nobody need be asked about that."""
        place = self._place_of(origin)
        if args.cwd and not await asyncio.to_thread(_inside, place, args.cwd):
            raise outside(args.cwd, place)
        return place

    def _first(self, reset: str | None, warnings: tuple[str, ...], origin: Origin) -> str:
        """What is to be known of the sandbox: why it is a new one, and, once a session, what it cannot hold."""
        said = []
        if reset is not None:
            said.append(
                f"[the sandbox was opened anew: {reset}. Earlier processes and temporary files are gone; files in the "
                "session's directories stayed]\n"
            )
        if warnings and self._warned.get(origin.session_key) != warnings:
            self._warned[origin.session_key] = warnings
            said += [f"[{warning}]\n" for warning in warnings]
        return "".join(said)


def _goes_on(args: ScriptArgs) -> bool:
    return isinstance(args, ExecArgs) and args.background


def _inside(place: Workplace, cwd: str) -> bool:
    directory = place.directory(cwd)
    roots = [str(root.path) for root in place.spec.roots]
    named = (*roots, *map(os.path.realpath, roots))
    return any(directory == root or directory.startswith(f"{root}/") for root in named)


def _failed(done: Execution) -> bool:
    """A status is an answer; being cut off is none."""
    return done.result.outcome is not Outcome.EXITED


def _joined(before: str, text: str, last: str) -> str:
    if not text and not last:
        text = "[no output]"
    if last:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{before}{text}{gap}[{last}]"
    return f"{before}{text}"
