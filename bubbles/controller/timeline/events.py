"""What the timeline holds. Open this file first.

Lines of one call share ``call``. A call that is allowed or declined without a person has one decision line, a call that
a person decides on has a pair: ``approval_requested``, before the card is shown, and ``approval_resolved``, before
anything runs. What ran ends with ``command_finished``.
"""

from __future__ import annotations

import enum
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bubbles.bus import Origin
from bubbles.controller.approvals.card import command_text
from bubbles.controller.policy.contract import Command, Decision, Effect, Match, Stage, Verdict

MAX_TEXT_BYTES = 4096
"""Of a command, or a part of it, as kept: the first half and the last."""
MAX_READ_CHARACTERS = 256 << 10
"""Longer than any argument that Linux passes on. Of a longer text only the beginning is looked at."""
MAX_OTHER_RULES = 20

Fields = dict[str, object]


class Event(enum.StrEnum):
    """The names that AUD-01 gives, and those of what was then done."""

    AUTO_RESOLVED = "approval_auto_resolved"
    AUTO_DECLINED = "approval_auto_declined"
    REQUESTED = "approval_requested"
    RESOLVED = "approval_resolved"
    STARTED = "command_started"
    """In the background; it ends with its sandbox at the latest."""
    FINISHED = "command_finished"
    WRITTEN = "file_written"
    """By the file tool, which asks nobody (DEC-14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One call of the gate: what all its lines say."""

    origin: Origin
    command: Command
    cwd: str
    backend: str
    decision: Decision
    call: str = field(default_factory=lambda: secrets.token_hex(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended that was run."""

    outcome: str
    """The name of ``sandbox_backends.contract.Outcome``; ``error`` when the sandbox or the reader of the output failed;
    ``cancelled`` when the turn was stopped; ``written`` when it was input of a program that runs."""
    exit_code: int | None = None
    duration_s: float | None = None
    error: str = ""


Redact = Callable[[str], str]


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_origin(origin: Origin) -> Fields:
    """For whom it was done."""
    return {
        "session": origin.session_key,
        "trigger": str(origin.trigger),
        "channel": origin.address.channel,
        "chat": origin.address.chat_id,
        "sender": origin.sender,
        **({"task": origin.task} if origin.task else {}),
    }


def of_call(subject: Subject, redact: Redact) -> Fields:
    """What each line of this call says."""
    text = command_text(subject.command)
    shortened: Fields = {}
    if len(text) > MAX_TEXT_BYTES // 4:
        data = text.encode("utf-8", "surrogatepass")
        shortened = {"command_bytes": len(data), "command_sha256": hashlib.sha256(data).hexdigest()}
    return {
        "call": subject.call,
        **of_origin(subject.origin),
        "command": kept(text, redact),
        **shortened,
        "cwd": kept(subject.cwd, redact),
        "backend": subject.backend,
    }


def of_decision(decision: Decision, redact: Redact) -> Fields:
    """What was decided and which rule spoke; ``matched_rule`` and ``rule_source`` are null where none did."""
    spoke = speaking(decision)
    fields: Fields = {
        "verdict": decision.verdict.name.lower(),
        "stage": str(decision.stage),
        "policy": str(decision.policy),
        "reason": kept(decision.reason, redact),
        "segment": kept(decision.segment, redact),
        "matched_rule": None if spoke is None else _rule(spoke, redact),
        "rule_source": None if spoke is None else str(spoke.layer),
    }
    others = [match for match in decision.matches if match is not spoke]
    if others:
        fields["other_rules"] = [
            {**_rule(match, redact), "source": str(match.layer), "overridden": match.overridden}
            for match in others[:MAX_OTHER_RULES]
        ]
    return fields


def of_ending(ending: Ending, redact: Redact) -> Fields:
    fields: Fields = {"outcome": ending.outcome, "exit_code": ending.exit_code}
    if ending.duration_s is not None:
        fields["duration_s"] = round(ending.duration_s, 3)
    if ending.error:
        fields["error"] = kept(ending.error, redact)
    return fields


_EFFECTS: Mapping[Verdict, Effect] = {
    Verdict.ALLOW: Effect.ALLOW,
    Verdict.ASK: Effect.PROMPT,
    Verdict.DENY: Effect.FORBIDDEN,
}


def speaking(decision: Decision) -> Match | None:
    """The rule that the verdict is due to."""
    if decision.stage is not Stage.RULES:
        return None
    effect = _EFFECTS[decision.verdict]
    return next((match for match in decision.matches if match.effect is effect and not match.overridden), None)


def kept(text: str, redact: Redact) -> str:
    """``text`` as it is written down: without secrets, and of a long one the two ends. Redacted before it is cut, so
    that no half of a key stays.
    """
    note = ""
    if len(text) > MAX_READ_CHARACTERS:
        whole, text = len(text), text[:MAX_READ_CHARACTERS]
        # A word that is cut here may be half a key.
        text = text[: max(text.rfind(" "), text.rfind("\n")) + 1]
        note = f" [… {whole - len(text)} characters left out …]"
    text = redact(text)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_TEXT_BYTES:
        return text + note
    half = MAX_TEXT_BYTES // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head} [… {len(data) - 2 * half} bytes left out …] {tail}{note}"


def _rule(match: Match, redact: Redact) -> Fields:
    return {
        "prefix": [kept(token, redact) for token in match.prefix],
        "file": match.file,
        "line": match.line,
        "effect": str(match.effect),
        "justification": kept(match.justification, redact),
    }
