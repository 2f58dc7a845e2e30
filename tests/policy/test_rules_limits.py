"""Hostile and enormous rule files: one clear warning, soon, and what else the file says is in force."""

from __future__ import annotations

import time

import pytest

from bubbles.controller.policy.contract import Layer
from bubbles.controller.policy.rules import Parsed, parse_rules
from bubbles.controller.policy.rules.parse import MAX_BYTES, MAX_NOTICES, MAX_RULES

FORBID = 'prefix_rule(pattern=["rm"], decision="forbidden")\n'


def parsed(text: str) -> Parsed:
    began = time.monotonic()
    result = parse_rules(text, file="my.rules", layer=Layer.GLOBAL)
    assert time.monotonic() - began < 5
    return result


@pytest.mark.parametrize(
    "hostile",
    [
        "[0 for _ in range(10 * 100000000)]",
        "[0 for a in range(1000) for b in range(1000) for c in range(1000)]",
        'x = "a" * 1000000000',
        'x = "a"\nfor i in range(60):\n    x = x + x',
        'x = ["a"]\nfor i in range(60):\n    x.extend(x)',
        'x = ["a"]\nfor i in range(60):\n    x += x',
        'x = "ab"\nfor i in range(30):\n    x = x.join([x, x])',
        'x = "a"\nfor i in range(30):\n    x = x.replace("a", "aaaa")',
        'x = "a"\nfor i in range(30):\n    x = "{0}{0}{0}".format(x)',
        'x = "a"\nfor i in range(30):\n    x = "%s%s%s" % (x, x, x)',
        'x = "a"\nfor i in range(30):\n    x = f"{x}{x}{x}"',
        'x = "a"\nfor i in range(60):\n    if i:\n        x = x + x\n    else:\n        x = "a"',
        "x = 1\nfor i in range(60):\n    x = x << 60",
        "f = lambda x: x + x\ny = f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f('a'))))))))))))))))))",
        "def f(x):\n    return f(x)\nf(1)",
        "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nf(1)",
        "def f(g):\n    return g(g)\nf(f)",
        "def f(x):\n    return x\nx = sorted([1] * 100, key=f)",
        "x = " + "[" * 50_000 + "]" * 50_000,
        "x = " + "-" * 50_000 + "1",
        "x = " + "not " * 50_000 + "1",
        "x = " + "+".join(["1"] * 50_000),
        "x = " + "lambda: " * 20_000 + "1",
        "prefix_rule(pattern=" + "[" * 5_000 + "]" * 5_000 + ")",
        "f" + "()" * 50_000,
        "if 1:\n    pass\n" + "elif 1:\n    pass\n" * 1_000,
        "x = " + "9" * 50_000,
        "a = []\na.append(a)\nprefix_rule(pattern=a)",
    ],
    ids=lambda text: str(text)[:40].replace("\n", "|"),
)
def test_a_statement_that_could_cost_too_much_is_a_warning_and_the_rest_counts(hostile: str) -> None:
    result = parsed(f"{FORBID}{hostile}\n")
    assert [rule.pattern for rule in result.rules] == [(("rm",),)]
    assert 1 <= len(result.warnings) <= 2
    assert all(warning.line > 1 for warning in result.warnings)


@pytest.mark.parametrize(
    "hostile",
    [
        "(\n" * 12_000,
        '"\n' * 5_000,
        '"""\n' * 5_001,
        "prefix_rule(\n" * 10_000,
        "\0" * 100_000,
        "x\n" * 1_000,
        "\\\n" * 9_999 + "(",
        '"""' + '\\"""' * 20_000,
    ],
    ids=["brackets", "quotes", "triples", "calls", "nul", "names", "joined", "escapes"],
)
def test_a_file_of_rubbish_has_few_warnings_and_keeps_its_restriction(hostile: str) -> None:
    result = parsed(FORBID + hostile)
    assert [rule.pattern for rule in result.rules] == [(("rm",),)]
    assert 1 <= len(result.warnings) <= MAX_NOTICES + 1


def test_a_file_that_is_too_large_is_refused_with_the_limit() -> None:
    result = parsed(FORBID + "#" * 5_000_000)
    assert result.rules == ()
    (warning,) = result.warnings
    assert f"{MAX_BYTES:,} bytes" in warning.text
    assert "restrictions included" in warning.text


@pytest.mark.parametrize("hostile", [";" * 900_000, "if 1:\n x\n" * 100_000, "zzz\n" * 200_000])
def test_a_file_of_too_many_lines_is_refused_at_once(hostile: str) -> None:
    started = time.thread_time()
    (warning,) = parsed(FORBID + hostile).warnings
    assert "lines and semicolons" in warning.text
    assert time.thread_time() - started < 1.0


def test_too_many_rules_are_refused_with_the_limit() -> None:
    result = parsed('prefix_rule(["a"])\n' * (MAX_RULES + 1))
    assert result.rules == ()
    (warning,) = result.warnings
    assert f"{MAX_RULES:,} rules" in warning.text


def test_many_faults_are_told_in_a_few_sentences() -> None:
    result = parsed("x y\n" * 100)
    assert len(result.warnings) == MAX_NOTICES + 1
    assert "80 more places" in result.warnings[-1].text


def test_a_pattern_with_countless_combinations_is_no_burden() -> None:
    result = parsed('prefix_rule(pattern=[["ls", "cat"]' + ', ["a", "b", "c", "d"]' * 40 + "])\n")
    assert len(result.rules) == 1
    assert result.warnings == ()
