"""Jobs of this session (TOOL-06). Never there in a turn that nobody began: a job must not make jobs (CRON-06)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from bubbles.bus import CLI, Address, Origin, Trigger
from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import Job, JobChange, JobDraft, JobError, Jobs, Schedule, ScheduleKind
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.files import quoted

MAX_MESSAGE = 8_000
MAX_NAME = 100
MAX_WHEN = 200
MAX_ID = 64
MAX_LISTED = 100

Text = Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
When = Annotated[str, Field(min_length=1, max_length=MAX_WHEN)]


class CronArgs(Args):
    action: Literal["add", "list", "change", "remove"]
    id: Annotated[str, Field(max_length=MAX_ID)] | None = None
    """Of the job, for change and remove; list shows it."""
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None
    """A few words for people."""
    message: Text | None = None
    """What you will be told when the job is due, as if a person wrote it then: say all that you need to know."""
    at: When | None = None
    """Once: a moment such as 2026-05-01T09:00, in zone, or with an offset of its own; or from now on: +20m, +2h."""
    every: When | None = None
    """Again and again: 30m, 2h, 1d."""
    cron: When | None = None
    """By a line of five fields, such as 0 9 * * 1-5, in zone."""
    zone: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None
    """Time zone, such as Europe/Berlin; the machine's own if left out."""
    deliver: bool | None = None
    """Whether your reply goes to this chat then; yes if left out of add. Without it, and at a terminal, only the
    history has it."""
    delete_after_run: bool | None = None
    """Whether the job goes once it has run."""
    enabled: bool | None = None


class Cron:
    name = "cron"
    description = (
        "Jobs of this session: messages that begin a turn of yours at a time. One of at, every and cron says when. "
        "list shows the jobs with their ids; change sets what you name and leaves the rest."
    )
    args = CronArgs

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def offered(self, origin: Origin) -> bool:
        return origin.trigger is Trigger.USER

    def hint(self, args: CronArgs) -> str:
        what = args.name or args.id or ""
        return f"cron({args.action}{', ' + quoted(what) if what else ''})"

    async def run(self, args: CronArgs, origin: Origin) -> ToolResult:
        try:
            match args.action:
                case "add":
                    return _told("Added", await self._jobs.add(_draft(args, origin), origin))
                case "list":
                    return ToolResult(text=_listed(await self._jobs.list(origin)))
                case "change":
                    return _told("Changed", await self._jobs.change(_id(args), _change(args, origin), origin))
            await self._jobs.remove(job := _id(args), origin)
        except JobError as error:
            raise ToolError(str(error)) from None
        return ToolResult(text=f"Removed job {job}.")


def _id(args: CronArgs) -> str:
    if not args.id:
        raise ToolError(f"{args.action} needs the id of a job: list shows them.")
    return args.id


def _draft(args: CronArgs, origin: Origin) -> JobDraft:
    if args.id is not None:
        raise ToolError("add gives the job its id: leave id out, or use change.")
    if args.message is None or not args.message.strip():
        raise ToolError("add needs a message: what you will be told when the job is due.")
    schedule = _schedule(args)
    if schedule is None:
        raise ToolError("add needs to know when: give one of at, every and cron.")
    once = schedule.kind is ScheduleKind.AT
    return JobDraft(
        name=args.name or " ".join(args.message.split())[:MAX_NAME],
        message=args.message,
        schedule=schedule,
        deliver_to=None if args.deliver is False else _chat(origin),
        delete_after_run=once if args.delete_after_run is None else args.delete_after_run,
        enabled=args.enabled is not False,
    )


def _change(args: CronArgs, origin: Origin) -> JobChange:
    change = JobChange(
        name=args.name,
        message=args.message,
        schedule=_schedule(args),
        deliver_to=_chat(origin) if args.deliver else None,
        deliver_nowhere=args.deliver is False,
        delete_after_run=args.delete_after_run,
        enabled=args.enabled,
    )
    if change == JobChange():
        raise ToolError("change needs something to set: name, message, when, deliver, delete_after_run or enabled.")
    return change


def _chat(origin: Origin) -> Address | None:
    """Where a reply can go: nobody sits at a terminal by the clock."""
    return None if origin.address.channel == CLI else origin.address


def _schedule(args: CronArgs) -> Schedule | None:
    given = [
        (kind, text)
        for kind, text in ((ScheduleKind.AT, args.at), (ScheduleKind.EVERY, args.every), (ScheduleKind.CRON, args.cron))
        if text is not None
    ]
    if len(given) > 1:
        raise ToolError(f"{' and '.join(kind for kind, _ in given)} exclude each other: give one of them.")
    if not given:
        if args.zone is not None:
            raise ToolError("zone belongs to at or cron: give one of them with it.")
        return None
    kind, text = given[0]
    if kind is ScheduleKind.EVERY and args.zone is not None:
        raise ToolError("zone has no meaning with every: leave it out.")
    return Schedule(kind=kind, text=text.strip(), zone=args.zone)


def _told(done: str, job: Job) -> ToolResult:
    return ToolResult(text=f"{done}: {_line(job)}")


def _listed(jobs: tuple[Job, ...]) -> str:
    if not jobs:
        return "There are no jobs in this session."
    lines = [_line(job) for job in jobs[:MAX_LISTED]]
    if len(jobs) > MAX_LISTED:
        lines.append(f"and {len(jobs) - MAX_LISTED} more")
    return "\n".join(lines)


def _line(job: Job) -> str:
    draft = job.draft
    zone = f" {draft.schedule.zone}" if draft.schedule.zone else ""
    due = "never: it is off" if not draft.enabled else _moment(job.next_run)
    last = (
        "" if job.last_run is None else f"; last {_moment(job.last_run)} {shown_line(job.last_outcome[:40])}".rstrip()
    )
    return (
        f"{job.id} {quoted(draft.name[:MAX_NAME])}, {draft.schedule.kind} {shown_line(draft.schedule.text)}{zone}, "
        f"next {due}{last}"
    )


def _moment(moment: datetime | None) -> str:
    return "never: it is over" if moment is None else moment.isoformat(timespec="minutes")
