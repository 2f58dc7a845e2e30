"""The decision on what is typed into a program that runs already.

That program got its permission for what it was started with. What it makes of its input nobody can tell: a shell runs
it, an interpreter too, an editor may. So the text is read as a script for what is forbidden, and nothing about it is
ever certain enough for the lane or an allow rule (SPEC 6.5).
"""

from __future__ import annotations

from dataclasses import replace

from bubbles.controller.policy.contract import Command, Context, Decision, Mode, Policy, Stage, Verdict
from bubbles.controller.policy.decide import decide, trusted
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.policy.shell.reader import MAX_TEXT

MAX_PROGRAM = 160
"""Characters of the program as a reason names it."""


def decide_input(text: str, command: str, context: Context, rulebook: Rulebook) -> Decision:
    """What is to become of ``text``, typed into the program that was started as ``command``. Pure; never raises.

    Bytes that are not UTF-8 come as ``surrogateescape`` has them. ``context.cwd`` is where the program was started.
    """
    into = f"It is typed into a running program ({_short(command)})"
    decision = _as_script(text, replace(context, mode=Mode.ASK), rulebook)
    if decision.verdict is Verdict.DENY:
        return replace(decision, reason=f"{into}. {decision.reason}")
    if decision.stage in (Stage.BLACKLIST, Stage.RULES) and decision.verdict is Verdict.ASK:
        decision = replace(decision, reason=f"{into}. {decision.reason}")
    elif trusted(context) and len(text) <= MAX_TEXT:
        return replace(
            decision,
            verdict=Verdict.ALLOW,
            stage=Stage.DEFAULT,
            policy=Policy.TRUST_SANDBOX,
            reason=f"{into}. The sandbox holds it: tools.approvals.mode is 'trust_sandbox'.",
        )
    else:
        decision = _unknown(f"{into}, and what that makes of it is not known.")
    if context.mode is not Mode.DENY:
        return decision
    return replace(
        decision,
        verdict=Verdict.DENY,
        policy=Policy.APPROVALS_OFF,
        reason=f"{decision.reason} Nobody is asked: tools.approvals.mode is 'deny'.",
    )


def _as_script(text: str, context: Context, rulebook: Rulebook) -> Decision:
    """What would become of it if a shell were given it. An empty line is no command to bash, but may be one here."""
    return decide(Command.of_script(text), context, rulebook) if text.strip() else _unknown("It is blank.")


def _unknown(reason: str) -> Decision:
    return Decision(verdict=Verdict.ASK, stage=Stage.DEFAULT, policy=Policy.NOT_UNDERSTOOD, reason=reason)


def _short(command: str) -> str:
    one_line = " ".join(command.split())
    return one_line if len(one_line) <= MAX_PROGRAM else f"{one_line[: MAX_PROGRAM - 1]}…"
