"""Records, locks and what a crash leaves of them: what nobody can need goes, what anybody might need stays."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_backends.errors import InvalidSpecError
from sandbox_backends.litter import sweep_litter
from sandbox_backends.owner import Owner, SandboxRecord, forget, owner_pid, records, stage_runner, staged_name
from sandbox_backends.reaper import reap_processes

pytestmark = pytest.mark.req("SBX-05")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@contextmanager
def alive(data: Path, age_s: float = 0) -> Iterator[Owner]:
    owner = Owner(data)
    age(data / "run" / "owners" / f"{owner.id}.lock", age_s)
    try:
        yield owner
    finally:
        owner.close()


def age(path: Path, seconds: float) -> Path:
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def leave(data: Path, name: str, **fields: object) -> Path:
    """What a controller that died left on record."""
    directory = data / "run" / name
    directory.mkdir(parents=True)
    row = {
        "id": name,
        "backend": "local",
        "session": "s",
        "owner": "0123456789abcdef",
        "owner_pid": 1,
        "created_s": 5.0,
        "roots": ["/work"],
    }
    (directory / "sandbox.json").write_text(json.dumps({**row, **fields}))
    return directory


def in_run(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "run").iterdir() if path.name != "owners")


def test_sandbox_has_its_record_from_the_moment_it_has_its_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    real = json.dumps

    def dumps(value: object) -> str:
        seen.append(in_run(data))
        return real(value)

    monkeypatch.setattr("sandbox_backends.owner.json.dumps", dumps)
    with alive(data) as owner, owner.sandbox("local", "s", ("/work",)) as (ident, directory):
        assert seen == [[f".new-{ident}"]]
        assert in_run(data) == [ident]
        assert [record.id for record in records(data)] == [ident]
        assert directory.stat().st_mode & 0o777 == 0o700
    assert in_run(data) == []


def test_sandbox_that_cannot_be_put_on_record_leaves_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sandbox_backends.owner.json.dumps", full)
    with alive(data) as owner:
        with pytest.raises(OSError, match="No space"), owner.sandbox("local", "s", ()):
            raise AssertionError
        assert in_run(data) == []


@pytest.mark.parametrize("ident", ["..", ".", "../../outside", "", "/etc", 7, None])
def test_id_that_a_record_claims_leads_nowhere_else(data: Path, tmp_path: Path, ident: object) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    left = leave(data, "s-00000000", id=ident)
    other = leave(data, "s-11111111", owner="fedcba9876543210")
    (found,) = [record for record in records(data) if record.owner == "0123456789abcdef"]
    assert found.id == "s-00000000"
    forget(data, found)
    assert not left.exists()
    assert other.is_dir()
    assert outside.is_dir()
    assert (data / "run").is_dir()


@pytest.mark.parametrize("field", ["backend", "session", "owner", "owner_pid", "created_s", "roots"])
def test_record_of_the_wrong_kind_is_left_out(data: Path, field: str) -> None:
    leave(data, "s-00000000", **{field: {"a": 1} if field != "roots" else [7]})
    leave(data, "s-11111111", created_s=7)
    assert [record.id for record in records(data)] == ["s-11111111"]
    assert [record.id for record in reap_processes(data)] == ["s-11111111"]


def test_forgetting_a_record_that_leads_out_is_refused(data: Path) -> None:
    leave(data, "s-00000000")
    made = SandboxRecord(id="..", backend="local", session="s", owner="x", owner_pid=1, created_s=0, roots=())
    with pytest.raises(InvalidSpecError):
        forget(data, made)
    assert in_run(data) == ["s-00000000"]


@pytest.mark.req("SBX-13")
@pytest.mark.parametrize("backend", ["local", "bubblewrap", "of-another-package"])
def test_leftover_of_any_backend_is_reaped_but_a_container_s(data: Path, backend: str) -> None:
    leave(data, "s-00000000", backend=backend)
    leave(data, "s-11111111", backend="docker")
    assert [record.id for record in reap_processes(data)] == ["s-00000000"]
    assert in_run(data) == ["s-11111111"]


def test_reaping_one_session_leaves_the_others(data: Path) -> None:
    leave(data, "a-00000000", session="a")
    leave(data, "b-00000000", session="b")
    assert [record.session for record in reap_processes(data, session="a")] == ["a"]
    assert in_run(data) == ["b-00000000"]


def test_pid_of_an_owner_is_in_its_lock(data: Path) -> None:
    with alive(data) as owner:
        assert owner_pid(data, owner.id) == os.getpid()
    assert owner_pid(data, owner.id) == 0
    assert owner_pid(data, "../../x") == 0


# -- what no record names --


def litter(data: Path, age_s: float) -> list[Path]:
    run, locks = data / "run", data / "run" / "owners"
    locks.mkdir(parents=True, exist_ok=True)
    made = [run / "torn-00000000", run / ".new-s-00000000", run / "bare-00000000"]
    made += [run / ("runner-" + "0" * 16), run / ("runner-" + "0" * 16 + ".12345678")]
    for path in made:
        (path / "inner").mkdir(parents=True)
    (made[0] / "sandbox.json").write_text('{"id": "torn-0')
    (made[1] / "sandbox.json").write_text(json.dumps({"id": "s-00000000"}))
    made += [locks / "0123456789abcdef.new", locks / "id.12345678"]
    for path in made[-2:]:
        path.touch()
    return [age(path, age_s) for path in made]


def test_old_litter_goes_when_everyone_who_lives_came_later(data: Path) -> None:
    (data / "run" / "owners").mkdir(parents=True)
    (data / "run" / "owners" / "id").write_text("0123")
    made = [*litter(data, 4000), age(data / "run" / "owners" / "id", 4000)]
    with alive(data):
        sweep_litter(data)
    assert [path.name for path in made if path.exists()] == ["id"]


def test_young_litter_stays_and_so_does_what_a_living_controller_may_use(data: Path) -> None:
    made = litter(data, 1800)
    sweep_litter(data)
    assert all(path.exists() for path in made)
    for path in made:
        age(path, 4000)
    with alive(data, age_s=5000):
        sweep_litter(data)
        assert all(path.exists() for path in made)
    sweep_litter(data)
    assert not any(path.exists() for path in made)


def test_sandbox_on_record_is_no_litter_however_old(data: Path) -> None:
    left = age(leave(data, "runner-00000000"), 90_000)
    sweep_litter(data)
    assert left.is_dir()


def test_runner_that_is_staged_again_is_as_new_and_this_version_stays(data: Path) -> None:
    (data / "run").mkdir()
    staged = stage_runner(data)
    assert staged.name == staged_name()
    age(staged, 90_000)
    sweep_litter(data)
    assert (staged / "runner" / "start.py").is_file()
    assert stage_runner(data) == staged
    assert time.time() - staged.stat().st_mtime < 60


def test_controller_that_is_killed_while_it_makes_a_sandbox_leaves_nothing_for_long(data: Path) -> None:
    code = """
import json, os, signal, sys
from pathlib import Path
from sandbox_backends import owner
owner.json.dumps = lambda value: os.kill(os.getpid(), signal.SIGKILL)
with owner.Owner(Path(sys.argv[1])).sandbox("local", "s", ()):
    pass
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code, str(data)], cwd=root, check=False)
    assert done.returncode == -9
    assert len(in_run(data)) == 1
    age(data / "run" / in_run(data)[0], 4000)
    assert reap_processes(data) == []
    assert in_run(data) == []
    assert list((data / "run" / "owners").iterdir()) == []


def test_owner_that_a_full_disk_keeps_from_being_made_leaves_nothing(data: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            Owner(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((data / "run" / "owners").iterdir()) == []
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == descriptors
