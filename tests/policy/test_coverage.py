"""The function that decides is reached to its last branch by the tests that are made for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.timeout(180)
@pytest.mark.req("DEC-09")
def test_every_branch_of_decide_is_tested(tmp_path: Path) -> None:
    data, report = tmp_path / "coverage", tmp_path / "report.json"
    coverage = (sys.executable, "-m", "coverage")
    file = "bubbles/controller/policy/decide.py"
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/policy/test_decide.py")
    for command in (
        (*coverage, "run", "--branch", f"--include={file}", f"--data-file={data}", *tests),
        (*coverage, "json", f"--data-file={data}", "-q", "-o", str(report)),
    ):
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=170, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())["files"][file]
    assert found["missing_lines"] == []
    assert found["missing_branches"] == []
