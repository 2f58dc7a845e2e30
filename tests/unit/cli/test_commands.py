"""The table of commands, and what starting one of them imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bubbles.cli.commands import SUMMARIES, made

pytestmark = pytest.mark.req("CLI-01")


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_of_the_table_is_there_with_a_summary_of_one_line(name: str) -> None:
    assert made(name).name == name
    assert len(SUMMARIES[name]) <= 80 - 2 - max(map(len, SUMMARIES)) - 2


def test_help_imports_no_command_and_nothing_that_it_does_not_need() -> None:
    code = "import sys; from bubbles.cli import main; sys.argv = ['bubbles', '--help']; main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, loaded = done.stdout.rstrip().rpartition("\n")
    assert all(f"  {name}" in shown for name in SUMMARIES)
    modules = set(loaded.split())
    assert not {f"bubbles.cli.{name}" for name in SUMMARIES} & modules
    assert not {"asyncio", "logging", "pydantic", "rich", "sandbox_backends.contract"} & modules
