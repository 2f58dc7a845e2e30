"""Old messages give way to a summary of them, so that a request fits (CTX-01, CTX-02).

What is kept are whole units, the newest ones: a call and its result are never parted (CTX-03, B058). The message that
the turn is about, and the last one of the person, are kept with them or stand word for word in the summary (B055).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bubbles.agent import standing
from bubbles.agent.contract import TurnObserver
from bubbles.agent.limits import Model
from bubbles.agent.summary import LEAST_PIECE, Recorder
from bubbles.providers.contract import NO_USAGE, Usage
from bubbles.sessions.contract import History, Unit
from bubbles.sessions.tokens import estimate
from bubbles.tools.truncate import cut_to_tokens

MOST_SUMMARY = 4_000
MOST_QUOTED = 8_000
"""Tokens, and of each at most this part of the room:"""
PART = 6
WORTH_IT = 400
"""Tokens: what is less is not summarised unasked."""
LEAST_SUMMARY = 50
FRAME = 150
"""Tokens of the words that a history puts around a summary, and of the headings inside."""
UNCHANGED = "The model gave no summary that could be used: nothing was changed."
DROPPED = "[{} older messages are left out here: they could not be summarised. They are still in session.jsonl.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one compaction."""

    room: int
    """Tokens that all messages may have together."""
    keep: int
    """Tokens of the newest messages that stay word for word."""
    turn: str
    since: int
    """The ``seq`` with which the turn began; one that does not exist yet, if it is none of its own."""
    may_drop: bool = True
    """Whether older messages are given up if the model cannot summarise them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    before: int
    """Estimated tokens of the messages."""
    after: int
    units: int
    """How many were summarised: messages of the person, and replies with their results."""
    by_model: bool
    """Or they were only dropped, since the model gave no summary."""
    usage: Usage


def needs(history: History, room: int) -> bool:
    return history.tokens > room


async def compact(
    history: History, model: Model, bounds: Bounds, observer: TurnObserver, *, force: bool = False
) -> Compacted | None:
    """What became smaller, or None if nothing can: the history is then as it was.

    ``force``: also if everything would fit. Raises ``ProviderError`` for a failure that may pass, with the history as
    it was (PROV-07), and ValueError while calls are open.
    """
    if history.open_calls:
        raise ValueError("calls are open: a history is compacted between complete units only")
    units, before = history.units, history.tokens
    first = _first_kept(units, _keep(history, bounds, force))
    dropped = units[:first]
    if not dropped or (not force and sum(unit.tokens for unit in dropped) < WORTH_IT):
        return None
    plan = _Plan(bounds=bounds, earlier=history.summary, units=units, first=first)
    tokens = min(MOST_SUMMARY, bounds.room // PART, (before - plan.tokens(plan.summary(""))) // 2)
    if tokens < LEAST_SUMMARY:
        return None
    recorder = Recorder(model=model, usage=NO_USAGE)
    body = await recorder.record(plan.body, dropped, piece=max(LEAST_PIECE, bounds.room * 2 // 3), tokens=tokens)
    if body is None and not bounds.may_drop:
        observer.notice(UNCHANGED)
        return None
    summary = plan.summary(plan.without_model(tokens) if body is None else body)
    await history.compact(summary, kept_from=plan.kept_from, turn=bounds.turn)
    done = Compacted(
        before=before, after=history.tokens, units=len(dropped), by_model=body is not None, usage=recorder.usage
    )
    observer.notice(_told(done))
    return done


def _told(done: Compacted) -> str:
    size = f"about {done.before:,} tokens are now {done.after:,}"
    if done.by_model:
        return f"Older messages were summarised: {size}."
    return f"Older messages could not be summarised, and the model no longer sees them: {size}. They stay on the disk."


def _keep(history: History, bounds: Bounds, force: bool) -> int:
    keep = min(bounds.keep, bounds.room * 2 // 5)
    return min(keep, history.tokens // 3) if force else keep


def _first_kept(units: Sequence[Unit], keep: int) -> int:
    """The newest unit is kept in any case: it may hold what the model has not seen yet."""
    first = max(len(units) - 1, 0)
    kept = units[first].tokens if units else 0
    while first > 0 and (kept := kept + units[first - 1].tokens) <= keep:
        first -= 1
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What stands where after this compaction."""

    bounds: Bounds
    earlier: str | None
    units: Sequence[Unit]
    first: int
    """Which unit is the first that is kept."""

    @property
    def kept_from(self) -> int:
        return self.units[self.first].seq

    @property
    def body(self) -> str:
        return standing.read(self.earlier)[0]

    def without_model(self, tokens: int) -> str:
        note = DROPPED.format(sum(len(unit.messages) for unit in self.units[: self.first]))
        earlier = cut_to_tokens(self.body, max(tokens - estimate(note), 1), "")
        return f"{earlier}\n\n{note}".strip()

    def summary(self, body: str) -> str:
        quoted = standing.standing(
            self.units,
            standing.read(self.earlier)[1],
            kept_from=self.kept_from,
            turn=self.bounds.turn,
            since=self.bounds.since,
        )
        return quoted.written(body, min(MOST_QUOTED, self.bounds.room // PART))

    def tokens(self, summary: str) -> int:
        return FRAME + estimate(summary) + sum(unit.tokens for unit in self.units[self.first :])
