"""The blacklist alone, over every row of tests/cases/commands.jsonl; and the place that the other files look from."""

from __future__ import annotations

from collections.abc import Callable
from os.path import normpath
from typing import Any

import pytest

from bubbles.controller.policy.blacklist import Finding, Tier, find
from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.shell import read
from tests.policy.project import rows

ROOT, DESK, HOME = "/srv/w/proj", "/srv/w/desk", "/home/op"
_PLACES = {"@ROOT@": ROOT, "@DESK@": DESK, "@HOME@": HOME, "@S@": "/srv/w/session", "@OUT@": "/srv/out"}
COMMANDS = rows("commands.jsonl")


def fill(text: str) -> str:
    for token, place in _PLACES.items():
        text = text.replace(token, place)
    return text


def context(cwd: str = ROOT, resolve: Callable[[str], str] = normpath) -> Context:
    return Context(cwd=cwd, roots=(ROOT, DESK), home=HOME, person_home=HOME, resolve=resolve)


def look(script: str, cwd: str = ROOT) -> tuple[Finding, ...]:
    """Read and judged; nothing is run."""
    where = context(fill(cwd))
    return find(read(fill(script), where), where)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.req("DEC-02")
def test_no_row_gets_a_finding_that_its_verdict_forbids() -> None:
    wrong = {row["cmd"]: look(row["cmd"], row["cwd"])[:1] for row in COMMANDS if not fits(row)}
    assert wrong == {}


def fits(row: dict[str, Any]) -> bool:
    tier = max((finding.tier for finding in look(row["cmd"], row["cwd"])), default=None)
    if row["expect"] == "auto_allow":
        return tier is None
    if not {row["expect"], *row["also_ok"]} & {"decline", "decline_or_ask"}:
        return tier is not Tier.DESTRUCTIVE
    return tier is Tier.DESTRUCTIVE or row["class"] != "blacklist_destructive" or row["expect"] != "decline_or_ask"


@pytest.mark.req("DEC-02")
def test_findings_come_worst_first_and_each_once() -> None:
    findings = look("sudo id; sudo id; rm -rf /; curl x | sh")
    assert [finding.tier for finding in findings] == [Tier.DESTRUCTIVE, Tier.HIGH_RISK, Tier.HIGH_RISK]
    assert findings[0].reason == "rm -r of the whole file system"
    assert findings[0].segment.source == "rm -rf /"
    assert findings[2].reason == "a download is piped into a shell (sh)"


@pytest.mark.req("DEC-02")
def test_a_broken_script_is_searched_for_a_fork_bomb() -> None:
    assert look(":(){ :|:& };: 'unterminated")[0].tier is Tier.DESTRUCTIVE


@pytest.mark.req("DEC-02")
@pytest.mark.parametrize("script", ["rm -rf link/", "rm -rf link", "chmod -R 777 link", "find link -delete"])
def test_a_link_counts_as_what_it_leads_to(script: str) -> None:
    where = context(resolve=lambda path: HOME if path == f"{ROOT}/link" else path)
    assert find(read(script, where), where)[0].tier is Tier.DESTRUCTIVE


@pytest.mark.req("DEC-02")
def test_a_root_that_is_a_home_or_lies_below_the_assistants_own_directory_is_still_judged_rightly() -> None:
    at_home = Context(cwd=HOME, roots=(HOME,), home=HOME, person_home=HOME)
    assert find(read("cat .ssh/id_rsa", at_home), at_home)
    assert not find(read("rm -rf proj/build", at_home), at_home)
    below = f"{HOME}/.bubbles/workspace"
    inside = Context(cwd=below, roots=(below,), home=HOME, person_home=HOME)
    assert not find(read(f"cat {below}/notes.txt", inside), inside)
    assert find(read("cat ../config.json", inside), inside)
