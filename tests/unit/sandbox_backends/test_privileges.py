"""Who a session runs as, and what is made its own (SBX-03, sandbox.md 5)."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from sandbox_backends.contract import Root, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.privileges import (
    MAX_DEPTH,
    NARROW_SESSION_UIDS,
    SESSION_UIDS,
    give,
    reaches,
    run_as,
    session_uid,
    usable_uids,
)
from tests.needs import TESTER

REPOSITORY = Path(__file__).parents[3]
as_root = pytest.mark.needs("root")


def spec(
    path: Path, label: Literal["desk", "project"] = "desk", session: str = "s", home: Path | None = None
) -> SandboxSpec:
    return SandboxSpec(session=session, roots=(Root(path=path, label=label),), home=home)


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    made = tmp_path / "desk"
    made.mkdir()
    return made


@as_root
def test_session_without_a_project_keeps_a_uid_that_no_other_session_gets(tmp_path: Path, desk: Path) -> None:
    first = run_as(spec(desk, session="a"), tmp_path)
    second = run_as(spec(desk, session="b"), tmp_path)
    assert first.uid in usable_uids()
    assert (first.uid, first.gid) == (first.uid, first.uid)
    assert second.uid != first.uid
    assert run_as(spec(desk, session="a"), tmp_path).uid == first.uid
    assert (tmp_path / "session_uids.json").stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.needs("tester")
def test_session_of_a_project_runs_as_its_owner_and_never_chowns_it(tmp_path: Path, desk: Path) -> None:
    tester = pwd.getpwnam(TESTER)
    project = tmp_path / "project"
    project.mkdir()
    (project / "of-root").touch()
    os.chown(project, tester.pw_uid, tester.pw_gid)
    roots = (Root(path=desk, label="desk"), Root(path=project, label="project"))
    home = tmp_path / "homes" / "s"
    who = run_as(SandboxSpec(session="s", roots=roots, home=home), tmp_path)
    assert (who.uid, who.gid, who.refuse_setid, who.warnings) == (tester.pw_uid, tester.pw_gid, False, ())
    assert owner(project / "of-root") == (0, 0)
    assert owner(desk) == owner(home) == (tester.pw_uid, tester.pw_gid)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@as_root
@pytest.mark.needs("tester")
def test_group_of_root_is_not_taken_over_from_an_ordinary_users_project(tmp_path: Path) -> None:
    tester = pwd.getpwnam(TESTER)
    os.chown(tmp_path, tester.pw_uid, 0)
    assert run_as(spec(tmp_path, "project"), tmp_path).gid == tester.pw_gid


@as_root
def test_project_of_root_runs_as_root_with_a_warning_and_no_setuid_files(tmp_path: Path, desk: Path) -> None:
    who = run_as(spec(desk, "project"), tmp_path)
    assert (who.uid, who.gid, who.refuse_setid) == (0, 0, True)
    assert len(who.warnings) == 1
    assert str(desk) in who.warnings[0]


@pytest.mark.needs("ordinary-user")
def test_ordinary_controller_stays_who_it_is(tmp_path: Path, desk: Path) -> None:
    who = run_as(spec(desk, home=tmp_path / "home"), tmp_path)
    assert (who.uid, who.gid, who.dropped) == (os.geteuid(), os.getegid(), False)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


@as_root
def test_uids_are_unique_when_many_controllers_ask_at_once(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def ask(number: int) -> list[int]:
        start.wait()
        return [session_uid(f"s{number}-{turn}", tmp_path) for turn in range(10)]

    with ThreadPoolExecutor(8) as pool:
        uids = [uid for found in pool.map(ask, range(8)) for uid in found]
    assert len(set(uids)) == 80


@as_root
@pytest.mark.parametrize("text", ["{", "[]", '{"a": 0}', '{"a": "1900000001"}', '{"a": 1001}'])
def test_damaged_table_of_uids_is_refused_rather_than_started_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "session_uids.json").write_text(text)
    with pytest.raises(BackendUnavailableError, match=r"session_uids\.json"):
        session_uid("a", tmp_path)
    assert (tmp_path / "session_uids.json").read_text() == text


def test_session_that_cannot_be_a_name_gets_no_uid(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError):
        session_uid("../x", tmp_path)


def test_ranges_hold_no_uid_that_the_system_uses() -> None:
    users = {entry.pw_uid for entry in pwd.getpwall()}
    assert not any(uid in SESSION_UIDS for uid in users)
    assert 65534 not in NARROW_SESSION_UIDS
    assert SESSION_UIDS.stop <= 2**31


@as_root
def test_tree_is_given_with_everything_that_is_its_own(desk: Path) -> None:
    (desk / "a" / "b").mkdir(parents=True)
    (desk / "a" / "b" / "file").touch()
    os.mkfifo(desk / "fifo")
    give(desk, 4242, 4243)
    for path in (desk, desk / "a", desk / "a" / "b", desk / "a" / "b" / "file", desk / "fifo"):
        assert owner(path) == (4242, 4243)


@as_root
def test_links_are_given_but_never_followed_and_shared_files_are_left(tmp_path: Path, desk: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (outside / "linked").touch()
    (desk / "to-dir").symlink_to(outside)
    (desk / "to-file").symlink_to(outside / "file")
    (desk / "linked").hardlink_to(outside / "linked")
    give(desk, 4242, 4242)
    assert owner(desk / "to-dir") == owner(desk / "to-file") == (4242, 4242)
    assert owner(outside) == owner(outside / "file") == owner(outside / "linked") == (0, 0)


@as_root
def test_tree_whose_top_is_given_already_is_not_walked_again(desk: Path) -> None:
    (desk / "of-root").touch()
    os.chown(desk, 4242, 4242)
    give(desk, 4242, 4242)
    assert owner(desk / "of-root") == (0, 0)


@as_root
def test_very_deep_tree_is_given_as_far_as_the_limit(desk: Path) -> None:
    fd = os.open(desk, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 50):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    before = len(os.listdir("/proc/self/fd"))
    give(desk, 4242, 4242)
    assert len(os.listdir("/proc/self/fd")) == before
    assert owner(desk / "d" / "d") == (4242, 4242)


@as_root
def test_swapping_links_while_a_tree_is_given_takes_nothing_outside(tmp_path: Path, desk: Path) -> None:
    """A session still at work exchanges its directories for links to the host's, over and over."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner").touch()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for number in range(20):
                name, aside = desk / f"d{number}", desk / f"x{number}"
                try:
                    aside.symlink_to(outside)
                    os.rename(name, tmp_path / "moved")
                    os.rename(aside, name)
                    os.rename(name, aside)
                    os.rename(tmp_path / "moved", name)
                    aside.unlink()
                except OSError:
                    continue

    for number in range(20):
        (desk / f"d{number}").mkdir()
        (desk / f"d{number}" / "inner").touch()
    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for turn in range(200):
            give(desk, 4242 + turn, 4242)
    finally:
        done.set()
        swapping.join()
    assert owner(outside) == owner(outside / "inner") == (0, 0)


@as_root
def test_mounts_inside_a_tree_are_not_given(desk: Path) -> None:
    """/proc is another file system wherever it is: one bound below a desk must not be chowned."""
    (desk / "mounted").mkdir()
    code = """
import sys
from pathlib import Path
from sandbox_backends.privileges import give
give(Path(sys.argv[1]), 4242, 4242)
"""
    script = """
set -e
mount -t tmpfs none "$0/mounted"
touch "$0/mounted/x"
"$1" -c "$2" "$0"
stat -c %u "$0/mounted" "$0/mounted/x" "$0"
"""
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, str(desk), sys.executable, code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=15, cwd=REPOSITORY)
    assert done.stdout.split() == ["0", "0", "4242"]


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "expected"),
    [(0o700, 1, 1, False), (0o701, 1, 1, True), (0o710, 1, 0, True), (0o601, 0, 0, False), (0o706, 1, 1, False)],
)
@as_root
def test_reaching_a_directory_is_judged_as_the_kernel_does(
    desk: Path, mode: int, uid: int, gid: int, expected: bool
) -> None:
    for parent in desk.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)  # pytest's own, below /tmp
    (desk / "inner").mkdir()
    desk.chmod(mode)
    assert reaches(desk / "inner", uid, gid) is expected
    assert reaches(desk, uid, gid) is expected
