"""Appends to the timeline, from several processes at once, such that what is there stays whole."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bubbles.bus import Origin
from bubbles.controller.approvals.contract import Answer, Outcome
from bubbles.controller.policy.contract import Verdict
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline import events
from bubbles.controller.timeline.events import Ending, Event, Fields, Subject
from bubbles.controller.timeline.reading import TimelineReader
from bubbles.errors import BubblesError
from bubbles.sessions.lines import open_file

FOLDER = "timeline"
_OWNER = re.compile(r"[\w-]{0,64}", re.ASCII)

_log = logging.getLogger(__name__)


class Timeline:
    """The record of the gate, in ``<data_dir>/timeline/``, one file for each month in UTC.

    What must be on record before something happens raises BubblesError when it cannot be written: then it must not
    happen. Nothing is asked and nothing runs without a line that says so. What only tells of what was done never
    raises.

    Lines about people and refusals are on the disk (fsync) when a call returns; a power cut may take an allowed command
    that ran a moment before.
    """

    def __init__(
        self,
        data_dir: Path,
        redactor: Redactor,
        *,
        owner: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``owner`` is the id of this process's ``sandbox_backends.owner.Owner``: by it, a later start knows whether
        the one that asked a question still lives.
        """
        self.directory = data_dir / FOLDER
        self._redact = redactor.redact
        self._owner = owner
        self._now = now

    async def decided(self, subject: Subject) -> None:
        """A verdict that needs no person."""
        await asyncio.to_thread(self.record_decided, subject)

    def record_decided(self, subject: Subject) -> None:
        """``decided``, for who is in a thread already. Blocks on the disk."""
        if subject.decision.verdict is Verdict.ASK:
            raise ValueError("a person decides on this: record what is requested and what it is resolved to")
        declined = subject.decision.verdict is Verdict.DENY
        event = Event.AUTO_DECLINED if declined else Event.AUTO_RESOLVED
        self._record(event, subject, durable=declined)

    async def requested(self, subject: Subject, approval: str, timeout_s: float) -> None:
        """Before the card of this id is shown."""
        more: Fields = {"approval": approval, "timeout_s": timeout_s, "owner": self._owner}
        await asyncio.to_thread(self._record, Event.REQUESTED, subject, more, durable=True)

    async def resolved(self, subject: Subject, approval: str, answer: Answer) -> None:
        """Before the command runs, or is not run."""
        more: Fields = {"approval": approval, "outcome": str(answer.outcome), "by": answer.by}
        await asyncio.to_thread(self._record, Event.RESOLVED, subject, more, durable=True)

    async def started(self, subject: Subject) -> None:
        """What runs in the background has been started."""
        await self._noted(Event.STARTED, {**events.of_call(subject, self._redact), **_policy(subject)})

    async def finished(self, subject: Subject, ending: Ending) -> None:
        """What ran is over."""
        fields = {**events.of_call(subject, self._redact), **_policy(subject), **events.of_ending(ending, self._redact)}
        await self._noted(Event.FINISHED, fields)

    async def written(self, origin: Origin, backend: str, path: str, size_bytes: int, outcome: str = "") -> None:
        """A file has been written; or it is not known whether it has, as ``outcome`` then says."""
        fields: Fields = {"path": events.kept(path, self._redact), "size_bytes": size_bytes, "backend": backend}
        if outcome:
            fields["outcome"] = outcome
        await self._noted(Event.WRITTEN, {**events.of_origin(origin), **fields})

    async def _noted(self, event: Event, fields: Fields) -> None:
        """What is done is done, and its result the caller's, whether this can be written or not."""
        try:
            await asyncio.to_thread(self._append, event, fields, durable=False)
        except BubblesError as error:
            _log.warning("%s is not on record: %s", event, error)

    async def close_lost(self, alive: Callable[[str], bool]) -> int:
        """At a start: resolve as ``lost`` what was asked by owners that are not alive; how many that were (APPR-04).

        ``alive`` is told the owner's id. Nothing runs by this: no card outlives its process.
        """
        return await asyncio.to_thread(self._close_lost, alive)

    def _record(self, event: Event, subject: Subject, more: Fields | None = None, *, durable: bool) -> None:
        self._append(
            event,
            {
                **events.of_call(subject, self._redact),
                **events.of_decision(subject.decision, self._redact),
                **(more or {}),
            },
            durable=durable,
        )

    def _close_lost(self, alive: Callable[[str], bool]) -> int:
        lost = [fields for fields in _unresolved(self.directory) if not alive(str(fields.get("owner")))]
        for fields in lost:
            kept = {
                name: value for name, value in fields.items() if name not in ("time", "event", "timeout_s", "owner")
            }
            self._append(Event.RESOLVED, {**kept, "outcome": str(Outcome.LOST), "by": ""}, durable=True)
        return len(lost)

    def _append(self, event: Event, fields: Fields, *, durable: bool) -> None:
        moment = self._now()
        path = self.directory / f"{moment.astimezone(UTC):%Y-%m}.jsonl"
        line = json.dumps({"time": events.timestamp(moment), "event": str(event), **fields}, separators=(",", ":"))
        _log.info("timeline: %s", line)  # CORE-08; secrets are out of it, and it is one line of ASCII
        try:
            _append_line(path, line.encode("ascii") + b"\n", durable)
        except OSError as error:
            raise BubblesError(
                f"The timeline {path} cannot be written ({error.strerror or error}): mend that; "
                "nothing runs that is not on record."
            ) from error


def _policy(subject: Subject) -> Fields:
    return {"policy": str(subject.decision.policy)}


def _append_line(path: Path, line: bytes, durable: bool) -> None:
    """One whole line at the end of the file, or none."""
    fd = _opened(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # a crash cut the last one: what is left of it must not spoil this one
        try:
            if os.write(fd, line) != len(line):
                raise OSError(0, "there is no space for a whole line")
            if durable:
                os.fsync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    """The month's file, made with its directory if need be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_file(path)


def _unresolved(directory: Path) -> list[Fields]:
    """What was requested and never resolved, in the last two months: older cards were closed by many a start since.

    Lines that are not as we write them are passed over: a command in ``local`` could write some.
    """
    waiting: dict[tuple[str, str], Fields] = {}
    for entry in TimelineReader(directory, months=2, holding=b'"event":"approval_re').entries():
        call, approval, owner = (entry.fields.get(name) for name in ("call", "approval", "owner"))
        if not isinstance(call, str) or not isinstance(approval, str):
            continue
        if entry.fields["event"] == Event.REQUESTED and isinstance(owner, str) and _OWNER.fullmatch(owner):
            waiting[call, approval] = entry.fields
        elif entry.fields["event"] == Event.RESOLVED:
            waiting.pop((call, approval), None)
    return list(waiting.values())
