"""What a decision of the gate costs: median microseconds, for one command and for five, with and without rules."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bubbles.controller.policy.contract import Command, Context, Layer, Verdict
from bubbles.controller.policy.decide import decide
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.rulefiles import load_rulebook
from bubbles.controller.whereabouts import real_path

SCRIPTS = {
    "1 segment": "pytest -x --tb=short tests/",
    "5 segments": "cd sub && pytest -q 2>&1 | tail -n 40 && git status --short | wc -l",
}
RULES = (0, 100, 1000)
EFFECTS = ("allow", "prompt", "forbidden")


def rulebook(directory: Path, count: int) -> Rulebook:
    """``count`` rules such as a person's history holds: some for programs of the scripts, most for others."""
    directory.mkdir()
    programs = ("git", "gh", "npm", "cargo", "docker", "kubectl", "make", "terraform", "aws", "pip")
    lines = [
        f'prefix_rule(pattern=["{programs[number % 10]}", "sub-{number}"], decision="{EFFECTS[number % 3]}")'
        for number in range(count)
    ]
    (directory / "default.rules").write_text("\n".join(lines) + "\n")
    return load_rulebook([(Layer.GLOBAL, directory)]).rulebook


def measure(top: Path, rounds: int) -> dict[tuple[str, int], float]:
    """Median microseconds by script and number of rules, sampled in turn."""
    project = Path(os.path.realpath(top)) / "project"
    (project / "sub").mkdir(parents=True)
    (project / "tests").mkdir()
    context = Context(
        cwd=str(project),
        roots=(str(project), str(project.parent)),
        home="/home/agent",
        person_home="/home/agent",
        resolve=real_path,
    )
    books = {count: rulebook(top / f"rules-{count}", count) for count in RULES}
    samples: dict[tuple[str, int], list[float]] = {(name, count): [] for name in SCRIPTS for count in RULES}
    for _ in range(rounds):
        for (name, count), taken in samples.items():
            command = Command.of_script(SCRIPTS[name])
            for turn in range(6):
                started = time.perf_counter()
                decision = decide(command, context, books[count])
                if turn:  # the first of a row pays for what the one before left in the caches
                    taken.append((time.perf_counter() - started) * 1e6)
            assert decision.verdict is Verdict.ALLOW
    return {key: statistics.median(taken) for key, taken in samples.items()}
