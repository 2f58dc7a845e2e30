"""Removing trees that others filled and may still be at work in: all goes, and nothing outside is touched."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_backends.trees import MAX_OPEN, remove_tree
from tests.as_tester import directory_of_tester, run_as_tester

SHUT = """
import os, sys
from pathlib import Path
from sandbox_backends.trees import remove_tree

top = Path(sys.argv[1], "tree")
for mode in (0o000, 0o100, 0o200, 0o400, 0o500, 0o600):
    inner = top / oct(mode) / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner.parent / "file").write_text("x")
    inner.chmod(mode)
    inner.parent.chmod(mode)
deep = os.open(top, os.O_RDONLY)
for _ in range(300):
    os.mkdir("d", dir_fd=deep)
    inner = os.open("d", os.O_RDONLY, dir_fd=deep)
    os.fchmod(deep, 0o500)
    os.close(deep)
    deep = inner
os.close(deep)
top.chmod(0o000)
print(remove_tree(top), os.listdir(sys.argv[1]))

kept = Path(sys.argv[1], "parent", "kept")
kept.mkdir(parents=True)
kept.parent.chmod(0o500)
print(remove_tree(kept), remove_tree(kept.parent / "gone"), oct(kept.parent.stat().st_mode & 0o777), kept.is_dir())
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "file").write_text("kept")
    (made / "file").write_text("kept")
    for path in (made / "inner", made):
        path.chmod(0o751)
    return made


def untouched(outside: Path) -> bool:
    return (
        sorted(path.name for path in outside.rglob("*")) == ["file", "file", "inner"]
        and {stat.S_IMODE(path.stat().st_mode) for path in (outside, outside / "inner")} == {0o751}
        and (outside / "inner" / "file").read_text() == "kept"
    )


def test_everything_of_any_kind_goes_and_links_are_not_followed(tmp_path: Path, outside: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    (tree / "hard").hardlink_to(outside / "file")
    os.mkfifo(tree / "a" / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tree / "a" / "socket"))
    (tree / os.fsdecode(b"\xff\n")).mkdir()
    assert remove_tree(tree)
    assert not tree.exists()
    assert untouched(outside)


def test_what_is_gone_or_no_directory_is_left_alone_with_its_parent(tmp_path: Path, outside: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o555)
    assert remove_tree(parent / "gone")
    assert remove_tree(parent / "gone" / "too")
    link = parent / "link"
    link.symlink_to(outside)
    assert not remove_tree(link)
    assert not remove_tree(outside / "file")
    assert link.is_symlink()
    assert untouched(outside)
    assert stat.S_IMODE(parent.stat().st_mode) == 0o555


def test_tree_deeper_than_recursion_paths_and_descriptors_go_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    level = os.open(tree, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=level)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=level))
        inner = os.open("deeper", os.O_RDONLY, dir_fd=level)
        os.close(level)
        level = inner
    os.close(level)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert remove_tree(tree)
    assert not tree.exists()
    assert not before or len(os.listdir("/proc/self/fd")) == before
    assert MAX_OPEN < 100


@contextmanager
def swapping(place: Path, outside: Path) -> Iterator[None]:
    """All the time, ``place`` is now a directory, now a link out, now not there."""
    stop = threading.Event()
    aside = place.with_name("aside")

    def swap() -> None:
        while not stop.is_set():
            for step in (
                lambda: (place / "inner").mkdir(parents=True),
                (place / "inner" / "file").touch,
                lambda: place.chmod(0o000),
                lambda: place.rename(aside),
                lambda: place.symlink_to(outside),
                place.unlink,
                lambda: aside.rename(place),
            ):
                try:
                    step()
                except OSError:
                    continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_directory_that_is_swapped_for_a_link_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    tree = tmp_path / "tree"
    with swapping(tree / "place", outside):
        for _ in range(60):
            tree.mkdir(exist_ok=True)
            remove_tree(tree)
            assert untouched(outside)
    assert remove_tree(tree)
    assert untouched(outside)


@pytest.mark.needs("tester")
def test_ordinary_user_removes_what_modes_forbid_and_changes_no_mode_outside() -> None:
    with directory_of_tester() as base:
        told = run_as_tester(SHUT, str(base)).stdout.splitlines()
    assert told == ["True []", "False True 0o500 True"]
