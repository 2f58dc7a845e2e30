"""What of a rule file counts, and what is said about the rest."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.contract import Effect, Layer
from bubbles.controller.policy.rules import Parsed, Rule, parse_rules

FORBID_RM = 'prefix_rule(pattern=["rm"], decision="forbidden")\n'
ALLOW_LS = 'prefix_rule(pattern=["ls"])\n'


def parsed(text: str) -> Parsed:
    return parse_rules(text, file="my.rules", layer=Layer.ASSISTANT)


def heads(result: Parsed) -> list[tuple[str, Effect]]:
    return [(rule.pattern[0][0], rule.effect) for rule in result.rules]


def only(text: str) -> Rule:
    result = parsed(text)
    assert not result.warnings
    (rule,) = result.rules
    return rule


def test_a_rule_knows_all_that_its_call_says_and_where_it_stands() -> None:
    rule = only('\n\nprefix_rule(\n    ["git", ["push", "pull"]],\n    "prompt",\n    justification="asks",\n)\n')
    assert rule == Rule(
        pattern=(("git",), ("push", "pull")),
        effect=Effect.PROMPT,
        justification="asks",
        file="my.rules",
        line=3,
        layer=Layer.ASSISTANT,
    )


def test_a_rule_made_by_a_function_has_the_line_of_its_own_call() -> None:
    assert only('def deny(x):\n    y = x\n    prefix_rule(pattern=[y], decision="forbidden")\n\ndeny("dd")\n').line == 3


@pytest.mark.req("DEC-04")
@pytest.mark.parametrize(
    "damaged",
    [
        'prefix_rule(pattern=["cp"]',
        'prefix_rule(pattern=["cp"]))',
        'prefix_rule(pattern=["cp])',
        'prefix_rule(pattern="cp"])',
        'prefix_rule(pattern=["cp"] decision="allow")',
        'prefix_rule(pattern=["cp"], decision="allwo")',
        'prefix_rule(patern=["cp"])',
        "prefix_rule(pattern=[copy])",
        'prefix_rule(\n    pattern=["cp",\n    decision="allow",\n)',
        '  prefix_rule(pattern=["cp"])',
        'load("//x:y.bzl", "z")',
        "while True:\n    pass",
        "prefix_rule(pattern=[])\\",
        'x = "',
        'if True:\n    prefix_rule(pattern=["cp"]\n',
        'prefix_rule(pattern=["c\0p"])',
        'prefix_rule(pattern=["c\udcffp"])',
        'prefix_rule(pattern=["cp"])\rx',
        "def f():\n    f()\nf()",
    ],
)
def test_a_damaged_statement_is_a_warning_and_its_neighbours_count(damaged: str) -> None:
    result = parsed(FORBID_RM + damaged + "\n" + ALLOW_LS + 'prefix_rule(pattern=["dd"], decision="prompt")\n')
    assert heads(result) == [("rm", Effect.FORBIDDEN), ("ls", Effect.ALLOW), ("dd", Effect.PROMPT)]
    assert result.warnings
    assert all(2 <= warning.line <= 1 + damaged.count("\n") + 1 for warning in result.warnings)


def test_a_statement_that_fails_midway_grants_nothing_but_still_restricts() -> None:
    result = parsed(
        '[prefix_rule(pattern=[x], decision=y) for x, y in [("ls", "allow"), ("dd", "prompt"), (1, "allow")]]\n'
    )
    assert heads(result) == [("dd", Effect.PROMPT)]
    assert result.rules[0].flaw
    assert len(result.warnings) == 3


def test_names_that_are_defined_later_are_known_inside_functions_also_in_a_damaged_file() -> None:
    result = parsed("def deny():\n    prefix_rule(pattern=[tool()])\nx = (\ndef tool():\n    return 'ls'\ndeny()\n")
    assert heads(result) == [("ls", Effect.ALLOW)]
    assert [warning.line for warning in result.warnings] == [3]


def test_statements_after_a_failed_one_do_not_see_what_it_changed() -> None:
    result = parsed('p = ["ls"]\n[p.append("-l"), fail("no")]\nprefix_rule(pattern=p)\n')
    assert [rule.pattern for rule in result.rules] == [(("ls",),)]


@pytest.mark.parametrize(
    "inner",
    [
        '"""\nprefix_rule(pattern=["curl"])\n"',  # the end of a docstring is damaged
        '"\nprefix_rule(pattern=["curl"])\n"""',  # or its beginning
        'if False:\nprefix_rule(pattern=["curl"])',
        'x = =\\\nprefix_rule(pattern=["curl"]),',
        'x = [\nprefix_rule(pattern=["curl"]),\n] )',
        'x = [\nprefix_rule(pattern=["curl"])\n] )',
        'if False:\n    pass\nels:\n    prefix_rule(pattern=["curl"])',
        'if True:\n    prefix_rule(pattern=["curl"])\nels:\n    pass',
        'prefix_rule(pattern=["curl"]); x y',
        '# prefix_rule(pattern=["x"])\rprefix_rule(pattern=["curl"])',
    ],
)
def test_what_may_be_a_piece_of_a_damaged_statement_grants_nothing(inner: str) -> None:
    result = parsed(f"{FORBID_RM}{inner}\n")
    assert heads(result) == [("rm", Effect.FORBIDDEN)]
    assert result.warnings


def test_a_restriction_in_a_piece_of_a_damaged_statement_is_kept_but_half_trusted() -> None:
    (rule,) = parsed('if False:\nprefix_rule(pattern=["curl"], decision="prompt")\n').rules
    assert rule.flaw
    (rule,) = parsed('if True:\n    prefix_rule(pattern=["dd"], decision="forbidden")\n    x y\n').rules
    assert rule.flaw


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('match=["cat x"]', "in match is not matched"),
        ('not_match=["ls -l"]', "in not_match is matched"),
        ("not_match=[['/bin/ls']]", "in not_match is matched"),
        ('match=["ls \'a"]', "not closed"),
        ('match=["ls \\\\"]', "ends in a backslash"),
        ('match="ls"', "must be a list"),
        ("match=[1]", "holds a number"),
        ("match=[[]]", "is empty"),
        ('justification=" "', "justification is empty"),
        ("justification=1", "justification is a number"),
    ],
)
def test_a_rule_that_contradicts_itself_is_reported_and_allows_nothing(arguments: str, said: str) -> None:
    allow = parsed(f'prefix_rule(pattern=["ls"], {arguments})\n')
    assert allow.rules == ()
    assert [said in warning.text for warning in allow.warnings] == [True]
    forbid = parsed(f'prefix_rule(pattern=["ls"], decision="forbidden", {arguments})\n')
    assert [bool(rule.flaw) for rule in forbid.rules] == [True]
    assert len(forbid.warnings) == 1


def test_examples_are_cut_into_words_as_a_shell_does() -> None:
    examples = r"""["ls 'a b' \"c\\\"d\" e\\ f # note", "ls x#y  z", "ls \"$x\\y\""]"""
    assert only(f'prefix_rule(pattern=["ls", ["a b", "x#y", "$x\\\\y"]], match={examples})\n').line == 1


def test_host_executable_narrows_examples_and_is_otherwise_a_notice() -> None:
    result = parsed('host_executable(name="ls", paths=[])\nprefix_rule(pattern=["ls"], not_match=["/bin/ls"])\n' * 2)
    assert len(result.rules) == 2
    assert [(notice.line, notice.fault) for notice in result.notices] == [(1, False)]


def test_several_ignored_functions_are_one_notice() -> None:
    result = parsed('network_rule(host="x")\nhost_executable(name="git", paths=["/usr/bin/git"])\n')
    assert [notice.text for notice in result.notices] == [
        "network_rule and host_executable have no effect here; only prefix_rule has."
    ]


@pytest.mark.parametrize(
    "arguments",
    ['name="git"', 'name="a/b", paths=[]', 'name="git", paths=["git"]', 'name="git", paths="x"', "name=1, paths=[]"],
)
def test_a_wrong_host_executable_is_a_warning(arguments: str) -> None:
    assert len(parsed(f"host_executable({arguments})\n").warnings) == 1


def test_a_byte_order_mark_is_left_out_with_a_warning() -> None:
    result = parsed("\N{ZERO WIDTH NO-BREAK SPACE}" + ALLOW_LS)
    assert heads(result) == [("ls", Effect.ALLOW)]
    assert [warning.line for warning in result.warnings] == [1]


def test_bytes_that_are_not_utf8_in_a_comment_cost_nothing_but_a_warning() -> None:
    result = parsed(FORBID_RM + "# caf\udce9\n" + ALLOW_LS)
    assert heads(result) == [("rm", Effect.FORBIDDEN), ("ls", Effect.ALLOW)]
    assert [warning.line for warning in result.warnings] == [2]


def test_windows_line_ends_are_fine() -> None:
    result = parsed((FORBID_RM + "# c\n" + ALLOW_LS).replace("\n", "\r\n"))
    assert [rule.line for rule in result.rules] == [1, 3]
    assert result.notices == ()


@pytest.mark.parametrize(
    "text",
    [
        'for x in ["ls", "cat"]:\n    if x != "cat":\n        prefix_rule(pattern=[x])\n',
        'a, b = "l", "s"\nprefix_rule(pattern=[a + b])\n',
        'd = {"x": ["ls"]}\nd["y"] = 1\nprefix_rule(pattern=d["x"])\n',
        'prefix_rule(pattern="ls".split())\n',
        'prefix_rule(pattern=["%s%s" % ("l", "s")])\n',
        'prefix_rule(pattern=["sl"[::-1]])\n',
        'prefix_rule(pattern=["ls"] * 1)\n',
        'x = "l"\nx += "s"\nprefix_rule(pattern=[x])\n',
        'def f(a, b="s"):\n    return a + b\nprefix_rule(pattern=[f("l")])\n',
        'prefix_rule(*[["ls"]])\n',
        'prefix_rule(pattern=[x for x in ["ls", "cat"] if x.startswith("l")])\n',
        'prefix_rule(pattern=[(lambda x: x)("ls")])\n',
        'prefix_rule(pattern=[r"ls"])\n',
        'prefix_rule(pattern=["LS".lower()]) if len("x") == 1 and not False else None\n',
        'prefix_rule(pattern=list(("ls",)))\n',
        'X = {k: v for k, v in [("a", "ls")]}\nprefix_rule(pattern=X.values())\n',
        'x = "cat"\nx = "ls"\nprefix_rule(\\\npattern=[x])\n',
    ],
)
def test_ordinary_starlark_is_evaluated(text: str) -> None:
    assert only(text).pattern == (("ls",),)
