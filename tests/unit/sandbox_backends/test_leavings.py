"""What a doctor that was killed leaves, and when it goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sandbox_backends.contract import BackendSettings
from sandbox_backends.probes.canaries import planted
from sandbox_backends.probes.leavings import FILE_PREFIX, sweep

ROOT = Path(__file__).parents[3]
KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sandbox_backends.contract import BackendSettings
from sandbox_backends.probes.canaries import planted
from sandbox_backends.probes.run import _bench
settings = BackendSettings(data_dir=Path(sys.argv[2]), person_home=Path(sys.argv[3]))
with planted(settings) as canaries, _bench(settings) as bench:
    left = (canaries.person_file, canaries.tmp_file, canaries.user_file and os.path.dirname(canaries.user_file),
            bench.root, bench.home, bench.neighbour_root, bench.neighbour_home)
    print(*(path for path in left if path), sep="\\n", flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.needs("linux")
def test_what_a_killed_doctor_left_goes_with_the_next_but_only_once_it_is_old(tmp_path: Path) -> None:
    data, person = tmp_path / "data", tmp_path / "person"
    person.mkdir()
    settings = BackendSettings(data_dir=data, person_home=person)
    argv = [sys.executable, "-B", "-c", KILLED, str(ROOT), str(data), str(person)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=False)
    left = [Path(line) for line in done.stdout.splitlines()]
    kept = [data / "sessions" / "doctor-20240131", data / "session_homes" / "bubbles-doctor-mine", person / ".bubbles"]
    for path in kept:
        path.mkdir(parents=True)
    try:
        assert len(left) == (7 if os.geteuid() == 0 else 6), done.stderr
        sweep(settings)
        assert all(path.exists() for path in left)
        for path in (*left, *kept):
            os.utime(path, (0, time.time() - 3601))
        with planted(settings):
            assert not [path for path in left if path.exists()]
        assert all(path.exists() for path in kept)
    finally:
        for path in left:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.needs("root")
def test_what_another_user_put_into_tmp_is_left_alone(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix=FILE_PREFIX, dir="/tmp") as file:
        os.chown(file.name, 65534, 65534)
        os.utime(file.name, (0, 0))
        sweep(BackendSettings(data_dir=tmp_path, person_home=tmp_path))
        assert Path(file.name).exists()
