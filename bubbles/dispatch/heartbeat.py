"""``/heartbeat``: how often the assistant looks by itself whether there is something to say (HB-01, HB-02).

Underneath it is a job of the session, of a kind that no tool sees. HEARTBEATS.md in the desk says what to look after.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from bubbles.agent.parts import HEARTBEATS
from bubbles.bus import Origin
from bubbles.cron.contract import Job, JobError, JobKind, Schedule, ScheduleKind
from bubbles.cron.shown import described, due_of, last_of, schedule_of
from bubbles.dispatch.contract import CommandError
from bubbles.dispatch.notices import CLI
from bubbles.sessions import beneath

if TYPE_CHECKING:
    from bubbles.cron.store import JobStore
    from bubbles.sessions.session import Sessions

TEMPLATE = """\
# Heartbeats

What to look after while the heartbeat is on, a line each: what it is, how often a look is worth it, and when to speak
up. Where nothing is listed, there is nothing to do and nothing to say.

## To look after

## Told already

What the person knows, with the date, so that nothing is told twice.
"""
LEAST_S, MOST_S = 60, 86_400
OFF = "off"
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
WRITTEN = {"min": "m"}
"""In place of what a schedule does not know."""
_SPAN = re.compile(r"([0-9]{1,9})\s*(s|m|min|h|d)?")
_ASKED = "30m, 2h, 30 (minutes), or off"
NOT_HERE = "This program keeps no jobs, so there is no heartbeat here: `bubbles agent` and `bubbles gateway` have it."
UNREADABLE = "they cannot be read: `bubbles cron list` says why"
ONLY_WITH_GATEWAY = "It beats only while `bubbles gateway` runs, and none runs now."

Running = Callable[[], int | None]
"""The process id of the gateway of this data directory, or None. Looks at the disk."""


def _utc() -> datetime:
    return datetime.now(UTC)


class Heartbeats(Protocol):
    """What slash commands need of the jobs of a session."""

    async def show(self, origin: Origin) -> str:
        """How it stands with the heartbeat of the origin's session."""
        ...

    async def set(self, origin: Origin, text: str) -> str:
        """Sets it for the origin's session, to write to the origin's chat. Raises CommandError, JobError."""
        ...

    async def beside(self, session_key: str) -> tuple[list[str], list[str]]:
        """For ``/status``: a line about the heartbeat if it is on, and one for each job."""
        ...


class SessionHeartbeats:
    """``Heartbeats`` over the store of the jobs."""

    def __init__(
        self, store: JobStore, sessions: Sessions, running: Running, clock: Callable[[], datetime] = _utc
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._running = running
        self._clock = clock

    async def interval(self, session_key: str) -> str:
        """How often it is, for the prompt, such as ``30m``; empty if it is off (HB-03). A file of jobs that cannot be
        read is no reason for a turn to fail: it is reported elsewhere.
        """
        try:
            job = await self._on(session_key)
        except JobError:
            return ""
        return "" if job is None else job.draft.schedule.text

    async def show(self, origin: Origin) -> str:
        job = await self._on(origin.session_key)
        if job is None:
            return (
                "The heartbeat is off. /heartbeat 30m turns it on: that often the assistant looks at "
                f"{HEARTBEATS} in this session's desk, and writes only if there is something to say."
            )
        now = self._clock()
        last = f" Last: {told}." if (told := last_of(job, now)) else ""
        return (
            f"The heartbeat is on, {schedule_of(job.draft.schedule)}, {due_of(job, now)}. "
            f"{_goes(job, origin)}{last} {await self._gateway()}"
        )

    async def set(self, origin: Origin, text: str) -> str:
        key = origin.session_key
        if text.casefold() == OFF:
            was = await self._store.heartbeat(key)
            await self._store.set_heartbeat(key, None, None)
            return "The heartbeat is off." if was is not None else "The heartbeat is off, as it was."
        every = Schedule(kind=ScheduleKind.EVERY, text=interval_of(text))
        session = await self._sessions.open(key)
        # First: a heartbeat that is on has its file.
        made = await asyncio.to_thread(
            beneath.write_bytes, session.folders.desk, HEARTBEATS, TEMPLATE.encode(), replace=False
        )
        here = None if origin.address.channel == CLI else origin.address
        job = await self._store.set_heartbeat(key, every, here)
        if job is None:
            raise AssertionError("a heartbeat that was set is not there")
        file = f"{HEARTBEATS} in this session's desk {'was made and ' if made else ''}says what to look after"
        return (
            f"The heartbeat is on, {schedule_of(job.draft.schedule)}, {due_of(job, self._clock())}. "
            f"{_goes(job, origin)} {file}: edit it, or say what belongs there. {await self._gateway()}"
        )

    async def beside(self, session_key: str) -> tuple[list[str], list[str]]:
        listing = await self._store.listing()
        if not listing.readable:
            return [], [UNREADABLE]
        now = self._clock()
        own = [job for job in listing.jobs if job.session_key == session_key]
        beats = [
            f"{schedule_of(job.draft.schedule)}, {due_of(job, now)}"
            for job in own
            if job.kind is JobKind.HEARTBEAT and job.draft.enabled
        ]
        return beats, described(own, now)

    async def _on(self, session_key: str) -> Job | None:
        job = await self._store.heartbeat(session_key)
        return job if job is not None and job.draft.enabled else None

    async def _gateway(self) -> str:
        pid = await asyncio.to_thread(self._running)
        return ONLY_WITH_GATEWAY if pid is None else "The gateway runs."


def interval_of(text: str) -> str:
    """What a person wrote, as a schedule has it: ``30`` is ``30m``. Raises CommandError (HB-01)."""
    found = _SPAN.fullmatch(text.casefold().strip())
    if found is None:
        raise CommandError(f"/heartbeat {text[:40]} is not understood: write {_ASKED}.")
    number, unit = int(found[1]), found[2] or "m"
    if not LEAST_S <= number * SECONDS[unit] <= MOST_S:
        raise CommandError(f"/heartbeat {text[:40]} is out of bounds: it is one minute at least and a day at most.")
    return f"{number}{WRITTEN.get(unit, unit)}"


def _goes(job: Job, origin: Origin) -> str:
    to = job.draft.deliver_to
    if to is None:
        return "What it has to say is in this session's history alone: set it in a chat to get it there."
    if to == origin.address:
        return "What it has to say comes to this chat."
    return f"What it has to say goes to another chat ({to.channel})."
