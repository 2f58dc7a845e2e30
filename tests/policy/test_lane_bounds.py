"""What the lane's checks cost, and what they look at where a command may run in another folder."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from bubbles.controller.policy import lane
from bubbles.controller.policy.lane.judge import PROGRAMS
from bubbles.controller.policy.lane.kinds import without_lines
from bubbles.controller.policy.lane.surroundings import inert
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.shell.reading import Assignment, Word
from tests.policy.lane_trial import ROOT, place, refusal

pytestmark = pytest.mark.req("DEC-03", "DEC-09")
SITE = Site.of(frozenset({ROOT}), place())
LENGTH = 5_000
SECONDS = 0.02
FRAGMENTS = (
    *("a", "A", "1", "-", "_", ".", ":", "/", ",", " ", "=", "@", "$", "%", "[", "]", "*", "?", "{", "}", "(", "\\"),
    *(
        "-W",
        " -W",
        "a:",
        ":1",
        "a=1:",
        "[]a]",
        "[a]",
        "cov",
        "cache",
        "report",
        "a/",
        "../",
        "%1",
        "%-",
        ".1",
        "a.",
        "a,",
    ),
    *(
        "::a",
        "a-",
        "test",
        "\n",
        ";p",
        "s/a/b/;",
        "/a",
        "HEAD:",
        "*a",
        "?*",
        "[!",
        "tests.",
        "TestA.",
        "aB",
        "Ab",
        ".pem",
    ),
)
HOSTILE = tuple(
    head + (fragment * LENGTH)[: LENGTH - 2] + tail for fragment in FRAGMENTS for head, tail in (("", ""), ("a", "!"))
)


def kinds() -> set[Kind]:
    found: set[Kind] = set()
    seen: set[int] = set()
    waiting = list(PROGRAMS.values())
    while waiting:
        tool = waiting.pop()
        if id(tool) in seen:
            continue
        seen.add(id(tool))
        mine = [kind for _, kind in tool.options.values()] + [tool.operands, *tool.lead]
        found.update(kind for kind in mine if kind is not None)
        inner = [sub for kind in mine if kind is not None and kind.into is not None for sub in kind.into.values()]
        waiting += [*tool.subtools.values(), *inner, *(sub for sub in (tool.after, tool.rest) if isinstance(sub, Tool))]
    return found


def slow(check: Callable[[str], object]) -> list[str]:
    """The texts that take too long, three times in a row: a busy machine may be slow once."""
    return [text[:20] for text in HOSTILE if all(seconds(check, text) > SECONDS for _ in range(3))]


def seconds(check: Callable[[str], object], text: str) -> float:
    begun = time.thread_time()
    check(text)
    return time.thread_time() - begun


def test_no_text_makes_the_check_of_a_value_slow() -> None:
    for kind in kinds():
        assert slow(lambda text, kind=kind: kind.check(text, SITE)) == [], kind  # type: ignore[misc]


def test_no_text_makes_a_regular_expression_of_the_lane_slow() -> None:
    tried = 0
    for module in pkgutil.iter_modules(lane.__path__):
        names = vars(importlib.import_module(f"{lane.__name__}.{module.name}"))
        for name, value in names.items():
            matcher = value.fullmatch if isinstance(value, re.Pattern) else value
            if isinstance(getattr(matcher, "__self__", None), re.Pattern):
                check = matcher if matcher.__name__ != "sub" else lambda text, matcher=matcher: matcher("", text)
                assert slow(check) == [], (module.name, name)
                tried += 1
    assert tried > 20


def test_no_variable_before_a_command_is_slow_to_judge() -> None:
    for name in ("PYTHONPATH", "DATABASE_URL", "NODE_OPTIONS", "TZ", "ASAN_OPTIONS", "DJANGO_SETTINGS_MODULE", "CI"):
        assert slow(lambda text, name=name: inert(Assignment(name, Word(text)), place())) == [], name  # type: ignore[misc]


def test_lines_after_a_path_are_told_from_the_path() -> None:
    assert without_lines("spec/a_spec.rb:12:30") == "spec/a_spec.rb"
    assert without_lines("spec/a_spec.rb[1:2,1:3]") == "spec/a_spec.rb"
    assert without_lines("a:b") == "a:b"
    assert without_lines("a[x]") == "a[x]"
    assert without_lines("a:") == "a:"


def test_a_command_with_very_many_paths_or_folders_is_not_looked_into() -> None:
    assert refusal("cat " + "f " * 65) == "cat is given more than 64 operands"
    assert refusal("cat " + "f " * 64) is None
    assert refusal("pytest " + "--ignore=a " * 200) == "pytest is given more than 128 words"
    assert refusal("echo " + "a " * 500) is None
    folders = "||".join(f"cd d{number}" for number in range(6))
    assert refusal(f"{folders}; cat f") == "it may run in any of more than 4 folders"


def test_a_folder_of_python_code_is_looked_up_where_the_command_runs() -> None:
    link = f"{ROOT}/sub/helpers"
    context = replace(place(), resolve=lambda path: "/elsewhere" if os.path.normpath(path) == link else path)
    assert refusal("PYTHONPATH=helpers pytest", context) is None
    assert refusal("cd sub && PYTHONPATH=helpers pytest", context) == "PYTHONPATH= may change what a program does"
    assert refusal("export PYTHONPATH=helpers; cd sub && pytest", context)
    assert refusal("cd sub && PYTHONPATH=other pytest", context) is None


@pytest.mark.parametrize(
    ("command", "clause"),
    [
        ("curl -s x", "curl is not among the commands that run without asking"),
        ("gcc x.c", "gcc is not among the commands that run without asking"),
        ("gcc -c x.c", "gcc is not among the commands that run without asking"),
        ("ssh host", "ssh is not among the commands that run without asking"),
        ("kill 1234", "kill is not among the commands that run without asking"),
        ("scp a b", "scp is not among the commands that run without asking"),
        ("docker 5", "docker is not among the commands that run without asking"),
        ("kubectl get pods", "kubectl get is not among the commands that run without asking"),
        ("pytest -k @x", "pytest -k: @x may name a file of further arguments"),
    ],
)
def test_the_refusal_of_a_program_names_what_is_certain(command: str, clause: str) -> None:
    assert refusal(command) == clause
