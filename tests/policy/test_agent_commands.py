"""The ordinary day of a coding agent: 200 commands that agents really run, and how many of them would ask a person.

``agent_commands.jsonl`` holds habits seen in public transcripts and granted permissions (Claude Code, Codex,
SWE-agent, mini-swe-agent, OpenHands), in our own words and paths, for agents that read and write files by tools. They
were chosen without a look at the lane. A row that asks says why; ``@ROOT@`` is the project.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NotRequired, TypedDict

import pytest

from bubbles.controller.policy.contract import Command, Context, Decision, Mode, Verdict
from bubbles.controller.policy.decide import decide
from bubbles.controller.policy.rules import Rulebook

pytestmark = pytest.mark.req("DEC-03", "DEC-08")
ROOT = "/home/agent/work/project"
HELD = 0.15
"""The goal is 10 %. What is between is what agents do of installing, running programs of their own, deleting, loops and
substitutions: each is for a person, or for a sandbox that is trusted."""


class Row(TypedDict):
    id: str
    lang: str
    cmd: str
    cwd: str
    habit: str
    asks: NotRequired[str]
    """Why a person is asked."""


ROWS: tuple[Row, ...] = tuple(
    json.loads(line) for line in Path(__file__).with_name("agent_commands.jsonl").read_text("utf-8").splitlines()
)


def judged(row: Row, *, trusted: bool = False) -> Decision:
    context = Context(
        cwd=row["cwd"].replace("@ROOT@", ROOT),
        roots=(ROOT,),
        home="/home/agent",
        person_home="/home/person",
        contained=trusted,
        offline=trusted,
        mode=Mode.TRUST_SANDBOX if trusted else Mode.ASK,
    )
    return decide(Command.of_script(row["cmd"].replace("@ROOT@", ROOT)), context, Rulebook())


def test_corpus_is_two_hundred_commands_in_even_parts() -> None:
    assert len({row["id"] for row in ROWS}) == len({row["cmd"] for row in ROWS}) == 200
    assert Counter(row["lang"] for row in ROWS) == dict.fromkeys(("python", "javascript", "rust", "go", "cpp"), 40)
    assert all(row["habit"] and row.get("asks", "-") for row in ROWS)


def test_every_command_that_asks_is_explained() -> None:
    unexplained = [
        f"{row['id']} {row['cmd']!r}: {decision.reason}"
        for row in ROWS
        if "asks" not in row and (decision := judged(row)).verdict is not Verdict.ALLOW
    ]
    assert not unexplained, "\n".join(unexplained)


def test_no_explanation_outlives_its_question() -> None:
    stale = [f"{row['id']} {row['cmd']!r}" for row in ROWS if "asks" in row and judged(row).verdict is Verdict.ALLOW]
    assert not stale, "these no longer ask, take their explanation away:\n" + "\n".join(stale)


def test_nothing_an_agent_does_in_the_ordinary_day_is_declined() -> None:
    declined = [f"{row['cmd']!r}: {decision.reason}" for row in ROWS if (decision := judged(row)).verdict > Verdict.ASK]
    assert not declined, "\n".join(declined)


def test_share_that_asks_is_small() -> None:
    asking = Counter(row["lang"] for row in ROWS if judged(row).verdict is not Verdict.ALLOW)
    share = asking.total() / len(ROWS)
    shown = f"{asking.total()} of {len(ROWS)} commands ask ({share:.1%}; of 40 each: {dict(asking)})"
    print(shown)
    assert share <= HELD, shown


def test_in_a_trusted_sandbox_nothing_of_the_ordinary_day_asks() -> None:
    asking = [row["cmd"] for row in ROWS if judged(row, trusted=True).verdict is not Verdict.ALLOW]
    assert not asking
