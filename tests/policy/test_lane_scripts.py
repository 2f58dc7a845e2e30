"""The small languages that the lane reads: sed, awk, jq, cmake definitions, names of tasks and targets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.controller.policy.lane.judge import PROGRAMS
from bubbles.controller.policy.lane.scripts import AWK, JQ, SED
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import TARGET, TASK
from tests.policy.lane_trial import ROOT, place

pytestmark = pytest.mark.req("DEC-03")
SITE = Site.of(frozenset({ROOT}), place())


def accepts(kind: Kind, text: str) -> bool:
    return kind.check(text, SITE) is None


@pytest.mark.parametrize(
    "script", ["1,40p", "$p", "/a/,/b/p", "5q", "s/a/b/g", "s|/x|/y|", "/x/{p;q}", "1!p", "0~3p", "$="]
)
def test_a_sed_script_that_only_prints_is_accepted(script: str) -> None:
    assert accepts(SED, script)


@pytest.mark.parametrize(
    "script",
    [
        "w x",
        "1w x",
        "e",
        "1e id",
        "s/a/b/e",
        "s/a/b/w x",
        "s/a/b/ge",
        "r x",
        "R x",
        "W x",
        "a x",
        "/[/]/e;/]/p",
        "p;e id",
        "s,a,b,e",
        "{e}",
        "1,2{e}",
        "$!{e id\n}",
        "b x",
        "y/a/b/",
        "s/a\\/b/e",
        "s/[/]/e;s/]/",
        "\\xaxe",
        "p\ne id",
        "i\\x",
    ],
)
def test_a_sed_script_that_may_write_or_run_is_not(script: str) -> None:
    assert not accepts(SED, script)


@given(st.text(alphabet="spe/w[]\\{};1,$|#!gx \n", max_size=40))
def test_a_sed_script_with_a_command_that_runs_or_writes_is_never_accepted(text: str) -> None:
    for planted in (f"{text}\ne id", f"e id\n{text}", f"{text};w x", f"w x\n{text}", f"{text}\n1,2e"):
        assert not accepts(SED, planted)


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}",
        "NR>5",
        "{ if ($1 > 2) print }",
        "/a|b/",
        "{s+=$1} END {print s/NR}",
        "!seen[$0]++",
        'BEGIN{FS=":"} $1 ~ /^x/ {print $2}',
        "{ if ($1 >= 2) print }",
        '$3 > 10 && $2 != "a>b|c"',
    ],
)
def test_an_awk_program_that_only_prints_is_accepted(program: str) -> None:
    assert accepts(AWK, program)


@pytest.mark.parametrize(
    "program",
    [
        'BEGIN{system("id")}',
        '{print > "x"}',
        "{print >> f}",
        '{print | "sh"}',
        '{"id" | getline}',
        "{getline < f}",
        '{i++ / 2 | "sh" ; a = 1 / 2}',
        'x\n/"/ { system("id") } /"/',
        '@load "x"',
        '{print ENVIRON["X"]}',
        '{a = (b) / c | "sh" / d}',
        '{print $1 / 2 | "sh" /x}',
        '/[[:x:]/]/ {print > "x"} /]/',
        '{ # }\n system("x")',
        "function f(){}",
        "{close(x)}",
        "}{",
        "{print",
        "({)print > f}",
        "{print (1) > f}",
    ],
)
def test_an_awk_program_that_may_write_or_run_is_not(program: str) -> None:
    assert not accepts(AWK, program)


@given(st.text(alphabet='{}()/"\\;|><&$ax1\n +-', max_size=40))
def test_an_awk_program_with_a_call_that_runs_is_never_accepted_in_front(text: str) -> None:
    assert not accepts(AWK, f'BEGIN{{system("id")}} {text}')
    assert not accepts(AWK, f'{{print | "sh"}} {text}')


@pytest.mark.parametrize("program", ["env", "$ENV.X", 'import "a" as b; .', 'include "a"; .', "[env]", "{a: env}"])
def test_a_jq_program_that_reaches_out_is_not_accepted(program: str) -> None:
    assert not accepts(JQ, program)


def test_a_jq_program_may_use_such_words_as_keys() -> None:
    assert all(accepts(JQ, program) for program in (".", ".env", ".include[]", '."import"', ".environment | keys"))


@pytest.mark.parametrize(
    "name", "test test:unit lint typecheck type-check build build:docs format:check check-types test_unit".split()
)
def test_a_task_that_says_test_lint_check_or_build_is_accepted(name: str) -> None:
    assert accepts(TASK, name)


@pytest.mark.parametrize(
    "name",
    """deploy test:e2e:prod lint:fix build:prod start dev test-deploy format ci docs release Test test;x ../test
    test@x -x test: test::x""".split(),
)
def test_a_task_with_any_other_word_is_not(name: str) -> None:
    assert not accepts(TASK, name)


@pytest.mark.parametrize("name", "all clean unit_tests installer_tests test run_tests libfoo.a src/app docs".split())
def test_a_target_that_builds_is_accepted(name: str) -> None:
    assert accepts(TARGET, name)


@pytest.mark.parametrize(
    "name",
    """install INSTALL install/strip uninstall package package_source deploy run run_app edit_cache Nightly format -x
    ../x /x""".split(),
)
def test_a_target_named_for_more_is_not(name: str) -> None:
    assert not accepts(TARGET, name)


def test_no_text_makes_a_small_language_slow() -> None:
    hostile = [
        "p" * 299 + "!",
        "/" + "a" * 299,
        " " * 299 + "~",
        "{p;" * 100,
        "/[a]" * 75,
        "}" * 150 + " " * 149 + "w",
        "s/a/b/;" * 42,
    ]
    for kind in (SED, AWK, JQ):
        for text in hostile:
            took = []
            for _ in range(3):  # a busy machine may take one of them away
                begun = time.perf_counter()
                kind.check(text, SITE)
                took.append(time.perf_counter() - begun)
            assert min(took) < 0.05, text


# the table itself --------------------------------------------------------------------------------------------------


def tools() -> list[tuple[str, Tool]]:
    found: dict[int, tuple[str, Tool]] = {}
    waiting = list(PROGRAMS.items())
    while waiting:
        name, tool = waiting.pop()
        if id(tool) in found:
            continue
        found[id(tool)] = (name, tool)
        waiting += [(f"{name} {verb}", sub) for verb, sub in tool.subtools.items()]
        waiting += [(f"{name} …", sub) for sub in (tool.after, tool.rest) if sub is not None]
        for _arity, kind in tool.options.values():
            if kind is not None and kind.into is not None:
                waiting += [(f"{name} {key}", sub) for key, sub in kind.into.items()]
    return list(found.values())


def test_no_option_is_accepted_and_a_trap_at_once() -> None:
    # A trap may repeat an accepted option only to say why another value of it is refused (pytest -p no:NAME).
    said = {
        f"{name}: {option}"
        for name, tool in tools()
        for option in tool.reasons
        if option in tool.options and option not in ("-p", "--coverage", "-ldflags", "-gcflags")
    }
    assert not said, said


def test_every_option_that_an_entry_relies_on_is_one_of_its_own() -> None:
    for name, tool in tools():
        for option in f"{tool.needs} {tool.operands_need} {tool.lead_unless} {tool.glued}".split():
            assert option in tool.options, (name, option)


def test_every_entry_that_can_refuse_for_want_of_something_says_why() -> None:
    for name, tool in tools():
        assert tool.why or not tool.needs, name


def test_options_are_written_as_options() -> None:
    for name, tool in tools():
        for option in tool.options:
            assert option.startswith("-"), (name, option)
