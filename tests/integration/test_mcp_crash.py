"""A program with MCP servers that is killed takes them along, with all that they started (TOOL-09)."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from bubbles.controller.programs import OWN_DIRECTORY, YOUNG_S, sweep_directories
from tests.mcp_playground.scene import HERE, HOSTILE
from tests.processes import alive, comes_true

PROGRAM = HERE / "program.py"
PLACES = [pytest.param("local"), pytest.param("bubblewrap", marks=pytest.mark.needs("bubblewrap"))]


async def started(base: Path, backend: str) -> asyncio.subprocess.Process:
    await asyncio.to_thread(shutil.copy, HOSTILE, base / "server.py")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), str(base), backend), stdout=asyncio.subprocess.PIPE
    )


def servers_of(base: Path) -> list[psutil.Process]:
    """Everything that still runs a server of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(base) in word and word.endswith("server.py") for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return alive(found)


@pytest.mark.req("TOOL-09")
@pytest.mark.parametrize("backend", PLACES)
async def test_a_killed_program_leaves_no_server_behind(tmp_path: Path, backend: str) -> None:
    program = await started(tmp_path, backend)
    assert program.stdout is not None
    assert await program.stdout.readline() == b"ready\n"
    family = await asyncio.to_thread(psutil.Process(program.pid).children, recursive=True)
    assert any(process.name() == "sleep" for process in family)
    assert await asyncio.to_thread(servers_of, tmp_path)
    program.kill()
    await program.wait()
    assert await comes_true(lambda: not servers_of(tmp_path))
    assert await comes_true(lambda: not alive(family))


@pytest.mark.req("TOOL-09")
async def test_a_program_killed_at_any_instant_leaves_no_server_behind(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(4):
        base = tmp_path / str(number)
        base.mkdir()
        program = await started(base, "local")
        assert program.stdout is not None
        if number % 2:
            await program.stdout.readline()
        await asyncio.sleep(chance.uniform(0, 1.2 if not number % 2 else 0.2))
        program.kill()
        await program.wait()
        assert await comes_true(lambda base=base: not servers_of(base))  # type: ignore[misc]


def test_what_a_killed_program_left_in_the_temporary_directory_is_removed_later(tmp_path: Path) -> None:
    old, young, other = (tmp_path / f"{prefix}x{n}" for n, prefix in enumerate((OWN_DIRECTORY, OWN_DIRECTORY, "else-")))
    for path in (old, young, other):
        path.mkdir()
    (old / "file").write_text("left")
    link = tmp_path / f"{OWN_DIRECTORY}link"
    link.symlink_to(other)
    for path in (old, other):
        age = path.stat().st_mtime - 2 * YOUNG_S
        os.utime(path, (age, age))
    sweep_directories(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((young.name, other.name, link.name))
