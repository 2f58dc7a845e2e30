"""What README shows of the gate is what the gate says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from bubbles.cli import main

TEXT = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## What runs without asking")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
EXAMPLES = [
    tuple(part.partition("\n")[::2])
    for block in BLOCKS
    if block.startswith("$ ")
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
]
RULES = next(block for block in BLOCKS if block.startswith("prefix_rule"))


@pytest.mark.req("OPS-04")
@pytest.mark.parametrize(("line", "shown"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_an_example_prints_what_is_shown(
    line: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (home / ".bubbles" / "rules").mkdir(parents=True)
    if "rule: " in shown:
        (home / ".bubbles" / "rules" / "default.rules").write_text(RULES)
    monkeypatch.setenv("HOME", str(home))
    for name in ("BUBBLES_HOME", "CODEX_HOME", "BUBBLES_TOOLS__SANDBOX__BACKEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    assert main() == 0
    assert capsys.readouterr().out.replace(str(home), "~").strip() == shown.strip()


def test_readme_has_examples_of_each_outcome() -> None:
    assert {shown.split(" (")[0] for _, shown in EXAMPLES} == {
        "It runs without asking",
        "A person is asked",
        "It is declined",
    }
