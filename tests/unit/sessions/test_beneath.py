"""Files of a desk that a model has prepared: nothing outside is read or written, and nothing waits."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles.sessions import beneath
from bubbles.sessions.beneath import RefusedError


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    root = tmp_path / "desk"
    (root / "d").mkdir(parents=True)
    (root / "d" / "f").write_text("inside")
    return root


@contextmanager
def swapping(desk: Path) -> Iterator[None]:
    """Something that puts a link in the place of the directory ``d`` and back, all the time."""
    stop = threading.Event()
    (desk / "link").symlink_to(desk.parent / "outside")

    def swap() -> None:
        while not stop.is_set():
            os.rename(desk / "d", desk / "aside")
            os.rename(desk / "link", desk / "d")
            os.rename(desk / "d", desk / "link")
            os.rename(desk / "aside", desk / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.req("SESS-09")
def test_file_is_read_and_a_missing_one_is_none(desk: Path) -> None:
    assert beneath.read_text(desk, "d/f", 100) == "inside"
    assert beneath.read_text(desk, "d//./f", 6) == "inside"
    assert beneath.read_text(desk, "SOUL.md", 100) is None
    assert beneath.read_text(desk, "no/such", 100) is None
    (desk / "odd").write_bytes(b"\xef\xbb\xbfa\xff")
    assert beneath.read_text(desk, "odd", 100) == "a\N{REPLACEMENT CHARACTER}"


@pytest.mark.req("SESS-09")
@pytest.mark.parametrize(
    "what",
    [
        "link",
        "relative link",
        "link inside",
        "dangling link",
        "hard link",
        "fifo",
        "socket",
        "directory",
        "huge",
        "via",
    ],
)
def test_what_is_no_ordinary_file_is_refused_at_once(desk: Path, what: str) -> None:
    """B128, B129"""
    planted, name = desk / "SOUL.md", "SOUL.md"
    outside = desk.parent / "outside"
    match what:
        case "link":
            planted.symlink_to(outside / "secret")
        case "relative link":
            planted.symlink_to("../outside/secret")
        case "link inside":
            planted.symlink_to("d/f")
        case "dangling link":
            planted.symlink_to("nowhere")
        case "hard link":
            os.link(outside / "secret", planted)
        case "fifo":
            os.mkfifo(planted)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.relpath(planted))
        case "directory":
            planted.mkdir()
        case "huge":
            with planted.open("wb") as stream:
                stream.truncate(1 << 40)
        case "via":
            (desk / "link").symlink_to(outside)
            name = "link/secret"
    with pytest.raises(RefusedError, match=name.split("/")[0]):
        beneath.read_bytes(desk, name, 1_000)


@pytest.mark.req("SESS-09")
def test_device_is_refused_without_being_opened(desk: Path) -> None:
    try:
        os.mknod(desk / "tape", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device here")
    with pytest.raises(RefusedError):
        beneath.read_bytes(desk, "tape", 10)


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside/secret", "d/../../outside/secret", "", ".", "a\0b"])
def test_name_that_leads_out_is_our_own_mistake(desk: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"beneath|names no file"):
        beneath.read_bytes(desk, name, 10)


@pytest.mark.req("SESS-09")
def test_writing_replaces_a_link_and_never_follows_it(desk: Path) -> None:
    secret = desk.parent / "outside" / "secret"
    (desk / "link").symlink_to(secret)
    os.link(secret, desk / "hard")
    for name in ("link", "hard", "new"):
        assert beneath.write_bytes(desk, name, b"text", mode=0o600)
        assert (desk / name).read_bytes() == b"text"
        assert stat.S_ISREG((desk / name).lstat().st_mode)
    assert secret.read_text() == "secret"
    (desk / "dangling").symlink_to(desk.parent / "outside" / "made")
    assert not beneath.write_bytes(desk, "dangling", b"x", replace=False)
    assert not beneath.write_bytes(desk, "new", b"x", replace=False)
    assert not (desk.parent / "outside" / "made").exists()
    with pytest.raises(RefusedError):
        beneath.write_bytes(desk, "d", b"x")
    assert sorted(path.name for path in desk.iterdir()) == ["d", "dangling", "hard", "link", "new"]


@pytest.mark.parametrize("system", ["Linux", "another"])
def test_new_file_has_one_name_and_never_replaces(desk: Path, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "another":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    assert beneath.write_bytes(desk, "new", b"first", mode=0o600, replace=False)
    assert not beneath.write_bytes(desk, "new", b"second", replace=False)
    found = (desk / "new").lstat()
    assert ((desk / "new").read_bytes(), found.st_nlink, stat.S_IMODE(found.st_mode)) == (b"first", 1, 0o600)
    assert sorted(path.name for path in desk.iterdir()) == ["d", "new"]


@pytest.mark.req("SESS-09")
def test_removing_takes_the_link_and_leaves_what_it_leads_to(desk: Path) -> None:
    (desk / "link").symlink_to(desk.parent / "outside" / "secret")
    beneath.remove(desk, "link")
    beneath.remove(desk, "link")
    beneath.remove(desk, "no/such")
    assert (desk.parent / "outside" / "secret").exists()
    assert not os.path.lexists(desk / "link")
    with pytest.raises(RefusedError):
        beneath.remove(desk, "d")


def test_listing_follows_nothing_and_is_bounded(desk: Path) -> None:
    (desk / "link").symlink_to(desk.parent / "outside")
    found = beneath.list_directory(desk)
    assert found is not None
    assert [(entry.name, stat.S_ISLNK(entry.kind)) for entry in found] == [("d", False), ("link", True)]
    assert beneath.list_directory(desk, "none") is None
    assert len(beneath.list_directory(desk, most=1) or ()) == 1
    with pytest.raises(RefusedError):
        beneath.list_directory(desk, "link")


@pytest.mark.req("SESS-09")
def test_directory_that_is_swapped_for_a_link_never_leads_out(desk: Path) -> None:
    """B127"""
    read: set[str | None] = set()
    with swapping(desk):
        for number in range(300):
            try:
                read.add(beneath.read_text(desk, "d/secret", 100))
                beneath.write_bytes(desk, "d/made", b"%d" % number)
                beneath.make_directory(desk, "d/folder")
            except (RefusedError, FileNotFoundError):
                continue
    assert read <= {None}
    assert [path.name for path in (desk.parent / "outside").iterdir()] == ["secret"]


@pytest.mark.req("SESS-07")
def test_link_for_people_is_put_there_whatever_was_there(desk: Path) -> None:
    target = desk.parent / "outside" / "secret"
    assert beneath.put_link(desk, "x", target) is None
    assert beneath.put_link(desk, "x", target) is None
    (desk / "x").unlink()
    (desk / "x").write_text("planted")
    aside = beneath.put_link(desk, "x", target)
    assert aside is not None
    assert (desk / aside).read_text() == "planted"
    assert (desk / "x").readlink() == target


@pytest.mark.req("SESS-09")
@pytest.mark.needs("root")
def test_what_root_makes_in_a_desk_belongs_to_the_owner_of_the_desk(desk: Path) -> None:
    os.chown(desk, 12345, 12346)
    beneath.write_bytes(desk, "SOUL.md", b"x")
    beneath.make_directory(desk, "data")
    for name in ("SOUL.md", "data"):
        assert ((desk / name).stat().st_uid, (desk / name).stat().st_gid) == (12345, 12346)
