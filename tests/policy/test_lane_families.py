"""The lane's table, family by family: what it accepts, what it does not, and that nothing close by slips in."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.lane import judge
from bubbles.controller.policy.shell.reading import UNKNOWN, Hole, Segment, Word
from tests.policy.lane_trial import listed, parts, place, refusal

pytestmark = pytest.mark.req("DEC-03")
ORDINARY = listed("test_lane_ordinary.txt")
ASKS = listed("test_lane_asks.txt")
PLAIN = frozenset("echo printf true false : test [ export cd".split())
"""Programs without options of their own, or whose first dash is told apart otherwise."""


def ordinary_segments() -> list[Segment]:
    commands = [command for family in ORDINARY.values() for command in family]
    return [segment for command in commands for segment in parts(command, place())]


@pytest.mark.parametrize("family", ORDINARY)
def test_ordinary_commands_are_accepted(family: str) -> None:
    refused = [f"{command}: {why}" for command in ORDINARY[family] if (why := refusal(command)) is not None]
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("family", ASKS)
def test_commands_that_do_more_are_not_accepted(family: str) -> None:
    accepted = [command for command in ASKS[family] if refusal(command) is None]
    assert not accepted, "\n".join(accepted)


def test_every_refusal_is_one_short_clause_on_one_line() -> None:
    for command in (command for family in ASKS.values() for command in family):
        why = refusal(command)
        assert why
        assert len(why) < 200, why
        assert why.isprintable(), why
        assert not why.endswith("."), why


def test_an_unknown_option_takes_any_ordinary_command_out() -> None:
    for segment in ordinary_segments():
        words = segment.core
        if not words or words[0].text in PLAIN or any(word.text == "--" for word in words):
            continue
        for option in ("--zz-unknown", "--zz-unknown=1", "-\u0416"):
            changed = segment._replace(core=(*words[:1], Word(option), *words[1:]))
            assert judge(changed, place()) is not None, (segment.source, option)


def test_a_word_that_is_not_known_takes_any_ordinary_command_out() -> None:
    for segment in ordinary_segments():
        for at in range(len(segment.core)):
            for hole in (Hole.VARIABLE, Hole.SUBSTITUTION, Hole.TILDE, Hole.BRACE):
                core = list(segment.core)
                core[at] = Word(UNKNOWN, hole, False)
                assert judge(segment._replace(core=tuple(core)), place()) is not None, (segment.source, at)


def test_an_ordinary_command_outside_the_roots_is_not_accepted_even_in_a_sandbox() -> None:
    for segment in ordinary_segments():
        for contained in (False, True):
            for directories in (frozenset({"/tmp"}), frozenset({"/home/agent/work/project-evil"}), None):
                changed = segment._replace(directories=directories)
                assert judge(changed, place(contained=contained)) is not None, segment.source


def test_an_ordinary_command_in_the_background_is_not_accepted() -> None:
    assert all(judge(segment._replace(background=True), place()) for segment in ordinary_segments())


def test_an_ordinary_command_from_a_folder_of_its_own_is_another_program() -> None:
    for segment in ordinary_segments():
        if not segment.core or "/" in (name := segment.core[0].text):
            continue
        for folder in ("./", "/tmp/", "~/", "bin/", "/usr/bin/../../tmp/"):
            core = (Word(folder + name), *segment.core[1:])
            assert judge(segment._replace(core=core), place()) is not None, segment.source
        core = (Word(name, literal=False), *segment.core[1:])
        assert judge(segment._replace(core=core), place()) is not None, segment.source


@pytest.mark.parametrize(
    ("command", "clause"),
    [
        ("pytest --basetemp=src", "pytest --basetemp empties a directory that it is given"),
        ("git push origin main", "git push reaches another machine"),
        ("git commit -anm x", "git commit -n skips the checks of the repository"),
        ("git checkout -b x", "git checkout may discard work"),
        ("pip install -e .", "pip install installs, removes or fetches packages"),
        ("cargo run -p cli", "cargo run runs the project's program"),
        ("git commit", "git commit without -m opens an editor"),
        ("gh pr list", "gh pr is not among the commands that run without asking"),
        ("ruff format .", "ruff format rewrites files without --check"),
        ("npm run deploy", "npm run: deploy is not a name that says test, lint, check or build and no more"),
        ("cat .env", "cat: .env may hold credentials"),
        ("pytest /srv/x", "pytest: /srv/x lies outside the folders of this session"),
        ("tail -f build.log", "tail -f never ends"),
        ("python tool.py", "python runs a program, or code that it reads"),
        ("python -c 'print(1)'", "python -c runs code written in the command"),
    ],
)
def test_the_refusal_names_what_is_in_the_way(command: str, clause: str) -> None:
    assert refusal(command) == clause
