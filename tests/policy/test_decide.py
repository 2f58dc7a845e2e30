"""How the four stages make one decision. These tests reach every branch of ``decide`` (see test_coverage.py)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bubbles.controller.policy.contract import Command, Context, Decision, Effect, Layer, Mode, Policy, Stage, Verdict
from bubbles.controller.policy.decide import MAX_ARGUMENT_BYTES, decide
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.rulefiles import load_rulebook

HERE = Context(cwd="/r", roots=("/r",), home="/home/p", person_home="/home/p")
CONTAINED = Context(
    cwd="/r",
    roots=("/r",),
    home="/home/agent",
    person_home="/home/p",
    contained=True,
    offline=True,
    mode=Mode.TRUST_SANDBOX,
)


def book(folder: Path, **layers: str) -> Rulebook:
    """A rulebook of the layers named (``assistant="…"``), each one file."""
    found = []
    for name, text in layers.items():
        directory = folder / name
        directory.mkdir()
        (directory / "a.rules").write_text(text, encoding="utf-8")
        found.append((Layer(name), directory))
    return load_rulebook(found).rulebook


NONE = load_rulebook([]).rulebook


def of(script: str, rules: Rulebook = NONE, context: Context = HERE) -> Decision:
    return decide(Command.of_script(script), context, rules)


@pytest.mark.req("DEC-01")
@pytest.mark.parametrize(
    ("script", "verdict", "stage", "policy"),
    [
        ("pytest -q", Verdict.ALLOW, Stage.LANE, Policy.LOCAL_SELF_VALIDATION),
        ("npm publish", Verdict.ASK, Stage.DEFAULT, Policy.NO_RULE),
        ("if a; then b; fi", Verdict.ASK, Stage.DEFAULT, Policy.NOT_UNDERSTOOD),
        ("sudo id", Verdict.ASK, Stage.BLACKLIST, Policy.HIGH_RISK),
        ("rm -rf /", Verdict.DENY, Stage.BLACKLIST, Policy.HIGH_RISK),
        ("pytest -q &", Verdict.ASK, Stage.DEFAULT, Policy.NO_RULE),
        ("", Verdict.DENY, Stage.DEFAULT, Policy.NOT_UNDERSTOOD),
        ("pytest\0-q", Verdict.DENY, Stage.DEFAULT, Policy.NOT_UNDERSTOOD),
        ("#" * (MAX_ARGUMENT_BYTES + 1), Verdict.DENY, Stage.DEFAULT, Policy.NOT_UNDERSTOOD),
        ("é" * (MAX_ARGUMENT_BYTES // 2 + 1), Verdict.DENY, Stage.DEFAULT, Policy.NOT_UNDERSTOOD),
    ],
)
def test_each_stage_speaks_in_its_turn(script: str, verdict: Verdict, stage: Stage, policy: Policy) -> None:
    decision = of(script)
    assert (decision.verdict, decision.stage, decision.policy) == (verdict, stage, policy)
    assert decision.reason.strip()


@pytest.mark.parametrize("argv", [(), ("",), ("  ",)])
def test_an_argv_without_a_program_is_declined(argv: tuple[str, ...]) -> None:
    assert decide(Command(argv=argv), HERE, NONE).verdict is Verdict.DENY


@pytest.mark.req("DEC-12")
def test_an_argv_is_decided_on_without_a_shell() -> None:
    assert decide(Command(argv=("git", "commit", "-m", "x; rm -rf /")), HERE, NONE).verdict is Verdict.ALLOW
    assert decide(Command(argv=("rm", "-rf", "/")), HERE, NONE).verdict is Verdict.DENY


@pytest.mark.req("DEC-08", "DEC-09")
def test_rules_allow_prompt_and_forbid_and_say_where_they_stand(tmp_path: Path) -> None:
    rules = book(
        tmp_path,
        assistant='prefix_rule(pattern=["gh"])\nprefix_rule(pattern=["npm"], decision="prompt", justification="why")\n'
        'prefix_rule(pattern=["git", "push"], decision="forbidden")\n',
    )
    allowed, asked, declined = of("gh pr view 7", rules), of("npm test", rules), of("git push", rules)
    assert (allowed.verdict, allowed.policy) == (Verdict.ALLOW, Policy.RULES_ALLOW)
    assert (asked.verdict, asked.policy) == (Verdict.ASK, Policy.RULES_PROMPT)
    assert (declined.verdict, declined.policy) == (Verdict.DENY, Policy.RULES_FORBIDDEN)
    assert f"{tmp_path}/assistant/a.rules:2" in asked.reason
    assert "why" in asked.reason
    (match,) = declined.matches
    assert (match.layer, match.line, match.prefix, match.effect) == (
        Layer.ASSISTANT,
        3,
        ("git", "push"),
        Effect.FORBIDDEN,
    )


@pytest.mark.req("DEC-02")
def test_no_allow_rule_lifts_the_blacklist(tmp_path: Path) -> None:
    rules = book(tmp_path, session='prefix_rule(pattern=["rm"])\nprefix_rule(pattern=["git", "reset"])\n')
    assert of("rm -rf build /", rules).verdict is Verdict.DENY
    assert of("git reset --hard", rules).policy is Policy.HIGH_RISK
    assert of("rm -rf build", rules).verdict is Verdict.ALLOW


@pytest.mark.req("DEC-03")
def test_a_restriction_binds_the_lane(tmp_path: Path) -> None:
    rules = book(tmp_path, **{"global": 'prefix_rule(pattern=["git", "status"], decision="forbidden")\n'})
    assert of("git status", rules).verdict is Verdict.DENY
    assert of("git diff", rules).stage is Stage.LANE


@pytest.mark.req("DEC-05", "DEC-07")
def test_a_stronger_layer_overrides_and_the_decision_shows_it(tmp_path: Path) -> None:
    rules = book(
        tmp_path,
        assistant='prefix_rule(pattern=["curl"])\n',
        **{"global": 'prefix_rule(pattern=["curl"], decision="forbidden")\n'},
    )
    decision = of("curl https://example.org", rules)
    assert decision.verdict is Verdict.ALLOW
    assert "overrides the global rule" in decision.reason
    assert [(match.layer, match.overridden) for match in decision.matches if match.overridden] == [(Layer.GLOBAL, True)]


@pytest.mark.req("DEC-06")
@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("gh pr view 7 2>&1 | head -5", Verdict.ALLOW),
        ("timeout 60 gh pr view 7", Verdict.ALLOW),
        ("NO_COLOR=1 gh pr view 7 > out.log", Verdict.ALLOW),
        ("bash -lc 'gh pr view 7 && git status'", Verdict.ALLOW),
        ("gh pr view 7 && gh pr merge 7", Verdict.ASK),
        ("gh pr view $N", Verdict.ASK),
        ("gh pr view 7 > ~/.bashrc", Verdict.ASK),
        ("GH_HOST=e gh pr view 7", Verdict.ASK),
        ("gh pr view 7; for x in a; do gh pr view 7; done", Verdict.ASK),
        ("./gh pr view 7", Verdict.ASK),
        ("gh pr view 7 $(npm publish)", Verdict.DENY),
        ("sudo env A=1 npm publish", Verdict.DENY),
        ("if true; then npm publish; fi", Verdict.DENY),
        ("timeout 5 npm --prefix sub publish", Verdict.DENY),
    ],
)
def test_an_allow_needs_certainty_and_a_refusal_only_suspicion(tmp_path: Path, script: str, verdict: Verdict) -> None:
    rules = book(
        tmp_path,
        assistant='prefix_rule(pattern=["gh", "pr", "view"])\n'
        'prefix_rule(pattern=["npm", "publish"], decision="forbidden")\n',
    )
    assert of(script, rules).verdict is verdict


@pytest.mark.req("DEC-06")
@pytest.mark.parametrize(
    "script",
    [
        "setarch x86_64 git push",
        "prlimit --nofile=10 git push",
        "tini -- git push",
        "xvfb-run -a git push",
        "docker run --rm image git push",
        "kubectl exec -it pod -- git push",
        "bwrap --ro-bind / / git push",
        "perf record -o x git push",
        "watchexec git push",
        "git-push",
        "/usr/lib/git-core/git-push",
        "env --split-string='git push'",
        "coproc X { git push; }",
        ". /dev/stdin <<< 'git push'",
        "time A=1 git push",
        "/usr/bin/gi? push",
        "tmux new-session -d 'git push'",
        "hyperfine 'git push'",
        "GIT_SSH_COMMAND='git push' git fetch",
        "less +x 'git push'",
        "$(which git) push",
        'set -- git push; "$@"',
    ],
)
def test_a_forbidden_command_is_seen_behind_what_nothing_is_known_of(tmp_path: Path, script: str) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["git", "push"], decision="forbidden")\n')
    decision = of(script, rules, CONTAINED)
    assert decision.verdict is not Verdict.ALLOW
    assert decision.stage in (Stage.RULES, Stage.BLACKLIST)


@pytest.mark.parametrize("script", ["grep -rn 'git push' src", "git commit -m 'explain git push'", "echo git push"])
def test_what_only_speaks_of_a_forbidden_command_is_not_it(tmp_path: Path, script: str) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["git", "push"], decision="forbidden")\n')
    assert of(script, rules).verdict is Verdict.ALLOW


@pytest.mark.req("DEC-06")
def test_a_rule_that_names_a_whole_script_grants_that_text_in_any_shell(tmp_path: Path) -> None:
    script = "for f in a b; do echo $f; done"
    rules = book(tmp_path, assistant=f'prefix_rule(pattern=["/bin/zsh", "-lc", "{script}"])\n')
    assert of(script, rules).policy is Policy.RULES_ALLOW
    assert of(f"bash -c '{script}'", rules).policy is Policy.RULES_ALLOW
    assert of(script + "; id", rules).verdict is Verdict.ASK
    assert of(script.replace("echo", "rm -rf /"), rules).verdict is Verdict.DENY


@pytest.mark.req("DEC-06")
def test_a_granted_script_does_not_escape_a_restriction_of_its_own_layer(tmp_path: Path) -> None:
    rules = book(
        tmp_path,
        assistant='prefix_rule(pattern=["bash", "-lc", "if a; then npm publish; fi"])\n'
        'prefix_rule(pattern=["npm", "publish"], decision="forbidden")\n',
    )
    assert of("bash -lc 'if a; then npm publish; fi'", rules).verdict is Verdict.DENY


def test_a_script_that_is_no_script_is_never_granted(tmp_path: Path) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["bash", "-lc", "ls )"])\n')
    assert of("ls )", rules).verdict is Verdict.ASK


def test_of_several_permissions_the_weakest_is_recorded(tmp_path: Path) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["gh"])\n')
    decision = of("git status && gh pr view && git diff", rules)
    assert (decision.policy, decision.segment) == (Policy.RULES_ALLOW, "gh pr view")


def test_of_several_refusals_the_gravest_is_named(tmp_path: Path) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["npm"], decision="forbidden")\n')
    assert of("npm test; rm -rf /; sudo id", rules).stage is Stage.BLACKLIST
    assert of("sudo id; npm test", rules).policy is Policy.RULES_FORBIDDEN


def test_the_part_that_is_to_blame_is_shown() -> None:
    assert of("git status && npm publish --access public | cat").segment == "npm publish --access public"


@pytest.mark.parametrize(
    ("script", "verdict", "policy"),
    [
        ("npm publish", Verdict.ALLOW, Policy.TRUST_SANDBOX),
        ("for f in a; do b; done", Verdict.ALLOW, Policy.TRUST_SANDBOX),
        ("sudo id", Verdict.ASK, Policy.HIGH_RISK),
        ("rm -rf /", Verdict.DENY, Policy.HIGH_RISK),
        ("a )", Verdict.ASK, Policy.NOT_UNDERSTOOD),
        ("a \x1b[2K b", Verdict.ASK, Policy.NOT_UNDERSTOOD),
        ("pytest -q", Verdict.ALLOW, Policy.LOCAL_SELF_VALIDATION),
    ],
)
def test_a_trusted_sandbox_answers_for_a_person_in_stage_four_only(
    script: str, verdict: Verdict, policy: Policy
) -> None:
    decision = of(script, context=CONTAINED)
    assert (decision.verdict, decision.policy) == (verdict, policy)


def test_a_prompt_rule_is_asked_about_even_in_a_trusted_sandbox(tmp_path: Path) -> None:
    rules = book(tmp_path, assistant='prefix_rule(pattern=["npm"], decision="prompt")\n')
    assert of("npm publish", rules, CONTAINED).verdict is Verdict.ASK


def test_mode_deny_asks_nobody() -> None:
    context = Context(cwd="/r", roots=("/r",), home="/h", person_home="/h", mode=Mode.DENY)
    for script in ("npm publish", "sudo id", "if a; then b; fi"):
        decision = of(script, context=context)
        assert (decision.verdict, decision.policy) == (Verdict.DENY, Policy.APPROVALS_OFF)
    assert of("pytest -q", context=context).verdict is Verdict.ALLOW


@pytest.mark.req("DEC-13")
def test_where_the_sandbox_holds_the_view_leaving_the_roots_is_its_business() -> None:
    contained = Context(cwd="/r", roots=("/r",), home="/home/agent", person_home="/home/p", contained=True)
    assert of("cat /usr/include/stdio.h", context=contained).verdict is Verdict.ALLOW
    assert of("cat /usr/include/stdio.h").verdict is Verdict.ASK
    assert of("cd /tmp && git status", context=contained).verdict is Verdict.ASK


def test_a_path_is_looked_up_once_a_decision() -> None:
    asked: list[str] = []

    def resolve(path: str) -> str:
        asked.append(path)
        return path

    context = Context(cwd="/r", roots=("/r",), home="/h", person_home="/h", resolve=resolve)
    of("cat a && cat a && cat a", context=context)
    assert len(asked) == len(set(asked))


def test_any_text_gets_a_decision() -> None:
    generator = random.Random(5)
    pieces = [
        "pytest",
        " ",
        "'",
        '"',
        "$(",
        ")",
        "`",
        "{",
        "}",
        ";",
        "|",
        "&",
        "\n",
        "\\",
        "~",
        "*",
        "<<E",
        "é",
        "\x1b",
        "rm",
    ]
    for _ in range(300):
        text = "".join(generator.choice(pieces) for _ in range(generator.randrange(40)))
        assert of(text).reason
