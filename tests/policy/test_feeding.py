"""What may be typed into a program that runs already."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from bubbles.controller.policy.contract import Context, Decision, Layer, Mode, Policy, Stage, Verdict
from bubbles.controller.policy.feeding import MAX_PROGRAM, decide_input
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.policy.shell.reader import MAX_TEXT
from bubbles.controller.rulefiles import load_rulebook

HERE = Context(cwd="/r", roots=("/r",), home="/home/p", person_home="/home/p")
TRUSTED = replace(HERE, contained=True, offline=True, mode=Mode.TRUST_SANDBOX)
NONE = load_rulebook([]).rulebook

pytestmark = pytest.mark.req("TOOL-02")


def of(text: str, context: Context = HERE, rules: Rulebook = NONE, command: str = "bash") -> Decision:
    return decide_input(text, command, context, rules)


@pytest.mark.parametrize(
    "text", ["npm publish\n", "pytest -q\n", "git status\n", "y\n", "\n", " ", "print('é')\n", "("]
)
def test_input_is_asked_about_even_if_it_would_run_as_a_command(text: str) -> None:
    decision = of(text, command="python3 -i")
    assert (decision.verdict, decision.stage) == (Verdict.ASK, Stage.DEFAULT)
    assert decision.reason.startswith("It is typed into a running program (python3 -i), and what")


def test_an_allow_rule_says_nothing_of_input(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(
        'prefix_rule(pattern=["gh"])\nprefix_rule(pattern=["npm"], decision="forbidden")\n'
    )
    rules = load_rulebook([(Layer.ASSISTANT, tmp_path)]).rulebook
    assert of("gh pr view 7\n", rules=rules).verdict is Verdict.ASK
    forbidden = of("npm test\n", TRUSTED, rules)
    assert (forbidden.verdict, forbidden.policy) == (Verdict.DENY, Policy.RULES_FORBIDDEN)
    assert "typed into a running program (bash). The assistant rule" in forbidden.reason


@pytest.mark.req("DEC-02")
@pytest.mark.parametrize("context", [HERE, TRUSTED])
def test_what_destroys_is_declined_and_high_risk_asked_about_wherever_it_is_typed(context: Context) -> None:
    destructive, risky = of("rm -rf /\n", context), of("sudo id\n", context)
    assert (destructive.verdict, destructive.policy) == (Verdict.DENY, Policy.HIGH_RISK)
    assert (risky.verdict, risky.policy) == (Verdict.ASK, Policy.HIGH_RISK)
    for decision in (destructive, risky):
        assert decision.reason.startswith("It is typed into a running program (bash). ")
    for never in ("a\0b", "#" * 200_000):
        assert of(never, context).verdict is Verdict.DENY


@pytest.mark.parametrize("text", ["npm publish\n", "print('hi')\n", "\x03", "\udcff\n", "\n"])
def test_a_sandbox_that_is_trusted_and_holds_answers_for_a_person(text: str) -> None:
    decision = of(text, TRUSTED)
    assert (decision.verdict, decision.policy) == (Verdict.ALLOW, Policy.TRUST_SANDBOX)
    for weaker in (replace(TRUSTED, contained=False), replace(TRUSTED, offline=False), replace(TRUSTED, mode=Mode.ASK)):
        assert of(text, weaker).verdict is Verdict.ASK
    assert of("x" * (MAX_TEXT + 1), TRUSTED).verdict is Verdict.ASK  # read in part only


def test_where_nobody_is_ever_asked_nothing_is_typed() -> None:
    context = replace(HERE, mode=Mode.DENY)
    for text in ("y\n", "sudo id\n", "pytest -q\n"):
        decision = of(text, context)
        assert (decision.verdict, decision.policy) == (Verdict.DENY, Policy.APPROVALS_OFF)
        assert "Nobody is asked" in decision.reason


def test_the_program_is_named_in_a_few_words() -> None:
    decision = of("y\n", command="for x in a b\ndo\n\techo " + "x" * 5000)
    assert "(for x in a b do echo xxx" in decision.reason
    assert len(decision.reason) < MAX_PROGRAM + 120


def test_any_input_gets_a_decision() -> None:
    generator = random.Random(7)
    pieces = ["rm", " ", "'", '"', "$(", ")", "`", "{", ";", "|", "\n", "\\", "~", "<<E", "é", "\x1b", "\udc80", "\0"]
    for context in (HERE, TRUSTED, replace(HERE, mode=Mode.DENY)):
        for _ in range(100):
            text = "".join(generator.choice(pieces) for _ in range(generator.randrange(30)))
            assert of(text, context).reason
