"""One gateway for a data directory, and who looks whether it runs disturbs nobody."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bubbles.errors import BubblesError
from bubbles.gateway.lock import FILE, UNKNOWN, gateway_lock, running, where

pytestmark = pytest.mark.req("OPS-02")

HOLDS = """
import subprocess, sys
from pathlib import Path
from bubbles.gateway.lock import gateway_lock
with gateway_lock(Path(sys.argv[1]), "127.0.0.1", 18790):
    child = subprocess.Popen(["sleep", "30"], close_fds=False)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def test_a_second_gateway_is_told_which_one_runs(tmp_path: Path) -> None:
    with gateway_lock(tmp_path, "::1", 18790):
        assert running(tmp_path) == os.getpid()
        assert where(tmp_path) == ("::1", 18790)
        with (
            pytest.raises(
                BubblesError, match=rf"process {os.getpid()}, on \[::1\]:18790, since 2.*stop that one first"
            ),
            gateway_lock(tmp_path),
        ):
            pass
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
        assert running(tmp_path) == os.getpid()
    assert running(tmp_path) is None
    assert where(tmp_path) is None
    with gateway_lock(tmp_path):
        assert where(tmp_path) is None


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert (running(tmp_path), where(tmp_path)) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_says_makes_no_gateway(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(f'{{"pid": {os.getpid()}, "host": "127.0.0.1", "port": 1, "started": ""}}')
    assert running(tmp_path) is None
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    assert running(tmp_path) is None
    with pytest.raises(BubblesError, match=r"The gateway's lock .* cannot be taken"), gateway_lock(tmp_path):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / "other").write_text("mine")
    (tmp_path / FILE).symlink_to(tmp_path / "other")
    with pytest.raises(BubblesError, match="cannot be taken"), gateway_lock(tmp_path):
        pass
    assert (tmp_path / "other").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "[]", '{"pid": "x", "host": "", "port": 0, "started": ""}'])
def test_a_gateway_whose_name_cannot_be_read_runs_all_the_same(tmp_path: Path, text: str) -> None:
    with gateway_lock(tmp_path, "127.0.0.1", 1):
        (tmp_path / FILE).write_text(text)
        assert running(tmp_path) == UNKNOWN


def test_a_killed_gateway_has_no_lock_although_its_child_lives(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        assert running(tmp_path) == holder.pid
        holder.kill()
        holder.wait()
        assert running(tmp_path) is None
        with gateway_lock(tmp_path):
            assert running(tmp_path) == os.getpid()
        os.kill(child, 0)  # it was there all the time
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdin.close()
        holder.stdout.close()


def test_whoever_only_looks_hinders_no_start(tmp_path: Path) -> None:
    with gateway_lock(tmp_path):
        pass
    with (tmp_path / FILE).open() as looks:  # as ``running`` does, which then goes on after a moment
        fcntl.flock(looks, fcntl.LOCK_SH)
        over = threading.Timer(0.03, lambda: fcntl.flock(looks, fcntl.LOCK_UN))
        over.start()
        with gateway_lock(tmp_path):
            assert running(tmp_path) == os.getpid()
        over.join()
