"""Decide, ask, act, record: the one way from a tool to a sandbox."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from bubbles.bus import Origin
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.background import BackgroundWatch
from bubbles.controller.consent import Consent
from bubbles.controller.contract import Execution, GateError, Workplace
from bubbles.controller.policy.contract import Command, Decision, Mode
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.sandboxes import Lease, Sandboxes
from bubbles.controller.timeline.events import Ending, Subject
from bubbles.controller.timeline.writing import Timeline
from bubbles.controller.whereabouts import real_path
from sandbox_backends.contract import (
    MAX_READ_BYTES,
    BackgroundProcess,
    DirListing,
    ExecRequest,
    ExecResult,
    FileStat,
    OnOutput,
)
from sandbox_backends.errors import SandboxError

INPUT_S = 10.0
"""How long a program may leave its input unread before writing to it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A background process, and the decision that let it start."""

    process: BackgroundProcess
    decision: Decision
    reset: str | None
    """As in ``Execution``."""
    warnings: tuple[str, ...] = ()
    """As in ``Execution``."""


class Controller:
    """All calls belong to one event loop. It keeps nothing of a call: who asks is told with each (B046)."""

    def __init__(
        self,
        *,
        sandboxes: Sandboxes,
        rulebook: Callable[[str], Rulebook],
        broker: ApprovalBroker,
        timeline: Timeline,
        mode: Mode = Mode.ASK,
        watch: BackgroundWatch | None = None,
    ) -> None:
        """``rulebook`` gives the rules in force for a session's key. Without a ``watch`` the end of what runs in the
        background is not recorded.
        """
        self._sandboxes = sandboxes
        self._rulebook = rulebook
        self._consent = Consent(broker, timeline)
        self._timeline = timeline
        self._mode = mode
        self._watch = watch
        self._untold: dict[str, str] = {}
        """By session, why its place was reset, where a file operation was the first to find out."""

    def decide(self, request: ExecRequest, place: Workplace, origin: Origin) -> Decision:
        """What would become of the request, without doing any of it."""
        # Its tables take a tenth of a second to import: a turn without a command does without.
        from bubbles.controller.policy.decide import decide

        context = place.context(place.directory(request.cwd), self._mode, real_path)
        return decide(Command(argv=request.argv), context, self._rulebook(origin.session_key))

    async def exec(
        self, request: ExecRequest, place: Workplace, origin: Origin, *, on_output: OnOutput | None = None
    ) -> Execution:
        """Run it if it may be run. Raises ``DeclinedError``, or what the sandbox raises."""
        subject, request = await self._permit(request, place, origin)
        async with self._on_record(subject) as ending, self._leased(place) as lease:
            result = await lease.session.exec(request, on_output=on_output)
            ending.append(Ending(outcome=str(result.outcome), exit_code=result.exit_code, duration_s=result.duration_s))
            return Execution(
                result=result,
                decision=subject.decision,
                reset=self._reset(place),
                warnings=lease.session.warnings,
                lost=lease.session.lost,
            )

    async def start(self, request: ExecRequest, place: Workplace, origin: Origin) -> Started:
        """Start it in the background if it may be run; it ends with the sandbox. Raises as ``exec`` does."""
        subject, request = await self._permit(request, place, origin)
        async with self._on_record(subject), AsyncExitStack() as stack:
            lease = await stack.enter_async_context(self._leased(place))
            process = await lease.session.start(request)
            try:
                await self._timeline.started(subject)
            except BaseException:  # nobody would know of it, so nobody could end it
                await process.signal(signal.SIGKILL)
                raise
            if self._watch is not None:
                self._watch.follow(subject, process, stack.pop_all())
            return Started(
                process=process,
                decision=subject.decision,
                reset=self._reset(place),
                warnings=lease.session.warnings,
            )

    async def write_input(
        self,
        process: BackgroundProcess,
        data: bytes,
        command: str,
        place: Workplace,
        origin: Origin,
        *,
        cwd: str | None = None,
        eof: bool = False,
        line: str = "",
    ) -> None:
        """Type ``data`` into a process of ``start`` if it may be: to a shell, it is a command like any other.

        ``command`` and ``cwd`` are what the process was started with. ``eof`` closes its input; that alone asks nobody.
        ``line`` is what was typed before it into the same line: what is decided on, and shown, is the line so far.
        Raises as ``exec`` does, FileError when the process no longer reads, GateError when it does not for ``INPUT_S``.
        """
        if not data:
            await self._fed(process, data, eof)
            return
        text = line + data.decode("utf-8", "surrogateescape")
        directory = place.directory(cwd)

        def judged() -> Subject:
            from bubbles.controller.policy.feeding import decide_input

            context = place.context(directory, self._mode, real_path)
            decision = decide_input(text, command, context, self._rulebook(origin.session_key))
            return self._recorded(Command.of_script(text), directory, decision, place, origin)

        subject = await asyncio.to_thread(judged)
        await self._consent.settle(subject, place.network)
        async with self._on_record(subject) as ending:
            await self._fed(process, data, eof)
            ending.append(Ending(outcome="written"))

    async def wait(
        self, process: BackgroundProcess, place: Workplace, origin: Origin, timeout_s: float
    ) -> ExecResult | None:
        """Its result, or None when it still runs after ``timeout_s``. While it is waited for its sandbox is in use, so
        that it is not closed as idle.
        """
        del origin
        if (ended := await process.wait(0)) is not None:
            return ended
        async with self._leased(place):
            return await process.wait(timeout_s)

    def open_ahead(self, place: Workplace, on_failure: Callable[[SandboxError], None] = lambda _: None) -> None:
        """Begin to open the sandbox, so that the first tool call need not wait for it (SBX-12)."""
        self._sandboxes.open_ahead(place.backend, place.spec, on_failure)

    async def close(self, session_key: str) -> None:
        """Close the session's sandbox, if one is open, and with it what runs there."""
        await self._sandboxes.close(session_key)
        self._untold.pop(session_key, None)

    async def read_file(
        self, path: str, place: Workplace, origin: Origin, *, offset: int = 0, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        """Inside the roots nobody is asked; outside them the sandbox refuses (DEC-13, DEC-14)."""
        del origin  # reading is not recorded; who asks is told with each call all the same
        async with self._leased(place) as lease:
            return await lease.session.read_file(path, offset=offset, max_bytes=max_bytes)

    async def write_file(
        self, path: str, data: bytes, place: Workplace, origin: Origin, *, mode: int | None = None
    ) -> None:
        """As ``read_file``; what was written is recorded."""
        outcome = ""
        try:
            async with self._leased(place) as lease:
                outcome = "cancelled"  # from here on it may have been done
                await lease.session.write_file(path, data, mode=mode)
                outcome = "written"
        except asyncio.CancelledError:
            if outcome:
                await asyncio.shield(self._written(origin, place, path, len(data), outcome))
            raise
        await asyncio.shield(self._written(origin, place, path, len(data), outcome))

    async def _written(self, origin: Origin, place: Workplace, path: str, size_bytes: int, outcome: str) -> None:
        unknown = "" if outcome == "written" else outcome
        await self._timeline.written(origin, place.backend, place.directory(path), size_bytes, unknown)

    async def list_dir(self, path: str, place: Workplace, origin: Origin) -> DirListing:
        """As ``read_file``."""
        del origin
        async with self._leased(place) as lease:
            return await lease.session.list_dir(path)

    async def stat(self, path: str, place: Workplace, origin: Origin) -> FileStat:
        """As ``read_file``; a link in the last place is not followed."""
        del origin
        async with self._leased(place) as lease:
            return await lease.session.stat(path)

    @asynccontextmanager
    async def _leased(self, place: Workplace) -> AsyncIterator[Lease]:
        async with self._sandboxes.use(place.backend, place.spec) as lease:
            if lease.reset is not None:
                self._untold[place.spec.session] = lease.reset
            yield lease

    def _reset(self, place: Workplace) -> str | None:
        """Why the state of the session's earlier sandbox is gone, told once, with the first command after it."""
        return self._untold.pop(place.spec.session, None)

    @staticmethod
    async def _fed(process: BackgroundProcess, data: bytes, eof: bool) -> None:
        try:
            async with asyncio.timeout(INPUT_S):
                await process.write(data, eof=eof)
        except TimeoutError:
            raise GateError(
                f"The process has not read its input for {INPUT_S:g} seconds, so not all of it may be written: "
                "look at what it does."
            ) from None

    async def _permit(self, request: ExecRequest, place: Workplace, origin: Origin) -> tuple[Subject, ExecRequest]:
        """Decide and ask. The request that comes back differs from the one given in nothing but an absolute ``cwd``.

        What is decided on is the argv: an environment or an input of the request's own, which could make another
        command of it, is an error of the caller's.
        """
        if request.env is not None or request.stdin is not None:
            raise ValueError("a command at the gate has the session's environment and no input of its own")
        # In a thread: a hostile text may take some tens of milliseconds, and links are looked up on the disk.
        subject = await asyncio.to_thread(self._judged, request, place, origin)
        await self._consent.settle(subject, place.network)
        return subject, replace(request, cwd=subject.cwd)

    def _judged(self, request: ExecRequest, place: Workplace, origin: Origin) -> Subject:
        decision = self.decide(request, place, origin)
        return self._recorded(Command(argv=request.argv), place.directory(request.cwd), decision, place, origin)

    def _recorded(
        self, command: Command, directory: str, decision: Decision, place: Workplace, origin: Origin
    ) -> Subject:
        """A verdict that needs no person is on record before anything else happens. Blocks on the disk."""
        subject = Subject(origin=origin, command=command, cwd=directory, backend=place.backend, decision=decision)
        self._consent.record(subject)
        return subject

    @asynccontextmanager
    async def _on_record(self, subject: Subject) -> AsyncIterator[list[Ending]]:
        """The last ending that is put in the list is recorded; what breaks in between is recorded as that."""
        endings: list[Ending] = []
        try:
            yield endings
        except BaseException as error:
            stopped = isinstance(error, asyncio.CancelledError)
            said = str(error) if isinstance(error, SandboxError) else type(error).__name__
            endings.append(Ending(outcome="cancelled") if stopped else Ending(outcome="error", error=said))
            raise
        finally:
            if endings:
                await asyncio.shield(self._timeline.finished(subject, endings[-1]))
