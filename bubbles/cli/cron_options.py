"""What a person said of a job on the command line, as the jobs have it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import typer

from bubbles.cli.report import complain

if TYPE_CHECKING:
    from bubbles.bus import Address
    from bubbles.config.schema import Settings
    from bubbles.cron.contract import Job, JobChange, JobError, Schedule
    from bubbles.cron.store import JobStore

T = TypeVar("T")

DEFAULT_SESSION = "default"


def name_of(message: str) -> str:
    """What a job is called that was given no name: the beginning of what it says."""
    from bubbles.cron.entries import MAX_NAME

    return " ".join(message.split())[:MAX_NAME]


def schedule_of(at: str | None, every: str | None, line: str | None, zone: str | None) -> Schedule | None:
    """None: nothing says when. Whoever keeps the job looks at what it says. Raises typer.BadParameter."""
    from bubbles.cron.contract import Schedule, ScheduleKind

    ways = ((ScheduleKind.AT, at), (ScheduleKind.EVERY, every), (ScheduleKind.CRON, line))
    said = [(kind, text) for kind, text in ways if text is not None]
    if len(said) > 1:
        raise typer.BadParameter(f"{' and '.join(f'--{kind}' for kind, _ in said)} exclude each other: give one")
    if not said:
        return None
    kind, text = said[0]
    if kind is ScheduleKind.EVERY and zone is not None:
        raise typer.BadParameter("--zone has no meaning with --every: leave it out")
    return Schedule(kind=kind, text=text.strip(), zone=zone)


def in_zone(change: JobChange, job: Job, zone: str | None) -> JobChange:
    """The change, where only a zone was given for when the job is due: its own schedule in that zone."""
    from bubbles.cron.contract import ScheduleKind

    if zone is None or change.schedule is not None:
        return change
    if job.draft.schedule.kind is ScheduleKind.EVERY:
        raise typer.BadParameter("--zone has no meaning for this job, which runs every so often: leave it out")
    return replace(change, schedule=replace(job.draft.schedule, zone=zone))


def address_of(to: str | None, settings: Settings) -> Address | None:
    """A channel that there is, and a chat; a warning on stderr if the channel is not on."""
    if to is None:
        return None
    from bubbles.bus import Address
    from bubbles.channels.registry import manifests, settings_of

    names = [manifest.name for manifest in manifests()]
    channel, _, chat = to.partition(":")
    if channel not in names:
        raise typer.BadParameter(f"--to {to[:40]!r} names no channel that there is: take one of {', '.join(names)}")
    if not chat.strip():
        raise typer.BadParameter(f"--to {to[:40]!r} names no chat: write {channel}:CHAT, with the chat's id")
    if not settings_of(settings.channels, channel).enabled:
        complain(
            f"--to: the channel {channel} is not on, so nothing can be sent there: set channels.{channel}.enabled, or "
            f"run 'bubbles channels login {channel}'."
        )
    return Address(channel=channel, chat_id=chat)


def session_of(address: Address | None, settings: Settings) -> str:
    """That of the chat, as it would be for a message of a job for it; without a chat the command line's."""
    from bubbles.bus import InboundMessage, Trigger
    from bubbles.sessions.key import cli_key, key_of

    if address is None:
        return cli_key(DEFAULT_SESSION)
    message = InboundMessage(address=address, sender="cron", text="", trigger=Trigger.CRON)
    return key_of(message, settings.channels.session_mode, settings.channels.identities)


async def known(work: Awaitable[T], job_id: str) -> T:
    """``work``, whose word for a job that there is not is that of the command line, which sees all sessions."""
    from bubbles.cron.contract import UnknownJobError

    try:
        return await work
    except UnknownJobError as error:
        raise _unknown(job_id) from error


async def found(store: JobStore, job_id: str) -> Job:
    """The job as it is now. Raises JobError."""
    from bubbles.cron.contract import JobsFileError

    listing = await store.listing()
    job = next((job for job in listing.jobs if job.id == job_id), None)
    if job is not None:
        return job
    if not listing.readable:
        raise JobsFileError(" ".join(listing.problems))
    raise _unknown(job_id)


def _unknown(job_id: str) -> JobError:
    from bubbles.cron.contract import JobError

    return JobError(f"There is no job {job_id[:40]!r}: 'bubbles cron list' shows those that there are.")


def check_heartbeat(job: Job, change: JobChange) -> None:
    """What it says is the program's own, and it is no job of its session (HB-01). Raises JobError."""
    from bubbles.cron.contract import JobError, JobKind

    if job.kind is JobKind.HEARTBEAT and (change.name, change.message, change.delete_after_run) != (None, None, None):
        raise JobError(f"{job.id} is a heartbeat: of it --every, --to and --nowhere can be set, and nothing else.")
