"""What a command falls under: allow rules to the token, restrictions by suspicion, and who overrides whom."""

from __future__ import annotations

import statistics
import time

import pytest

from bubbles.controller.policy.contract import Effect, Layer, Match
from bubbles.controller.policy.rules import Rulebook, Suspicion, bind, parse_rules, resolve_precedence
from bubbles.controller.policy.shell.reading import UNKNOWN


def book(assistant: str = "", *, world: str = "", session: str = "") -> Rulebook:
    texts = {Layer.GLOBAL: world, Layer.ASSISTANT: assistant, Layer.SESSION: session}
    return bind(rule for layer, text in texts.items() for rule in parse_rules(text, file="r", layer=layer).rules)


def rule(*pattern: object, decision: str = "allow") -> str:
    return f"prefix_rule(pattern={list(pattern)!r}, decision={decision!r})\n"


def allowed(rules: Rulebook, command: str) -> bool:
    return bool(rules.allows(tuple(command.split())))


def restricted(rules: Rulebook, *guess: str) -> list[tuple[Effect, bool]]:
    """Each rule that is found, and whether it is certain."""
    return [(match.effect, not isinstance(match, Suspicion)) for match in rules.restrictions(guess)]


SURE = [(Effect.FORBIDDEN, True)]
PERHAPS = [(Effect.PROMPT, False)]
NOTHING: list[tuple[Effect, bool]] = []


@pytest.mark.req("DEC-06")
def test_an_allow_rule_is_a_prefix_of_whole_tokens_as_they_are_written() -> None:
    rules = book(rule("gh", "pr", ["view", "list"]))
    assert allowed(rules, "gh pr view")
    assert allowed(rules, "gh pr list --web 7")
    for other in (
        "gh pr",
        "gh pr views",
        "gh --repo x pr view",
        "GH pr view",
        "/usr/bin/gh pr view",
        "./gh pr view",
        "",
    ):
        assert not allowed(rules, other)


def test_a_match_says_which_rule_it_was() -> None:
    text = '\nprefix_rule(pattern=["gh", ["pr", "run"]], justification="reads")\n'
    rules = bind(parse_rules(text, file="a.rules", layer=Layer.SESSION).rules)
    assert rules.allows(("gh", "run", "x")) == (
        Match(
            effect=Effect.ALLOW,
            prefix=("gh", "run"),
            layer=Layer.SESSION,
            file="a.rules",
            line=2,
            justification="reads",
        ),
    )


@pytest.mark.parametrize(
    "guess",
    [
        "git push",
        "/usr/bin/git push origin",
        "./git push",
        "git -C sub push",
        "git --git-dir=x -c a=b push",
        "git --no-pager push",
        "git -C x -C y -- push",
    ],
)
def test_a_restriction_sees_through_paths_and_options_before_the_sub_command(guess: str) -> None:
    assert restricted(book(rule("git", "push", decision="forbidden")), *guess.split()) == SURE


@pytest.mark.parametrize(
    ("pattern", "guess"),
    [
        (("docker", "compose", "down"), "docker compose -f x.yml down"),
        (("gh", "pr", "merge"), "gh pr --repo x merge 7"),
        (("mytool", "push"), "mytool --fast push"),
        (("mytool", "push"), "mytool --at x push"),
        (("cargo", "publish"), "cargo +nightly --unknown x publish"),
        (("./run.sh",), "run.sh"),
        (("/usr/bin/git", "push"), "git push"),
    ],
)
def test_where_two_readings_are_possible_a_restriction_is_suspected(pattern: tuple[str, ...], guess: str) -> None:
    assert restricted(book(rule(*pattern, decision="forbidden")), *guess.split()) == PERHAPS


@pytest.mark.parametrize(
    "guess",
    ["git -C push status", "git log push", "git", "git -C", "gitk push", "git status -C push", "git -c push=1 log"],
)
def test_a_restriction_is_not_seen_where_it_is_not(guess: str) -> None:
    assert restricted(book(rule("git", "push", decision="forbidden")), *guess.split()) == NOTHING


@pytest.mark.parametrize(
    ("guess", "found"),
    [
        (("git", UNKNOWN), PERHAPS),
        (("git", f"pu{UNKNOWN}"), PERHAPS),
        (("git", f"lo{UNKNOWN}"), NOTHING),
        (("git", UNKNOWN, "push"), PERHAPS),
        (("git", f"-{UNKNOWN}", "push"), PERHAPS),
        ((UNKNOWN, "push"), PERHAPS),
        ((f"/usr/bin/{UNKNOWN}", "push"), PERHAPS),
        ((f"{UNKNOWN}/git", "push"), PERHAPS),
        ((f"gi{UNKNOWN}", "push"), PERHAPS),
        ((f"x{UNKNOWN}", "push"), NOTHING),
        ((UNKNOWN, "log"), NOTHING),
        ((UNKNOWN,), NOTHING),
        ((), NOTHING),
    ],
)
def test_an_unknown_word_may_be_what_a_restriction_names(
    guess: tuple[str, ...], found: list[tuple[Effect, bool]]
) -> None:
    assert restricted(book(rule("git", "push", decision="forbidden")), *guess) == found


def test_more_options_than_are_looked_through_are_suspected() -> None:
    guess = ("git", *["-c", "a=b"] * 300, "push")
    assert restricted(book(rule("git", "push", decision="forbidden")), *guess) == PERHAPS


def test_an_empty_token_in_a_pattern_matches_only_itself() -> None:
    rules = book(rule("") + rule("x", "", decision="forbidden"))
    assert not allowed(rules, "curl x")
    assert restricted(rules, "x", "y") == NOTHING
    assert restricted(rules, "x", "") == SURE


# -- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-06")
def test_a_rule_that_names_a_plain_script_grants_that_command_in_any_shell() -> None:
    rules = book(rule("/bin/zsh", "-lc", "cargo test"))
    assert allowed(rules, "cargo test --all")
    assert not allowed(rules, "cargo testing")
    for shell in ("bash -c", "/bin/bash -lc", "sh -l -c", "/usr/bin/env"):
        assert bool(rules.allows((*shell.split(), "cargo test"))) is (shell != "/usr/bin/env")
    assert [match.prefix for match in rules.script_grants("cargo test")] == [("cargo test",)]


@pytest.mark.parametrize(
    "words",
    [
        ("bash", "-lc", "make deploy && id"),
        ("bash", "-lc", "make deploy", "x"),
        ("./bash", "-lc", "make deploy"),
        ("/tmp/bash", "-lc", "make deploy"),
        ("bash", "-lx", "make deploy"),
        ("bash", "--rcfile", "x", "-c", "make deploy"),
        ("bash", "-c", "make", "deploy"),
    ],
)
def test_another_script_or_another_shell_is_not_granted(words: tuple[str, ...]) -> None:
    assert not book(rule("bash", "-lc", "make deploy")).allows(words)


def test_a_script_that_is_more_than_one_command_is_granted_as_it_stands() -> None:
    script = "cd x && make"
    rules = book(rule(["sh", "bash"], "-c", script))
    assert rules.script_grants(script)
    assert rules.allows(("zsh", "-lc", script))
    assert not rules.script_grants(script + " ")
    assert not allowed(rules, "make")
    assert not allowed(rules, "cd x")


@pytest.mark.parametrize(
    "script", ["A=1 make", "time make", "make $X", "make > x", "make ~/x", "make &", "! make", "make *"]
)
def test_what_only_looks_like_a_plain_command_is_no_prefix(script: str) -> None:
    rules = book(rule("bash", "-c", script))
    assert not rules.allows((*script.split(), "more"))
    assert not allowed(rules, "make")
    assert rules.script_grants(script)


def test_quotes_in_a_script_are_no_hindrance() -> None:
    rules = book(rule("bash", "-lc", "rg -n 'a b' src"))
    assert rules.allows(("rg", "-n", "a b", "src", "tests"))


def test_a_restriction_that_names_a_script_forbids_it_in_any_shell() -> None:
    rules = book(rule("zsh", "-lc", "cargo publish", decision="forbidden"))
    assert restricted(rules, "cargo", "--locked", "publish") == SURE
    assert restricted(rules, "zsh", "-lc", "cargo publish") == SURE
    assert [match.effect for match in rules.script_grants("cargo publish")] == [Effect.FORBIDDEN]


# -- precedence -------------------------------------------------------------------------------------------------------


def verdict(rules: Rulebook, *words: str) -> tuple[Effect | None, list[tuple[Layer, bool]]]:
    effect, matches = resolve_precedence((*rules.allows(words), *rules.restrictions(words)))
    return effect, [(match.layer, match.overridden) for match in matches]


def test_no_rule_is_no_effect() -> None:
    assert resolve_precedence(()) == (None, ())
    assert verdict(Rulebook(), "x") == (None, [])


@pytest.mark.req("DEC-07")
@pytest.mark.parametrize("order", [1, -1])
def test_within_a_layer_the_strictest_speaks(order: int) -> None:
    lines = [rule("npm"), rule("npm", "publish", decision="prompt"), rule("npm", "publish", "x", decision="forbidden")]
    rules = book("".join(lines[::order]))
    assert verdict(rules, "npm", "test")[0] is Effect.ALLOW
    assert verdict(rules, "npm", "publish")[0] is Effect.PROMPT
    assert verdict(rules, "npm", "publish", "x")[0] is Effect.FORBIDDEN


@pytest.mark.req("DEC-05", "DEC-07")
def test_a_stronger_layer_overrides_and_the_overridden_is_shown() -> None:
    rules = book(rule("curl"), world=rule("curl", decision="forbidden"))
    assert verdict(rules, "curl") == (Effect.ALLOW, [(Layer.ASSISTANT, False), (Layer.GLOBAL, True)])
    rules = book(rule("curl"), world=rule("curl"), session=rule("curl", decision="prompt"))
    assert verdict(rules, "curl")[0] is Effect.PROMPT


def test_a_suspicion_lifts_nothing_of_a_weaker_layer() -> None:
    world = rule("mytool", "push", decision="forbidden")
    rules = book(world=rule("mytool", decision="forbidden"), session=rule("mytool", "push", decision="prompt"))
    assert verdict(rules, "mytool", "push")[0] is Effect.PROMPT
    assert verdict(rules, "mytool", "--x", "push")[0] is Effect.FORBIDDEN
    rules = book(world=rule("mytool"), session=rule("mytool", "push", decision="forbidden"))
    assert verdict(rules, "mytool", "--x", "push")[0] is Effect.PROMPT
    rules = book(world=world, session=rule("mytool"))
    assert verdict(rules, "mytool", "--x", "push")[0] is Effect.ALLOW


def test_a_damaged_restriction_lifts_nothing_of_a_weaker_layer() -> None:
    damaged = 'prefix_rule(pattern=["rm"], decision="prompt", match=["cat"])\n'
    assert verdict(book(world=rule("rm", decision="forbidden"), session=damaged), "rm")[0] is Effect.FORBIDDEN
    assert verdict(book(world=rule("rm"), session=damaged), "rm")[0] is Effect.PROMPT


# -- speed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["programs", "sub-commands"])
def test_a_look_up_among_a_thousand_rules_takes_microseconds(shape: str) -> None:
    effects = ("allow", "prompt", "forbidden", "allow")
    rules = book(
        "".join(
            rule(*((f"tool{n}", "run") if shape == "programs" else ("git", f"verb{n}")), decision=effects[n % 4])
            for n in range(1_000)
        )
    )
    words = ("git", "log", "--oneline", "-n", "5", "src")

    def once() -> float:
        began = time.perf_counter()
        for _ in range(100):
            rules.allows(words)
            rules.restrictions(words)
        return (time.perf_counter() - began) / 200

    assert statistics.median(once() for _ in range(15)) < 20e-6  # about 1 µs; the rest is room for a busy machine
