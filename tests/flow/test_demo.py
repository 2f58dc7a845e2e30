"""``bubbles demo``: a scripted model, everything else real, and nobody at the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest


@pytest.mark.req("CORE-01", "DEC-08", "APPR-02")
async def test_the_demo_does_its_task_is_declined_once_and_asks_once(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bubbles", "demo", "--quick"),
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = (text.decode() for text in await process.communicate())
    assert process.returncode == 0, err
    assert "The model is a script" in out
    assert out.index("FAILED (failures=2)") < out.index("Replaced on line 10") < out.index("    OK")
    assert out.count("May this run?") == 1
    assert "nobody can be asked" in out
    assert "It was declined without asking. This is never run" in out
    assert "Deleting your home was declined" in out
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
