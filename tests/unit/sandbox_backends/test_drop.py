"""Root giving up its rights by a chain of programs, run for real (sandbox.md 5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_backends.drop import STAGE, MountTable, dropping, stage, uncover, write_table
from sandbox_backends.privileges import RunAs

pytestmark = pytest.mark.needs("root")
WHO = RunAs(uid=1_950_000_001, gid=1_950_000_002)


def run(*argv: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, *argv], env={}, capture_output=True, text=True, timeout=10, check=False)


def test_process_is_the_user_alone_without_groups_or_capabilities() -> None:
    argv = dropping(
        ["/bin/sh", "-c", "id -u; id -G; grep -E 'Cap|NoNew' /proc/self/status"], WHO, no_new_privileges=True
    )
    uid, groups, *status = run(*argv, before=("setpriv", "--groups", "4,27", "--")).stdout.splitlines()
    assert (int(uid), groups) == (WHO.uid, str(WHO.gid))
    assert {line.split("\t")[1] for line in status if line.startswith("Cap")} == {"0" * 16}
    assert status[-1] == "NoNewPrivs:\t1"


def test_capability_that_is_kept_is_the_only_one_of_root() -> None:
    root = RunAs(uid=0, gid=0)
    for keep, mask in (("", 0), ("setfcap", 1 << 31)):
        out = run(*dropping(["/bin/grep", "CapEff", "/proc/self/status"], root, keep=keep)).stdout
        assert int(out.split()[1], 16) == mask


def test_process_is_the_one_that_was_started(tmp_path: Path) -> None:
    """So that its number, its parent and its end are those of the program itself."""
    table = write_table(uncover([tmp_path], WHO), tmp_path)
    argv = dropping(["/bin/sh", "-c", "echo $$"], WHO, table=table, unstage=True)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={}) as process:
        said, _ = process.communicate(timeout=10)
    assert int(said) == process.pid


def hidden(tmp_path: Path, name: str) -> Path:
    made = tmp_path / "only-roots" / name
    made.mkdir(parents=True)
    (made / "file").write_text(name)
    (tmp_path / "only-roots").chmod(0o700)
    return made


@pytest.mark.parametrize("name", ["plain", "with space", "tab\there", "#hash", "back\\slash", "ünï", "--", "new\nline"])
def test_directory_that_only_root_reaches_is_staged_under_any_name(tmp_path: Path, name: str) -> None:
    path = hidden(tmp_path, name)
    table = stage([path, Path("/usr")], WHO)
    assert set(table.staged) == {path}  # /usr is reached by everybody
    argv = dropping(["/bin/cat", f"{table.staged[path]}/file"], WHO, table=write_table(table, tmp_path))
    assert run(*argv).stdout == name


def test_uncovered_directories_are_at_their_own_paths_and_nothing_is_beside_them(tmp_path: Path) -> None:
    wanted = [hidden(tmp_path, "a"), hidden(tmp_path, "b/c")]
    hidden(tmp_path, "unwanted")
    table = uncover(wanted, WHO)
    look = f"cd '{tmp_path}/only-roots'; ls; cat a/file b/c/file; echo; ls b; ls /sys | wc -l"
    argv = dropping(["/bin/sh", "-c", look], WHO, table=write_table(table, tmp_path), unstage=table.unstage)
    out = run(*argv).stdout.split()
    assert out[:4] == ["a", "b", "ab/c", "c"]
    assert int(out[4]) > 3  # sysfs is back in its place
    assert (tmp_path / "only-roots" / "unwanted" / "file").read_text() == "unwanted"


def test_what_is_reached_anyway_needs_no_mount() -> None:
    for table in (stage([Path("/usr")], WHO), uncover([Path("/usr/lib")], WHO)):
        assert (table.lines, table.staged, table.unstage) == ((), {}, False)
        assert write_table(MountTable(staged={}), Path("/nonexistent")) is None


def test_mounts_of_the_chain_are_not_seen_outside(tmp_path: Path) -> None:
    table = stage([hidden(tmp_path, "a")], WHO)
    before = Path("/proc/self/mountinfo").read_text()
    assert run(*dropping(["/bin/true"], WHO, table=write_table(table, tmp_path))).returncode == 0
    assert Path("/proc/self/mountinfo").read_text() == before
    assert os.listdir(STAGE)


def test_chain_stops_when_a_mount_fails(tmp_path: Path) -> None:
    """Rather than going on without it."""
    table = MountTable(lines=("/nonexistent /sys none bind 0 0",), staged={})
    done = run(*dropping(["/bin/echo", "went on"], WHO, table=write_table(table, tmp_path)))
    assert done.returncode != 0
    assert done.stdout == ""


def test_chain_stops_when_its_group_cannot_be_entered(tmp_path: Path) -> None:
    done = run(*dropping(["/bin/echo", "went on"], WHO, groups=[str(tmp_path / "missing" / "cgroup.procs")]))
    assert done.returncode != 0
    assert done.stdout == ""


def test_arguments_are_never_read_by_the_shell() -> None:
    odd = ["$(id)", "`id`", "a b", "'", '"', ";", "--", "", "\\", "*"]
    argv = dropping([sys.executable, "-c", "import sys; print(sys.argv[1:])", *odd], RunAs(uid=0, gid=0))
    assert run(*argv).stdout.strip() == str(odd)
