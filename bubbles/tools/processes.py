"""What runs in the background: which process is whose, and the tool that looks at one (TOOL-02)."""

from __future__ import annotations

import codecs
import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from bubbles.bus import Origin
from bubbles.controller.contract import DeclinedError, Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.places import BackgroundProcess, ExecResult, Outcome, OutputChunk, SandboxError
from bubbles.tools.contract import Args, PlaceOf, ToolError, ToolResult
from bubbles.tools.endings import ending

MAX_RUNNING = 16
"""Of one session."""
KEPT_S = 1_800.0
"""How long one that has ended is remembered."""
MAX_INPUT = 10_000
"""Characters that are written at once: as many as the gate reads."""
MAX_WAIT_S = 600.0
ANSWER_S = 0.3
"""How long the answer to what was written is waited for, if nothing is said about that."""
END_S = 5.0
"""How long a process has to end by itself."""


@dataclass(slots=True, kw_only=True, eq=False)
class Running:
    """A process that was started in the background."""

    id: str
    process: BackgroundProcess
    command: str
    cwd: str | None
    since: float = field(default_factory=time.monotonic, init=False)
    line: str = field(default="", init=False)
    """What was typed into it and has no line break behind it yet."""
    ended_at: float | None = None
    """When it was first seen that it had ended."""


@dataclass(slots=True)
class Processes:
    """By session. What has ended is forgotten after a while, so that its output need not be kept for ever."""

    now: Callable[[], float] = time.monotonic
    _kept: dict[str, dict[str, Running]] = field(default_factory=dict, init=False)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def check_room(self, origin: Origin) -> None:
        """Raise ToolError if no further one may be started."""
        self._forget()
        kept = self._kept.get(origin.session_key, {})
        if len([one for one in kept.values() if one.ended_at is None]) >= MAX_RUNNING:
            raise ToolError(
                f"{MAX_RUNNING} processes run in the background already ({', '.join(kept)}): end one of them first."
            )

    def add(self, process: BackgroundProcess, command: str, cwd: str | None, origin: Origin) -> Running:
        kept = self._kept.setdefault(origin.session_key, {})
        for old in [one for one in kept.values() if one.ended_at is not None][: max(0, len(kept) - MAX_RUNNING + 1)]:
            del kept[old.id]
        running = Running(id=f"p{next(self._numbers)}", process=process, command=command, cwd=cwd)
        kept[running.id] = running
        return running

    def find(self, ident: str, origin: Origin) -> Running:
        """Raises ToolError, with the same text for another session's and for one that never was."""
        self._forget()
        kept = self._kept.get(origin.session_key, {})
        found = kept.get(ident)
        if found is None:
            there = f"there are {', '.join(kept)}" if kept else "there are none"
            raise ToolError(
                f"No process {ident[:20]!r} is known here: {there}. Those that ended long ago are forgotten."
            )
        return found

    def _forget(self) -> None:
        now = self.now()
        for session, kept in list(self._kept.items()):
            for one in list(kept.values()):
                if one.ended_at is None:
                    one.ended_at = now if has_ended(one.process) else None
                elif now - one.ended_at > KEPT_S:
                    del kept[one.id]
            if not kept:
                del self._kept[session]


def has_ended(process: BackgroundProcess) -> bool:
    try:
        return process.poll(1 << 62).result is not None
    except SandboxError:
        return True


class ProcessArgs(Args):
    id: Annotated[str, Field(max_length=40)]
    """As exec gave it."""
    action: Literal["poll", "write", "end"] = "poll"
    """poll: see its output and whether it runs. write: type input into it. end: end it."""
    input: Annotated[str, Field(max_length=MAX_INPUT)] = ""
    """For write: passed on as it is, without a line break."""
    newline: bool = False
    """For write: press Enter after input."""
    eof: bool = False
    """For write: close its input afterwards."""
    since: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    """Where the output to be shown begins, as an earlier answer said; the newest output if left out."""
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] | None = None
    """Wait up to so many seconds for it to end."""


class Process:
    name = "process"
    description = (
        "Look at, write to or end a process that exec started in the background. It ends with the session's sandbox, "
        "which closes after a quarter of an hour without any call."
    )
    args = ProcessArgs

    def __init__(self, controller: Controller, place_of: PlaceOf, processes: Processes, result_tokens: int) -> None:
        self._controller = controller
        self._place_of = place_of
        self._processes = processes
        self._page = 2 * result_tokens

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: ProcessArgs) -> str:
        return f"process({args.id}, {args.action})"

    async def run(self, args: ProcessArgs, origin: Origin) -> ToolResult:
        running = self._processes.find(args.id, origin)
        since = args.since
        if args.action == "write":
            since = await self._write(running, args, since, origin)
        elif args.input or args.newline or args.eof:
            raise ToolError(f"input, newline and eof go with action write, not {args.action}: nothing was done.")
        elif args.action == "end":
            await self._end(running.process, END_S if args.wait_s is None else args.wait_s)
        else:
            await self._controller.wait(running.process, self._place_of(origin), origin, args.wait_s or 0)
        return ToolResult(text=self._told(running, since))

    async def _write(self, running: Running, args: ProcessArgs, since: int | None, origin: Origin) -> int:
        """Where the output begins that came since."""
        typed = args.input + ("\n" if args.newline else "")
        if not typed and not args.eof:
            raise ToolError("There is nothing to write: give input, newline or eof.")
        if len(running.line) + len(typed) > MAX_INPUT + 1:
            raise ToolError(
                f"With what was written before, that is a line of over {MAX_INPUT:,} characters: write it to a file, "
                "and have the program read that."
            )
        before = running.process.poll(1 << 62)
        if before.result is not None:
            raise ToolError(f"Process {running.id} has ended, so nothing was written. {ending(before.result)}")
        place = self._place_of(origin)
        await self._typed(running, typed, args.eof, place, origin)
        await self._controller.wait(running.process, place, origin, ANSWER_S if args.wait_s is None else args.wait_s)
        return before.next if since is None else since

    async def _typed(self, running: Running, text: str, eof: bool, place: Workplace, origin: Origin) -> None:
        """In however many pieces a line is typed, it is decided on as what it becomes."""
        line, running.line = running.line, (running.line + text).rpartition("\n")[2]
        try:
            await self._controller.write_input(
                running.process, text.encode(), running.command, place, origin, cwd=running.cwd, eof=eof, line=line
            )
        except DeclinedError:
            running.line = line
            raise

    async def _end(self, process: BackgroundProcess, patience_s: float) -> None:
        await process.signal(signal.SIGTERM)
        if await process.wait(patience_s) is None:
            await process.signal(signal.SIGKILL)
            await process.wait(END_S)

    def _told(self, running: Running, since: int | None) -> str:
        """A page of output and where it ends, and what became of the process."""
        chunk = running.process.poll(0 if since is None else since)
        start = chunk.next - len(chunk.data)
        skipped = max(0, len(chunk.data) - self._page) if since is None else 0
        text, taken = _page(chunk.data[skipped : skipped + self._page], ended=chunk.result is not None)
        remarks = [_state(running, chunk.result)]
        if since is not None and chunk.dropped_bytes:
            remarks.append(f"{chunk.dropped_bytes:,} bytes before this are no longer kept")
        elif since is None and start + skipped:
            remarks.append(f"this is the end of {chunk.next:,} bytes of output")
        remarks.append(_position(start + skipped + taken, chunk))
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{'; '.join(remarks)}]"


def _page(data: bytes, *, ended: bool) -> tuple[str, int]:
    """The text, and how many bytes of it: a character whose end is still to come is left for the next page."""
    skip = next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(data[skip:])
    pending = len(decoder.getstate()[0])
    if pending and (ended or not text):
        return text + decoder.decode(b"", final=True), len(data)
    return text, len(data) - pending


def _state(running: Running, result: ExecResult | None) -> str:
    if result is None:
        return f"process {running.id} is running, for {time.monotonic() - running.since:.1f} s by now"
    if result.outcome is Outcome.LOST:
        return f"process {running.id} is gone: the sandbox that it ran in was closed"
    return f"process {running.id} has ended: {ending(result) or 'exit status 0'}"


def _position(shown_to: int, chunk: OutputChunk) -> str:
    if shown_to < chunk.next:
        return f"{chunk.next - shown_to:,} bytes more: since={shown_to}"
    return f"what comes next: since={shown_to}" if chunk.result is None else "that is all of its output"
