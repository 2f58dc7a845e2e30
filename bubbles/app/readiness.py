"""How the gateway is, for whoever asks (OPS-02)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bubbles.channels.supervisor import Phase, Supervisor
from bubbles.gateway.health import ChannelHealth, Readiness

if TYPE_CHECKING:
    from bubbles.cron.service import CronService
    from bubbles.gateway.intake import Intake
    from bubbles.gateway.ledger import Ledger

OFF = "off"
STALE_S = 60.0
"""Jobs are looked at each second; a look waits for the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is looked at."""

    supervisors: Mapping[str, Supervisor]
    broken: Mapping[str, str]
    """Channels that could not be made, and why."""
    intake: Intake
    cron: CronService
    ledger: Ledger
    taking: asyncio.Event
    problem: str = ""
    """What keeps every turn from running: no model, say. A sentence."""
    since: float = field(default_factory=time.time)

    def summary(self, url: str | None) -> str:
        """What is up, in a few words; ``url`` is where it tells how it is."""
        names = [f"{name} (connecting)" for name in self.supervisors] + [f"{name} (off)" for name in self.broken]
        return f"{url or 'nothing listens'}; channels: {', '.join(names) or 'none'}"


def readiness(watched: Watched) -> Readiness:
    """Ready once it takes messages and every channel that is on is up."""
    channels = tuple(_channels(watched))
    problems = tuple(watched.cron.problems)
    whys = [f"{each.name} is {each.phase}" for each in channels if not each.up]
    if not watched.taking.is_set():
        whys.insert(0, "it takes no messages: it is being started or stopped")
    if watched.problem:
        whys.append(watched.problem)
    if not watched.cron.readable:
        whys.append(f"jobs: {problems[0] if problems else 'they were not looked at yet'}")
    elif (age_s := watched.cron.tick_age_s) is not None and age_s > STALE_S:
        whys.append(f"jobs: nobody has looked at them for {age_s:.0f} s")
    return Readiness(
        ready=not whys,
        why="; ".join(whys),
        channels=channels,
        jobs=watched.cron.jobs,
        job_problems=problems,
        waiting=watched.ledger.undone,
    )


def _channels(watched: Watched) -> Iterator[ChannelHealth]:
    for name, supervisor in watched.supervisors.items():
        state = supervisor.state
        yield ChannelHealth(
            name=name,
            phase=str(state.phase),
            up=state.phase is Phase.UP,
            who=state.who,
            why=state.why,
            since=state.since,
            restarts=state.restarts,
            turned_away=watched.intake.turned_away(name),
        )
    for name, why in watched.broken.items():
        yield ChannelHealth(name=name, phase=OFF, up=False, why=why, since=watched.since)
