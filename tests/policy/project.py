"""The small project, desk and home that rows of tests/cases speak of, and a decision in them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles.controller.policy.contract import Command, Context, Decision, Layer
from bubbles.controller.policy.decide import decide
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.rulefiles import load_rulebook
from bubbles.controller.whereabouts import real_path

CASES = Path(__file__).parents[1] / "cases"
OUTCOMES = ("auto_allow", "ask", "decline")
NO_RULES = load_rulebook([]).rulebook


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    root: Path
    desk: Path
    home: Path
    outside: Path

    def fill(self, text: str) -> str:
        """``text`` with the tokens of the rows replaced."""
        for token, place in (("@ROOT@", self.root), ("@DESK@", self.desk), ("@HOME@", self.home), ("@S@", self.desk)):
            text = text.replace(token, str(place))
        return text.replace("@OUT@", str(self.outside))

    def context(self, cwd: str | None = None) -> Context:
        return Context(
            cwd=os.path.normpath(self.fill(cwd)) if cwd else str(self.root),
            roots=(str(self.root), str(self.desk)),
            home=str(self.home),
            person_home=str(self.home),
            resolve=real_path,
        )

    def decide(self, script: str, cwd: str | None = None, rulebook: Rulebook = NO_RULES) -> Decision:
        return decide(Command.of_script(self.fill(script)), self.context(cwd), rulebook)


def make_project(top: Path) -> Project:
    """The base fixture of tests/cases/README.md, under ``top``."""
    project = Project(root=top / "project", desk=top / "desk", home=top / "home", outside=top / "outside")
    for name in ("src", "tests", "sub", "frontend", "build", ".git", *(f"fx{number:02}" for number in range(20))):
        (project.root / name).mkdir(parents=True)
    for folder in (project.desk / "notes", project.home, project.outside, top / "project-evil"):
        folder.mkdir(parents=True)
    (project.root / "link_out").symlink_to(project.outside)
    (project.root / "link_in").symlink_to("tests")
    return project


def rulebook_of(folder: Path, local: str, everywhere: str) -> Rulebook:
    """The rules of two layers, from their texts."""
    layers = []
    for layer, text in ((Layer.ASSISTANT, local), (Layer.GLOBAL, everywhere)):
        directory = folder / str(layer)
        directory.mkdir()
        if text:
            (directory / "default.rules").write_text(text, encoding="utf-8")
        layers.append((layer, directory))
    return load_rulebook(layers).rulebook


def satisfies(outcome: str, wanted: str) -> bool:
    return outcome == wanted or (wanted == "decline_or_ask" and outcome in ("ask", "decline"))
