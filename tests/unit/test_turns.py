"""Whether tests that cannot run beside each other wait for each other (tests/turns.py)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.turns import turn

ROOT = Path(__file__).parents[2]
KILLED = """
import os, sys
from pathlib import Path
from tests.turns import turn
with turn(Path(sys.argv[1]), ["x"], alone=True):
    os.kill(os.getpid(), 9)
"""


def begin(
    directory: Path, order: list[str], said: str, names: Sequence[str] = (), alone: bool = False
) -> threading.Thread:
    """Another worker's test: each opening of a file has locks of its own."""

    def run() -> None:
        with turn(directory, names, alone=alone):
            order.append(said)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_for_somebody_in(door: Path) -> None:
    deadline = time.monotonic() + 10
    while not held(door):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_who_must_be_alone_waits_for_the_others_and_is_not_passed_over(tmp_path: Path) -> None:
    order: list[str] = []
    with ExitStack() as running:
        running.enter_context(turn(tmp_path))
        begin(tmp_path, order, "beside it").join(10)
        alone = begin(tmp_path, order, "alone", alone=True)
        wait_for_somebody_in(tmp_path / "door")
        late = begin(tmp_path, order, "late")
        assert order == ["beside it"]
    alone.join(10)
    late.join(10)
    assert order == ["beside it", "alone", "late"]


def test_nothing_runs_beside_who_is_alone_nor_beside_another_of_its_name(tmp_path: Path) -> None:
    order: list[str] = []
    with turn(tmp_path, ["a"], alone=True):
        begun = [begin(tmp_path, order, "any"), begin(tmp_path, order, "named", ["b"])]
        wait_for_somebody_in(tmp_path / "door")
        assert order == []
    with turn(tmp_path, ["a"]):
        same = begin(tmp_path, order, "same name", ["b", "a"])
        for thread in begun:
            thread.join(10)
        assert sorted(order) == ["any", "named"]
        assert same.is_alive()
    same.join(10)
    assert order[2:] == ["same name"]


def test_worker_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -9
    with turn(tmp_path, ["x"], alone=True):
        assert held(tmp_path / "room")
