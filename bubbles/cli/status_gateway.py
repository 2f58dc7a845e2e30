"""The part of ``bubbles status`` about the gateway: channels, jobs, whether it runs. Nobody is asked anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bubbles.cli.gateway_live import Live
    from bubbles.config.schema import Settings

JOBS = Path("cron", "jobs.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    count: int = 0
    off: int = 0
    problems: tuple[str, ...] = ()
    by_session: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    """What a session has of it: ``jobs``, a number, and ``heartbeat``, how often."""

    def __str__(self) -> str:
        return f"{self.count}{f', {self.off} of them off' if self.off else ''}"


def job_facts(settings: Settings) -> JobFacts:
    """What is in the file of jobs; a heartbeat that is on counts as one of its session alone."""
    if not (settings.data_dir / JOBS).exists():
        return JobFacts()
    from bubbles.cli.report import run
    from bubbles.cron.contract import JobKind
    from bubbles.cron.shown import schedule_of
    from bubbles.cron.store import JobStore

    listing = run(JobStore(settings.data_dir).listing())
    found: dict[str, dict[str, str | int]] = {}
    for job in listing.jobs:
        if job.kind is JobKind.HEARTBEAT:
            if job.draft.enabled:
                found.setdefault(job.session_key, {})["heartbeat"] = schedule_of(job.draft.schedule)
        else:
            own = found.setdefault(job.session_key, {})
            own["jobs"] = int(own.get("jobs", 0)) + 1
    jobs = [job for job in listing.jobs if job.kind is not JobKind.HEARTBEAT]
    return JobFacts(
        count=len(jobs),
        off=sum(not job.draft.enabled for job in jobs),
        problems=tuple(listing.problems),
        by_session=found,
    )


def channels(settings: Settings) -> list[dict[str, Any]]:
    """Those that are on."""
    from bubbles.channels.registry import enabled, settings_of
    from bubbles.cli.channels_status import doubts, faults

    on = ((each, settings_of(settings.channels, each.name)) for each in enabled(settings.channels))
    return [
        {
            "name": each.name,
            "allow_from": list(chosen.allow_from),
            "problems": [*faults(each, chosen), *doubts(each.name, chosen)],
        }
        for each, chosen in on
    ]


def gateway(settings: Settings) -> Live:
    """Whether it runs; it is not asked how it is."""
    from bubbles.cli.gateway_live import Live
    from bubbles.gateway.lock import held

    return Live(holder=held(settings.data_dir))


def lines(settings: Settings, jobs: JobFacts) -> Iterator[tuple[str, str, list[str]]]:
    """A label, what stands there, and warnings."""
    from bubbles.cli.channels_status import gateway_line, let_in

    for each in channels(settings):
        yield "channel", f"{each['name']}, let in: {let_in(each['allow_from'])}", each["problems"]
    if jobs.count or jobs.problems:
        yield "jobs", str(jobs), list(jobs.problems)
    yield "gateway", gateway_line(gateway(settings)), []


def as_json(settings: Settings, jobs: JobFacts) -> dict[str, Any]:
    found = gateway(settings)
    return {
        "channels": channels(settings),
        "jobs": {"count": jobs.count, "off": jobs.off, "problems": list(jobs.problems)},
        "gateway": {"running": found.holder is not None, "pid": found.holder and found.holder.pid, "url": found.url},
    }
