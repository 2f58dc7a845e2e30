"""The decision on one command: blacklist, lane, rules, a person, in this order (DEC-01).

What forbids or asks is looked for in every command of a text, hidden ones too; what allows must answer for each
command in plain sight, and only if the text is understood to the last character. The verdict on the whole is the
strictest of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from bubbles.controller.policy import lane
from bubbles.controller.policy.blacklist import Finding, Tier, find
from bubbles.controller.policy.contract import (
    Command,
    Context,
    Decision,
    Effect,
    Match,
    Mode,
    Policy,
    Stage,
    Verdict,
)
from bubbles.controller.policy.rules import Rulebook, resolve_precedence
from bubbles.controller.policy.shell import read, read_argv
from bubbles.controller.policy.shell.reading import UNKNOWN, Reading, Segment

MAX_ARGUMENT_BYTES = 131_071
"""Linux hands a program no longer single argument (MAX_ARG_STRLEN, execve(2))."""

_WEIGHT = {
    policy: weight
    for weight, policy in enumerate(
        (
            Policy.LOCAL_SELF_VALIDATION,
            Policy.RULES_ALLOW,
            Policy.TRUST_SANDBOX,
            Policy.NO_RULE,
            Policy.NOT_UNDERSTOOD,
            Policy.RULES_PROMPT,
            Policy.APPROVALS_OFF,
            Policy.RULES_FORBIDDEN,
            Policy.HIGH_RISK,
        )
    )
}
"""Which of several parts with the same verdict is named: of allowances the weakest, else the gravest."""


class _Part(NamedTuple):
    """The decision on one part of the text."""

    verdict: Verdict
    stage: Stage
    policy: Policy
    reason: str
    segment: str = ""
    matches: tuple[Match, ...] = ()


def _gravity(part: _Part) -> tuple[int, int]:
    return part.verdict, _WEIGHT[part.policy]


def decide(command: Command, context: Context, rulebook: Rulebook) -> Decision:
    """What is to become of ``command``. Pure, synchronous, and for any input: it never raises."""
    wrong = _cannot_run(command)
    if wrong is not None:
        return Decision(verdict=Verdict.DENY, stage=Stage.DEFAULT, policy=Policy.NOT_UNDERSTOOD, reason=wrong)
    # Each path is looked up once: links may be many, and one decision must see the same world throughout.
    resolve = cache(context.resolve)
    context = replace(context, resolve=resolve, real_roots=tuple([resolve(root) for root in context.roots]))
    script = command.script
    reading = read_argv(command.argv, context) if script is None else read(script, context)
    parts = list(_parts(reading, context, rulebook))
    worst = max(parts, key=_gravity)
    decision = Decision(
        verdict=worst.verdict,
        stage=worst.stage,
        policy=worst.policy,
        reason=worst.reason,
        segment=worst.segment,
        matches=tuple(dict.fromkeys(match for part in parts for match in part.matches)),
    )
    return _by_mode(decision, reading, context)


def _cannot_run(command: Command) -> str | None:
    """Why the system would not even start it."""
    script = command.script
    if not command.argv or not (command.argv[0] if script is None else script).strip():
        return "The command is empty: there is nothing to run."
    for argument in command.argv:
        if "\0" in argument:
            return "The command holds a NUL character, which no program can be given: leave it out."
        if len(argument) > MAX_ARGUMENT_BYTES or len(argument.encode("utf-8", "surrogatepass")) > MAX_ARGUMENT_BYTES:
            return (
                f"The command is longer than {MAX_ARGUMENT_BYTES:,} bytes, more than the system runs as one argument: "
                "write it to a file and run that."
            )
    return None


def _parts(reading: Reading, context: Context, rulebook: Rulebook) -> Iterator[_Part]:
    """A decision on each part of the text that has one; at least one."""
    yield from map(_of_finding, find(reading, context))
    grants = _script_grants(reading, rulebook)
    understood = not reading.doubts
    for segment in reading.segments:
        yield _of_segment(segment, context, rulebook, grants, understood=understood)
    for segment in reading.hidden:
        effect, matches = resolve_precedence((*grants, *_restrictions(segment, rulebook)))
        if effect in (Effect.FORBIDDEN, Effect.PROMPT):
            yield _of_restriction(effect, matches, segment)
    if not understood:
        effect, matches = resolve_precedence(grants)
        if effect is Effect.ALLOW:
            yield _of_grant(matches, reading.script)
        else:
            yield _Part(
                verdict=Verdict.ASK,
                stage=Stage.DEFAULT,
                policy=Policy.NOT_UNDERSTOOD,
                reason=f"It is not understood for certain: {reading.doubts[0]}.",
            )


def _script_grants(reading: Reading, rulebook: Rulebook) -> tuple[Match, ...]:
    """Rules that name this very script, whatever shell they run it with (DEC-06)."""
    if reading.broken:
        return ()
    grants = rulebook.script_grants(reading.script)
    return grants if reading.sole is None else (*grants, *rulebook.script_grants(reading.sole))


def _of_finding(finding: Finding) -> _Part:
    destructive = finding.tier is Tier.DESTRUCTIVE
    what = "This is never run" if destructive else "A person decides on this, whatever the rules say"
    return _Part(
        verdict=Verdict.DENY if destructive else Verdict.ASK,
        stage=Stage.BLACKLIST,
        policy=Policy.HIGH_RISK,
        reason=f"{what}: {finding.reason}.",
        segment=finding.segment.source,
    )


def _of_segment(
    segment: Segment, context: Context, rulebook: Rulebook, grants: tuple[Match, ...], *, understood: bool
) -> _Part:
    """The decision on one command in plain sight."""
    found = grants + _restrictions(segment, rulebook)
    allows = _allows(segment, rulebook)
    blurred = _blurred(segment, context, understood=understood) if allows else None
    if blurred is None:
        found += allows
    effect, matches = resolve_precedence(found) if found else (None, ())
    if effect in (Effect.FORBIDDEN, Effect.PROMPT):
        return _of_restriction(effect, matches, segment)
    why_not = _why_not_lane(segment, context) if understood else "the whole is not understood for certain"
    if why_not is None:
        return _Part(
            verdict=Verdict.ALLOW,
            stage=Stage.LANE,
            policy=Policy.LOCAL_SELF_VALIDATION,
            reason="Ordinary local validation, diagnostics or building inside the roots.",
            segment=segment.source,
            matches=matches,
        )
    if effect is Effect.ALLOW:
        return _of_grant(matches, segment.source)
    reason = f"{why_not}, and no rule allows it."
    if allows:
        reason = f"{_rule_says(allows[0], 'would allow').rstrip('.')}, but {blurred}."
    return _Part(
        verdict=Verdict.ASK,
        stage=Stage.DEFAULT,
        policy=Policy.NO_RULE,
        reason=reason,
        segment=segment.source,
        matches=matches,
    )


def _why_not_lane(segment: Segment, context: Context) -> str | None:
    if segment.background:
        return "it would go on running in the background"
    return lane.judge(segment, context)


def _blurred(segment: Segment, context: Context, *, understood: bool) -> str | None:
    """What about the command besides its words matters, or is not known of them: then no allow rule may speak."""
    if not understood:
        return "the whole is not understood for certain"
    for word in segment.words:
        if not word.exact:
            return f"{word.text.replace(UNKNOWN, '…')} is not known before it runs"
    for assignment in segment.assignments:
        if not lane.inert(assignment, context, segment.directories):
            return f"{assignment.name}= before it may change what it does"
    reasons = (lane.harmless(redirect, segment.directories, context) for redirect in segment.redirects)
    return next((reason for reason in reasons if reason is not None), None)


def _allows(segment: Segment, rulebook: Rulebook) -> tuple[Match, ...]:
    whole = tuple(word.text for word in segment.words)
    found = rulebook.allows(whole)
    if segment.core is not segment.words:
        found += rulebook.allows(tuple(word.text for word in segment.core))
    return found


def _restrictions(segment: Segment, rulebook: Rulebook) -> tuple[Match, ...]:
    """Prompt and forbidden rules that the command falls under, or may: behind a program that is not known to take data
    only, and in what is assigned, too.
    """
    if not rulebook.restricts:
        return ()
    guess = segment.guess
    found = rulebook.restrictions(guess)
    if segment.core is not segment.words:
        found += rulebook.restrictions(tuple(word.text for word in segment.words))
    if guess and not lane.takes_data(guess[0]):
        found += rulebook.restrictions_behind(guess)
    for assignment in segment.assignments:
        if " " in assignment.value.text:
            found += rulebook.restrictions_behind(("", assignment.value.text))
    return found


def _of_restriction(effect: Effect, matches: Sequence[Match], segment: Segment) -> _Part:
    speaking = next(match for match in matches if match.effect is effect and not match.overridden)
    forbidden = effect is Effect.FORBIDDEN
    what = "forbids" if forbidden else "wants a person to decide on"
    return _Part(
        verdict=Verdict.DENY if forbidden else Verdict.ASK,
        stage=Stage.RULES,
        policy=Policy.RULES_FORBIDDEN if forbidden else Policy.RULES_PROMPT,
        reason=_rule_says(speaking, what),
        segment=segment.source,
        matches=tuple(matches),
    )


def _of_grant(matches: Sequence[Match], source: str) -> _Part:
    speaking = next(match for match in matches if match.effect is Effect.ALLOW and not match.overridden)
    beaten = [match for match in matches if match.overridden and match.effect is not Effect.ALLOW]
    over = f" It overrides the {beaten[0].layer} rule at {beaten[0].file}:{beaten[0].line}." if beaten else ""
    return _Part(
        verdict=Verdict.ALLOW,
        stage=Stage.RULES,
        policy=Policy.RULES_ALLOW,
        reason=_rule_says(speaking, "allows") + over,
        segment=source,
        matches=tuple(matches),
    )


def _rule_says(match: Match, what: str) -> str:
    because = f": {match.justification.strip()}" if match.justification.strip() else ""
    return f"The {match.layer} rule at {match.file}:{match.line} {what} '{' '.join(match.prefix)}'{because}."


def _by_mode(decision: Decision, reading: Reading, context: Context) -> Decision:
    """Stage 4, as ``tools.approvals.mode`` has it."""
    if decision.verdict is not Verdict.ASK:
        return decision
    if context.mode is Mode.DENY:
        return replace(
            decision,
            verdict=Verdict.DENY,
            policy=Policy.APPROVALS_OFF,
            reason=f"{decision.reason} Nobody is asked: tools.approvals.mode is 'deny'.",
        )
    if trusted(context) and decision.stage is Stage.DEFAULT and not reading.broken:
        return replace(
            decision,
            verdict=Verdict.ALLOW,
            policy=Policy.TRUST_SANDBOX,
            reason="The sandbox holds it: tools.approvals.mode is 'trust_sandbox'.",
        )
    return decision


def trusted(context: Context) -> bool:
    """Whether stage 4 leaves what is not high risk to the sandbox (SPEC 5.1)."""
    return context.mode is Mode.TRUST_SANDBOX and context.contained and context.offline
