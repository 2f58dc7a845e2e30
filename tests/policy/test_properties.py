"""What holds of every decision, tried on random scripts, bytes and damaged rule files (issue 3, "How good")."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbles.controller.policy.contract import SHELL, Command, Context, Decision, Layer, Verdict
from bubbles.controller.policy.decide import decide
from bubbles.controller.policy.rules import Rulebook, bind, parse_rules
from tests.policy.planted import AFTER, AROUND, AS_TEXT, BEFORE, RULES, SAFE, hiding_scripts

ROOT = "/home/agent/work/project"
CONTEXT = Context(cwd=ROOT, roots=(ROOT,), home="/home/agent", person_home="/home/person")
MAX_SECONDS = 0.05
Body = Callable[..., None]


def book(text: str) -> Rulebook:
    return bind(parse_rules(text, file="p.rules", layer=Layer.GLOBAL).rules)


NO_RULES = book("")
ALL_RULES = book(RULES)


def verdict(script: str, rulebook: Rulebook = NO_RULES) -> Decision:
    return decide(Command.of_script(script), CONTEXT, rulebook)


def quick(examples: int) -> Callable[[Body], Body]:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


LONG = pytest.mark.soak
"""The same property, tried for minutes."""

# -- (a) a forbidden command, wherever it hides


def check_hidden(script: str) -> None:
    decision = verdict(script, ALL_RULES)
    assert decision.verdict is not Verdict.ALLOW, (script, decision.reason)
    assert decision.reason.strip()


def test_what_is_planted_by_rules_would_run_but_for_the_rule_that_forbids_it() -> None:
    permissive = book("\n".join(line for line in RULES.splitlines() if '"allow"' in line))
    for script in ("npm publish", "make test", "go vet ./..."):
        assert verdict(script, permissive).verdict is Verdict.ALLOW, script
        assert verdict(script, ALL_RULES).verdict is not Verdict.ALLOW, script


def test_the_harmless_parts_are_allowed_by_themselves() -> None:
    assert [(part, verdict(part).reason) for part in SAFE if verdict(part).verdict is not Verdict.ALLOW] == []


@pytest.mark.req("DEC-02", "DEC-06")
@pytest.mark.parametrize("text", ["rm -rf /", "git push", "'rm' -rf \"/\"", "$'\\x72m' -rf /", "\\rm -r -f /"])
def test_what_is_declined_is_declined_behind_any_one_wrapper(text: str) -> None:
    simple = [before + text for before in BEFORE if not before.startswith("parallel")] + [
        text + after for after in AFTER
    ]
    around = [frame.format(text) for frame in AROUND] + [frame.format(shlex.quote(text)) for frame in AS_TEXT]
    assert [script for script in simple + around if verdict(script, ALL_RULES).verdict is not Verdict.DENY] == []


@pytest.mark.req("DEC-02", "DEC-06", "DEC-07")
def test_a_planted_command_is_never_allowed_however_it_is_hidden() -> None:
    quick(400)(given(hiding_scripts())(check_hidden))()


@LONG
def test_a_planted_command_is_never_allowed_in_the_long_run() -> None:
    quick(50_000)(given(hiding_scripts())(check_hidden))()


# -- (b) any text

PIECES = (
    *("git status", "pytest -q", "cargo test", "ls", "echo a", "cat x", "cd sub", "grep -n a b", "timeout 5 ", "A=1 "),
    *(
        " ",
        "\n",
        "\\\n",
        "'",
        '"',
        "$'",
        "`",
        "$(",
        "$((",
        ")",
        "))",
        "(",
        "{",
        "}",
        "${",
        "&",
        "&&",
        "|",
        "||",
        "|&",
        ";",
    ),
    *(
        ";;",
        "#",
        " #",
        "<<EOF\n",
        "\nEOF\n",
        "<<<",
        ">",
        ">>",
        "2>&1",
        "<(",
        "~",
        "=",
        "*",
        "?",
        "[",
        "]",
        "[[",
        "]]",
        "\\",
    ),
    *(
        "$A",
        "$",
        "!",
        "if ",
        "then ",
        "fi",
        "for x in ",
        "do ",
        "done",
        "while ",
        "case ",
        "esac",
        "function ",
        "\t",
        "\r",
    ),
    *(
        "\x00",
        "\x1b",
        "\u00a0",
        "\u202e",
        "é",
        "time ",
        "-",
        "--",
        "{a,b}",
        "coproc ",
        "!!",
        "%",
        ":",
        ",",
        "@",
        "+",
        "in ",
    ),
)
texts = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(lambda parts: "git status " + " ".join(parts)),
)


def check_any_text(text: str, allowed: list[str]) -> None:
    decision = verdict(text, ALL_RULES)
    assert in_time(text), text
    assert decision.reason.strip()
    if decision.verdict is Verdict.ALLOW:
        allowed.append(text)


def timed(text: str) -> float:
    """Seconds for a text as good as this one, but never seen before: nothing has been kept of it."""
    text = f"{text}{next(FRESH)}"
    began = time.thread_time()
    verdict(text, ALL_RULES)
    return time.thread_time() - began


FRESH = itertools.count()


def in_time(text: str) -> bool:
    """A machine may be busy once, hardly three times."""
    return any(timed(text) <= MAX_SECONDS for _ in range(3))


def rejected_by_bash(scripts: list[str]) -> list[str]:
    """Those that bash does not even parse."""
    driver = 'while IFS= read -r -d "" text; do /bin/bash -n -c "$text" >&2 || printf "%s\\0" "$text"; done'
    given_to_bash = b"".join(script.encode("utf-8", "surrogateescape") + b"\0" for script in scripts)
    done = subprocess.run([*SHELL, driver], input=given_to_bash, capture_output=True, timeout=600, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


def any_text(examples: int) -> None:
    allowed: list[str] = []
    quick(examples)(given(texts)(lambda text: check_any_text(text, allowed)))()
    assert allowed, "nothing was allowed, so nothing was proved"
    assert not [text for text in allowed if "\0" in text]
    assert not rejected_by_bash(list(dict.fromkeys(allowed)))


@pytest.mark.req("DEC-09")
@pytest.mark.needs("bash")
def test_any_text_gets_a_prompt_decision_and_none_that_bash_rejects_is_allowed() -> None:
    any_text(700)


@LONG
@pytest.mark.needs("bash")
def test_any_text_gets_a_prompt_decision_in_the_long_run() -> None:
    any_text(50_000)


UNITS = (
    *(
        "a",
        "(",
        "$(",
        "'",
        '"',
        "`",
        "{",
        "\\",
        "git status;",
        "a|",
        "<<E\n",
        "${",
        "{a,",
        "\n",
        "€",
        "{a,b}",
        "$((",
        "if ",
    ),
    *(
        "f(){ ",
        '"$(',
        "[",
        "case x in ",
        "sudo ",
        "A=1 ",
        "! ",
        "bash -c ",
        "$A",
        "<(",
        "time ",
        "xargs ",
        "{1..9}",
        "*a",
    ),
    *(
        "?*",
        "[a",
        "[!",
        "**/",
        "~",
        "~/",
        "x=~:",
        "'\\''",
        "$'\\x41'",
        "for x in a; do ",
        ";;",
        "& ",
        "2>&1 ",
        "env -S '",
    ),
    *(
        'eval "',
        "A=$A$A;",
        "/",
        "../",
        "-",
        "--x=",
        "if a; then b; fi;",
        "for i in 1 2 3; do ",
        "git -C a ",
        "timeout 1 ",
    ),
)


@pytest.mark.parametrize("unit", UNITS)
def test_a_huge_text_is_decided_without_a_hang(unit: str) -> None:
    for size in (3_000, 20_000, 130_000):
        assert in_time(unit * (size // len(unit))), size


def test_a_text_of_a_megabyte_is_refused_at_once() -> None:
    decision = verdict("git status;" * 100_000)
    assert decision.verdict is Verdict.DENY
    assert in_time("git status;" * 100_000)


@pytest.mark.parametrize(
    "script", ["function x(", "x(", "f() (", "case x", "$e -r ''", "for x in", "cat <<", "${", "$((", "a >", "if", "!"]
)
def test_a_text_that_breaks_off_is_not_allowed_and_raises_nothing(script: str) -> None:
    assert verdict(script).verdict is not Verdict.ALLOW


def test_an_argv_of_any_bytes_is_decided_without_an_exception() -> None:
    @quick(300)
    @given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(("sh", "-c", "sudo", "env", "xargs"))), max_size=6))
    def check(argv: list[str]) -> None:
        assert decide(Command(argv=tuple(argv)), CONTEXT, ALL_RULES).reason.strip()

    check()


# -- (c) harmless decoration


@st.composite
def decorated(draw: st.DrawFn) -> tuple[str, str]:
    """A command that is allowed, and the same in harmless dress."""
    plain = draw(st.sampled_from([part for part in SAFE if part not in ("cd sub", "true")]))
    prefix = draw(st.sampled_from(("", "timeout 60 ", "time ", "CI=1 ", "nice -n 5 ", "RUST_BACKTRACE=1 timeout 5m ")))
    spaced = draw(st.sampled_from((plain, plain.replace(" ", "   "), f"  {plain}  ", plain.replace(" ", "\t", 1))))
    redirect = draw(st.sampled_from(("", " 2>&1", " >/dev/null", " > /dev/null 2>&1", " 2>/dev/null", " &>/dev/null")))
    piped = draw(st.sampled_from(("", " | tail -5", " | head -n 20", " | grep -v x", " | sort | uniq -c", " | wc -l")))
    text = prefix + spaced + redirect + piped
    for _ in range(draw(st.integers(0, 2))):
        text = draw(st.sampled_from(DRESSES)).format(text)
    return plain, draw(st.sampled_from(("{}", "{}\n", "\n{}", "{} # x", "# x\n{}"))).format(text)


DRESSES = (
    *(
        "{}; true",
        "true && {}",
        "cd . && {}",
        "( {} )",
        "{{ {}; }}",
        "{} && echo ok",
        '{}; echo "exit=$?"',
        "{} || true",
    ),
    *("echo ---; {}", "{}\necho ok", "true; {}", "cd sub && {}"),
)


def check_decorated(pair: tuple[str, str]) -> None:
    plain, text = pair
    assert verdict(plain).verdict is Verdict.ALLOW, plain
    dressed = verdict(text)
    assert dressed.verdict is Verdict.ALLOW, (text, dressed.reason)


@pytest.mark.req("DEC-03")
def test_an_allow_is_stable_under_harmless_decoration() -> None:
    quick(300)(given(decorated())(check_decorated))()


@LONG
def test_an_allow_is_stable_under_harmless_decoration_in_the_long_run() -> None:
    quick(20_000)(given(decorated())(check_decorated))()


# -- (d) damage to a rule file

STATEMENTS = (
    'prefix_rule(pattern=["terraform"], decision="allow")',
    'prefix_rule(pattern=["terraform", "destroy"], decision="forbidden", justification="no")',
    'prefix_rule(\n    pattern = ["kubectl", ["get", "describe"]],\n    decision = "allow",\n)',
    'prefix_rule(pattern=["kubectl"], decision="prompt")',
    "prefix_rule(pattern=['git', 'push'], decision='forbidden')",
    'prefix_rule(pattern=["gh"], match=[["gh", "pr"]], not_match=["ls"])',
    'prefix_rule(pattern=["pytest"], decision="prompt", justification="""of\nseveral lines""")',
    'prefix_rule(pattern=["docker", "ps"])  # a note (with "signs")',
    'TOOLS = ["helm", "helmfile"]',
    'prefix_rule(pattern=[["helm", "flux"]], decision="forbidden")',
)
TRIED = (
    *(
        "terraform plan",
        "terraform destroy",
        "kubectl get pods",
        "kubectl delete pod x",
        "git push",
        "gh pr view",
        "pytest",
    ),
    *("docker ps", "helm ls", "git status"),
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str, str]:
    """A file with one statement damaged, the file without that statement, and the damaged statement."""
    chosen = draw(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=5, unique=True))
    which = draw(st.integers(0, len(chosen) - 1))
    broken = chosen[which]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(broken) - 1))
        kept = at + draw(st.integers(0, 6))
        broken = broken[:at] + draw(st.sampled_from(DAMAGE)) + broken[kept:]
    joint = draw(st.sampled_from(("\n", "\n\n", "\n# note\n", "\r\n")))
    rest = chosen[:which] + chosen[which + 1 :]
    return joint.join((*chosen[:which], broken, *chosen[which + 1 :])), joint.join(rest), broken


DAMAGE = (
    "",
    "(",
    ")",
    "[",
    "]",
    '"',
    "'",
    '"""',
    ",",
    "#",
    "\n",
    "\\",
    "=",
    "x",
    "é",
    "prefix_rule(",
    "\x00",
    "*",
    "allow",
    " ",
)


def check_damage(case: tuple[str, str, str]) -> None:
    whole, without, broken = case
    alone = parse_rules(broken, file="p.rules", layer=Layer.GLOBAL)
    if alone.rules or not alone.warnings:
        return  # still a statement, if another one
    with_damage, rulebook = book(whole), book(without)
    for script in TRIED:
        after, before = verdict(script, with_damage), verdict(script, rulebook)
        assert after.verdict >= before.verdict, (script, whole, without, after.reason)


@pytest.mark.req("DEC-04")
def test_a_damaged_statement_never_permits_more_than_no_statement() -> None:
    quick(120)(given(damaged())(check_damage))()


@LONG
def test_a_damaged_statement_never_permits_more_in_the_long_run() -> None:
    quick(10_000)(given(damaged())(check_damage))()
