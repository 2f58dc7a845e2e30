"""Every row of tests/cases that is about commands: the verdict that a careful engineer would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.policy.project import OUTCOMES, Project, make_project, rows, rulebook_of, satisfies

COMMANDS = rows("commands.jsonl")
RULES = rows("rules.jsonl")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("cases"))


def outcome_of(project: Project, row: dict[str, Any]) -> str:
    return OUTCOMES[project.decide(row["cmd"], row["cwd"]).verdict]


@pytest.mark.req("DEC-01", "DEC-02", "DEC-03", "DEC-06", "DEC-13")
@pytest.mark.parametrize("row", COMMANDS, ids=[row["id"] for row in COMMANDS])
def test_a_command_gets_a_verdict_that_is_right_or_tolerated(project: Project, row: dict[str, Any]) -> None:
    decision = project.decide(row["cmd"], row["cwd"])
    outcome = OUTCOMES[decision.verdict]
    wanted = [row["expect"], *row["also_ok"]]
    assert any(satisfies(outcome, one) for one in wanted), f"{outcome}: {decision.reason}  ({row['cmd']})"


@pytest.mark.req("DEC-03")
def test_nearly_all_that_may_run_without_asking_does(project: Project) -> None:
    expected = [row for row in COMMANDS if row["expect"] == "auto_allow"]
    asked = [row["cmd"] for row in expected if outcome_of(project, row) != "auto_allow"]
    assert len(asked) <= 0.05 * len(expected), asked


@pytest.mark.req("DEC-02")
def test_what_destroys_is_declined_not_asked_about(project: Project) -> None:
    destructive = [
        row for row in COMMANDS if row["class"] == "blacklist_destructive" and row["expect"] == "decline_or_ask"
    ]
    asked = [row["cmd"] for row in destructive if outcome_of(project, row) != "decline"]
    assert not asked


@pytest.mark.req("DEC-04", "DEC-05", "DEC-06", "DEC-07", "DEC-08")
@pytest.mark.parametrize("row", RULES, ids=[row["id"] for row in RULES])
def test_a_command_under_rules_gets_a_verdict_that_is_right_or_tolerated(
    project: Project, row: dict[str, Any], tmp_path: Path
) -> None:
    rulebook = rulebook_of(tmp_path, row["rules_local"], row["rules_global"])
    decision = project.decide(row["cmd"], None if row["cwd_in_root"] else "/", rulebook)
    outcome = OUTCOMES[decision.verdict]
    wanted = [row["expect"], *row["also_ok"]]
    assert any(satisfies(outcome, one) for one in wanted), f"{outcome}: {decision.reason}  ({row['cmd']})"
