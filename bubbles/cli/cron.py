"""``bubbles cron``: jobs and heartbeats of all sessions (CRON-01)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli import cron_options as given
from bubbles.cli.report import HELP, complain, print_json, print_table, run, session_key, visible

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    from bubbles.config.schema import Settings
    from bubbles.cron.contract import Job
    from bubbles.cron.store import JobStore

    T = TypeVar("T")

app = typer.Typer(
    help="Jobs: messages that begin a turn of the assistant at a time, and heartbeats.",
    no_args_is_help=True,
    context_settings=HELP,
)

NO_GATEWAY = "jobs run only while 'bubbles gateway' does, and none runs for this data directory now."

Message = Annotated[
    str | None,
    typer.Option("--message", "-m", metavar="TEXT", help="What the assistant is told when the job is due."),
]
At = Annotated[str | None, typer.Option("--at", metavar="WHEN", help="Once, such as 2026-05-01T09:00.")]
Every = Annotated[str | None, typer.Option("--every", metavar="SPAN", help="Again and again: 90s, 30m, 2h, 1d.")]
Line = Annotated[str | None, typer.Option("--cron", metavar="LINE", help="By five fields, such as '0 9 * * 1-5'.")]
Zone = Annotated[
    str | None,
    typer.Option(
        "--zone", metavar="Z", help="Of --at and --cron, such as Europe/Berlin.", show_default="the machine's"
    ),
]
Name = Annotated[str | None, typer.Option("--name", metavar="N", help="A few words for people.")]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CHANNEL:CHAT",
        help="Where the reply goes, such as telegram:12345.",
        show_default="the session's history alone",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Of the job, as list shows it.", show_default=False)]


@app.command()
def add(
    message: Message = None,
    at: At = None,
    every: Every = None,
    line: Line = None,
    zone: Zone = None,
    name: Name = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            "-s",
            metavar="NAME",
            parser=session_key,
            help="Whose turn it begins.",
            show_default="that of the chat in --to, else default",
        ),
    ] = None,
    to: To = None,
    delete_after_run: Annotated[bool, typer.Option("--delete-after-run", help="The job goes once it has run.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="It does not run until it is enabled.")] = False,
    as_json: Json = False,
) -> int:
    """Make a job: a message that begins a turn at a time. Give one of --at, --every and --cron.

    Exit status 0 if it was made, 2 if it cannot be as it was asked for.
    """
    if message is None or not message.strip():
        raise typer.BadParameter("the job needs a message: say what the assistant is told, with --message TEXT")
    schedule = given.schedule_of(at, every, line, zone)
    if schedule is None:
        raise typer.BadParameter("the job needs to know when: give one of --at, --every and --cron")
    settings, store = _opened()
    from bubbles.cron.contract import JobDraft

    address = given.address_of(to, settings)
    draft = JobDraft(
        name=given.name_of(message) if name is None else name,
        message=message,
        schedule=schedule,
        deliver_to=address,
        delete_after_run=delete_after_run,
        enabled=not disabled,
    )
    job = run(store.add(draft, session or given.session_of(address, settings)))
    _told("Added", job, as_json=as_json)
    _note_gateway(settings, job)
    return 0


@app.command("list")
def show(as_json: Json = False) -> int:
    """Show the jobs and heartbeats of all sessions. Exit status 1 if the file of jobs cannot be read."""
    from bubbles.cron import shown

    settings, store = _opened()
    listing = run(store.listing())
    for problem in listing.problems:
        complain(problem)
    if as_json:
        found = {
            "gateway": _gateway(settings) is not None,
            "jobs": [shown.as_json(job) for job in listing.jobs],
            "problems": list(listing.problems),
        }
        print_json(found)
    elif listing.jobs:
        now = datetime.now(UTC)
        print_table(
            ("ID", "NAME", "WHEN", "NEXT", "LAST", "SESSION", "TO", "STATE"), [_row(job, now) for job in listing.jobs]
        )
        if any(job.draft.enabled for job in listing.jobs) and _gateway(settings) is None:
            complain(NO_GATEWAY)
    elif not listing.problems:
        print("There are no jobs: 'bubbles cron add' makes one.")
    return 0 if listing.readable else 1


@app.command()
def edit(
    job_id: Id,
    message: Message = None,
    at: At = None,
    every: Every = None,
    line: Line = None,
    zone: Zone = None,
    name: Name = None,
    to: To = None,
    nowhere: Annotated[bool, typer.Option("--nowhere", help="The reply goes to the history alone.")] = False,
    delete_after_run: Annotated[
        bool | None, typer.Option("--delete-after-run/--keep", help="Whether the job goes once it has run.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Change what is named of a job, and leave the rest. --zone alone gives the same time in another zone."""
    if to is not None and nowhere:
        raise typer.BadParameter("--to and --nowhere exclude each other: give one of them")
    settings, store = _opened()
    from bubbles.cron.contract import JobChange

    change = JobChange(
        name=name,
        message=message,
        schedule=None if at is every is line is None else given.schedule_of(at, every, line, zone),
        deliver_to=given.address_of(to, settings),
        deliver_nowhere=nowhere,
        delete_after_run=delete_after_run,
    )

    async def changed() -> Job:
        found = await given.found(store, job_id)
        given.check_heartbeat(found, change)
        return await given.known(store.change(job_id, given.in_zone(change, found, zone), None), job_id)

    if change == JobChange() and zone is None:
        raise typer.BadParameter("nothing is to be changed: name it, such as --every 2h")
    job = run(changed())
    _told("Changed", job, as_json=as_json)
    return 0


@app.command("rm")
def remove(job_id: Id, as_json: Json = False) -> int:
    """Remove a job. That of a heartbeat turns it off."""
    _, store = _opened()
    _told("Removed", _done(store.remove(job_id), job_id), as_json=as_json)
    return 0


@app.command()
def enable(job_id: Id, as_json: Json = False) -> int:
    """Let a job run again when it is due."""
    job, settings = _switched(job_id, enabled=True)
    _told("Enabled", job, as_json=as_json)
    _note_gateway(settings, job)
    return 0


@app.command()
def disable(job_id: Id, as_json: Json = False) -> int:
    """Keep a job from running until it is enabled, but for 'bubbles cron run -f'."""
    job, _ = _switched(job_id, enabled=False)
    _told("Disabled", job, as_json=as_json)
    return 0


@app.command("run")
def run_now(
    job_id: Id,
    force: Annotated[bool, typer.Option("--force", "-f", help="Even if it is disabled.")] = False,
    as_json: Json = False,
) -> int:
    """Run a job now, whenever it is due.

    A gateway that runs does it; else it is done here, its reply is printed, and nothing is sent to a chat. Exit status
    0 if the gateway was asked or the turn went well, 1 if it failed, 2 if the job may not run.
    """
    settings, store = _opened()
    if _gateway(settings) is None:
        from bubbles.cli.cron_run import run_here

        return run_here(settings, store, job_id, force=force, as_json=as_json)
    job = _done(store.ask(job_id, force=force), job_id)
    if as_json:
        print_json({"id": job.id, "asked": True})
    else:
        print(f"The gateway runs {_title(job)} now; 'bubbles cron list' shows how it went.")
    return 0


def _opened() -> tuple[Settings, JobStore]:
    from bubbles.config.load import load_settings
    from bubbles.cron.store import JobStore

    settings = load_settings()
    return settings, JobStore(settings.data_dir)


def _done(work: Coroutine[Any, Any, T], job_id: str) -> T:
    return run(given.known(work, job_id))


def _switched(job_id: str, *, enabled: bool) -> tuple[Job, Settings]:
    from bubbles.cron.contract import JobChange

    settings, store = _opened()
    return _done(store.change(job_id, JobChange(enabled=enabled)), job_id), settings


def _gateway(settings: Settings) -> int | None:
    from bubbles.gateway.lock import running

    return running(settings.data_dir)


def _note_gateway(settings: Settings, job: Job) -> None:
    if job.draft.enabled and _gateway(settings) is None:
        complain(NO_GATEWAY)


def _told(done: str, job: Job, *, as_json: bool) -> None:
    from bubbles.cron import shown

    if as_json:
        print_json(shown.as_json(job))
        return
    due = "" if done == "Removed" else f", {shown.due_of(job, datetime.now(UTC))}"
    print(f"{done} {_title(job)}: {shown.schedule_of(job.draft.schedule)}{due}.")


def _title(job: Job) -> str:
    from bubbles.cron import shown

    return visible(f"{job.id} ({shown.name_of(job)})")


def _row(job: Job, now: datetime) -> tuple[str, ...]:
    from bubbles.cli.chat.naming import name_of
    from bubbles.cron import shown

    return (
        job.id,
        shown.name_of(job),
        shown.schedule_of(job.draft.schedule),
        shown.next_of(job, now),
        shown.last_of(job, now),
        name_of(job.session_key),
        shown.target_of(job.draft.deliver_to),
        shown.state_of(job),
    )
