"""Runs of jobs: turns that nobody began, and how each of them ended (CRON-02)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from bubbles.bus import Address, InboundMessage, Kind, OutboundMessage, Trigger
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.cron.contract import Job
    from bubbles.gateway.metrics import Metrics

NOWHERE = "cron"
"""The channel of a job whose answer goes into the history alone. There is none of that name."""
DONE, SILENT, FAILED = "done", "silent", "failed"
_MARK = "job:"
TRIGGERS = {"job": Trigger.CRON, "heartbeat": Trigger.HEARTBEAT}


class JobRuns:
    """``run`` is for the service that knows when; what turns say passes ``sent`` on its way to the chats."""

    def __init__(self, metrics: Metrics, is_put_out: Callable[[Address], bool] = lambda _: False) -> None:
        """``is_put_out``: whether a chat is that of somebody who is not let in any more (CHAN-02)."""
        self._metrics = metrics
        self._is_put_out = is_put_out
        self._open: dict[str, asyncio.Future[str]] = {}
        self._spoken: set[str] = set()

    async def run(self, deliver: Callable[[InboundMessage], Awaitable[None]], job: Job, text: str) -> str:
        """One turn of the job's session; ``done``, ``silent`` or ``failed``. Raises BubblesError for one that writes to
        somebody who is not let in any more: it goes on obeying whom the owner has put out.
        """
        to = job.draft.deliver_to
        if to is not None and self._is_put_out(to):
            self._metrics.count("bubbles_job_runs_total", outcome=FAILED)
            raise BubblesError(
                f"it writes to the chat {to.chat_id!r} of {to.channel}, whose person channels.{to.channel}.allowFrom "
                f"does not name any more: remove it by 'bubbles cron rm {job.id}', or let that person in."
            )
        ticket = f"{_MARK}{uuid.uuid4().hex}"
        message = InboundMessage(
            address=to or Address(channel=NOWHERE, chat_id=job.id),
            sender=job.id,
            text=text,
            trigger=TRIGGERS[job.kind],
            session_key=job.session_key,
            ticket=ticket,
        )
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[ticket] = ended
        try:
            await deliver(message)
            outcome = await ended
        finally:
            self._open.pop(ticket, None)
            self._spoken.discard(ticket)
        self._metrics.count("bubbles_job_runs_total", outcome=outcome)
        return outcome

    def sent(self, message: OutboundMessage) -> None:
        """Look at what a turn says: whether it said anything, and how it ended."""
        for ticket in message.settles:
            if ticket.startswith(_MARK):
                self._hear(ticket, message)

    def _hear(self, ticket: str, message: OutboundMessage) -> None:
        if message.kind is not Kind.END:
            self._spoken.add(ticket)
            return
        outcome = FAILED if message.failed else DONE if ticket in self._spoken else SILENT
        waiting = self._open.get(ticket)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
