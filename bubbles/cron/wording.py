"""What a turn is told that a job begins (CRON-02). Nothing in it but the message is a person's. Pure."""

from __future__ import annotations

from datetime import datetime

from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import Job, JobKind
from bubbles.cron.due import Begun
from bubbles.cron.entries import MAX_NAME
from bubbles.cron.spans import in_words
from bubbles.cron.zones import zone_of

ALONE = "Nobody wrote it just now, nobody is waiting, and nobody can be asked."


def text_of(begun: Begun) -> str:
    """A line of the program, and the message of the job."""
    job = begun.job
    if job.kind is JobKind.HEARTBEAT:
        return (
            f"[Written by the program: the heartbeat of this session, every {shown_line(job.draft.schedule.text)}. "
            f"{ALONE} Go through what HEARTBEATS.md in your prompt says to look after. {_goes(job)} Unless there is "
            "something that the person should hear of now, call stay_silent: that ends this turn without a word.]"
        )
    name = shown_line(job.draft.name[:MAX_NAME]).replace('"', "'").translate(_NO_BRACKETS)
    return (
        f'[Written by the program: the scheduled job {job.id} "{name}" is due. {ALONE} {_when(begun)}{_goes(job)} '
        "If there is nothing to say, call stay_silent: that ends this turn without a word. The job's message:]\n\n"
        f"{job.draft.message}"
    )


_NO_BRACKETS = str.maketrans("[]", "()")
"""So that no name ends the line of the program."""


def _when(begun: Begun) -> str:
    if begun.due is None:
        return "A person asked for this run, so it is not at its usual time. "
    if not begun.late:
        return ""
    return (
        f"It is late by {in_words(begun.late)}: it was to run at {_local(begun.job, begun.due)}, and this program did "
        "not run then. "
    )


def _local(job: Job, moment: datetime) -> str:
    schedule = job.draft.schedule
    zone = f" {schedule.zone}" if schedule.zone else ""
    return f"{moment.astimezone(zone_of(schedule.zone)):%Y-%m-%d %H:%M}{zone}"


def _goes(job: Job) -> str:
    to = job.draft.deliver_to
    if to is None:
        return "Your reply is kept in this session's history alone; no chat gets it."
    chat = shown_line(to.chat_id[:MAX_NAME]).translate(_NO_BRACKETS)
    return f"Your reply goes to the chat {shown_line(to.channel[:MAX_NAME])}:{chat}."
