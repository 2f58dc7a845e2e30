"""Every row of ``cases/escapes.jsonl`` over every place: what a path may lead to, and what it never may (DEC-13).

A row's verdict is checked by what the session answers and by what is then found outside its root. In a hard place,
where nothing of the host's outside exists, links lead to an outside of the place's own: its /tmp.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends.errors import FileError, InvalidRequestError, InvalidSpecError, PathRefusedError
from tests.needs import give_up, need
from tests.places import Bench
from tests.security.escape_grounds import (
    ACTS,
    CANARY,
    Act,
    Grounds,
    Make,
    fifo,
    folder,
    hard_link,
    in_the_loop_of_its_session,
    kept_open,
    link,
    list_dir,
    list_tree,
    read,
    run_in,
    sh,
    text,
    unix_socket,
    write,
)

CASES = Path(__file__).parents[1] / "cases" / "escapes.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
SPECIAL = ("F043", "F135", "F137")
"""Rows with a test of their own below."""
RACES = ("F045", "F046", "F050")
"""In ``test_escape_races.py``."""

DOCUMENTED = {
    "F019": "an absolute path inside a root is that path (contract.py, SPEC 4.5)",
    "F052": "a hard link inside a root is an ordinary file (SPEC 4.5)",
    "F053": "writing replaces the link and leaves the outside file as it was (SPEC 4.5)",
    "F099": "missing directories are made, under their literal names (contract.py, SPEC 4.5)",
    "F129": "whether a hook may be written is decided before the sandbox is asked",
    "F131": "a session's log lies outside its roots: this is a file like any other",
}
"""What is allowed here although the row would rather have it refused, and where that is said."""
LITERAL = ("F025", "F115")
"""To be refused; here the name is taken literally and nothing is called so."""

pytestmark = pytest.mark.req("DEC-13", "TOOL-01")

SETUP: dict[str, tuple[Make, ...]] = {
    "F006": (folder("sub"), text("a.txt")),
    "F007": (folder("sub"), text("a.txt")),
    "F010": (folder("..."),),
    "F011": (folder("sub"),),
    "F015": (folder("sub"),),
    "F019": (text("a.txt"),),
    "F027": (link("link", "@OUT@"),),
    "F029": (link("f", "@OUT@/secret"),),
    "F030": (link("f", "@OUT@/secret"),),
    "F032": (link("f", "@OUT@/secret"),),
    "F034": (link("a", "b1"), link("b1/b", "@OUT@")),
    "F037": (folder("data/memory"), link("memory", "data/memory")),
    "F040": (link("link", "/"), text("deep/er/a.txt")),
    "F042": (link("link", "@OUT@"),),
    "F052": (hard_link("h", "secret"),),
    "F053": (hard_link("h", "target"),),
    "F062": (link("z", "/dev/zero"),),
    "F063": (fifo,),
    "F065": (fifo,),
    "F066": (unix_socket,),
    "F067": (fifo, unix_socket, link("dangling", "nowhere")),
    "F078": (text("sub/a.txt"),),
    "F079": (text("sub/a.txt"),),
    "F083": (text("sub/a.txt"),),
    "F090": (text(unicodedata.normalize("NFD", "café.txt")),),
    "F113": (text("a.txt"),),
    "F123": (text("a.txt"),),
    "F127": (folder("sub"),),
    "F129": (folder(".git/hooks"),),
    "F143": (folder("sub"),),
}
"""Rows that are not here begin with an empty root; the outside is always there."""


def act_of(row: dict[str, Any], root: Path) -> tuple[Act, Any]:
    if row["path"].endswith(" (recursive)"):
        return list_tree, row["path"].removesuffix(" (recursive)")
    if row["id"] == "F140":
        return read, ["../secret"]
    return ACTS[row["tool"]], row["path"].replace("@S@", str(root))


EXPECTED: dict[str, Callable[[Path], object]] = {
    "F006": lambda root: ["a.txt", "sub"],
    "F007": lambda root: b"inside\n",
    "F019": lambda root: b"inside\n",
    "F040": lambda root: ["deep", "link", "er", "a.txt"],
    "F052": lambda root: CANARY,
    "F067": lambda root: ["dangling", "fifo", "sock"],
    "F078": lambda root: ["a.txt"],
    "F079": lambda root: ["a.txt"],
    "F142": str,
}
"""What an allowed row that does not write gives back."""


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"]) for row in ROWS.values() if row["id"] not in (*SPECIAL, *RACES)]
)
async def test_path_of_the_row_gets_its_verdict_and_nothing_outside_changes(
    grounds: Grounds, row: dict[str, Any]
) -> None:
    for make in SETUP.get(row["id"], ()):
        make(grounds.root, grounds.outside)
    before = grounds.around(), await grounds.around_inside()
    act, path = act_of(row, grounds.root)
    try:
        async with asyncio.timeout(5):
            given = await act(grounds.session, path)
    except PathRefusedError as error:
        verdict, given = "refuse", str(error).encode()
    except (FileError, InvalidRequestError) as error:
        verdict, given = "refuse" if row["id"] in LITERAL else "clean_error", str(error).encode()
    else:
        verdict = "allow"
        check_given(row, given, grounds.root)

    tolerated = {row["expect"], *row["also_ok"]} | ({"allow"} if row["id"] in DOCUMENTED else set())
    assert verdict in tolerated, given
    if row["id"] != "F052":
        assert CANARY.strip() not in (given if isinstance(given, bytes) else repr(given).encode())
    assert (grounds.around(), await grounds.around_inside()) == before
    assert os.listdir(".") == []
    assert not list(grounds.root.rglob(".bubbles-*"))
    if row["tool"] == "write" and verdict != "allow":
        assert not [
            found for found in grounds.root.rglob("*") if found.is_file() and found.read_bytes() == b"written\n"
        ]
    assert grounds.session.lost is None


def check_given(row: dict[str, Any], given: object, root: Path) -> None:
    if row["tool"] == "write":
        assert (root / row["path"]).read_bytes() == b"written\n"
    else:
        assert given == EXPECTED[row["id"]](root)


def test_every_row_is_known() -> None:
    """A setup that is described in words has to be interpreted: a new row fails until it is."""
    assert SETUP.keys() <= ROWS.keys()
    nothing_to_make = {"none", "another session s2", "the session log lies in the session folder"}
    for row in ROWS.values():
        plain = row["setup"] in nothing_to_make or row["setup"].startswith(
            ("sibling", "outside file", "case-", "path ")
        )
        assert plain or row["id"] in (*SETUP, *SPECIAL, *RACES), row


@in_the_loop_of_its_session
async def test_refusal_says_the_same_whatever_lies_outside(grounds: Grounds) -> None:
    """Else the wording would tell what exists out there (F134)."""
    said = set()
    for name in ("secret", "noperm", "missing", "out", "out/secret", "out/missing/deep"):
        for act in (read, write, list_dir, run_in):
            with pytest.raises(PathRefusedError) as caught:
                await act(grounds.session, f"../{name}")
            said.add(str(caught.value).replace(f"../{name}", "PATH"))
    assert len(said) == 1


NEIGHBOURS: dict[str, tuple[str, Make | None, str]] = {
    "a link that leaves by dots (B129)": ("link", link("link", "../../etc/hostname"), "refused"),
    "a new file behind a link that leads to nothing outside": ("link", link("link", "@OUT@/new"), "refused"),
    "a new file below a link to a directory outside": ("link/new/deep", link("link", "@OUT@/folder"), "refused"),
    "a link into the descriptors of whoever reads it": ("link/0", link("link", "/proc/self/fd"), "refused"),
    "a link to the root of whoever reads it": ("link/etc/hostname", link("link", "/proc/self/root"), "refused"),
    "a link to itself": ("link", link("link", "link"), "invalid"),
    "a name below a file": ("a.txt/../../secret", text("a.txt"), "not_a_directory"),
    "dots behind a link": ("link/../../secret", link("link", "."), "refused"),
    "out of the root and back": ("../project/a.txt", text("a.txt"), "refused"),
    "two slashes": ("//etc/hostname", None, "refused"),
    "half a character": ("\ud800", None, "invalid"),
    "more than a path may hold": ("d/" * 2500 + "x", None, "too_long"),
}


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize(("path", "make", "code"), NEIGHBOURS.values(), ids=list(NEIGHBOURS))
async def test_neighbour_of_a_row_is_refused_to_reading_and_writing(
    grounds: Grounds, path: str, make: Make | None, code: str
) -> None:
    if make is not None:
        make(grounds.root, grounds.outside)
    before = grounds.around(), await grounds.around_inside(), sorted(grounds.root.rglob("*"))
    for act in (read, write, run_in):
        with pytest.raises((FileError, InvalidRequestError)) as caught:
            await act(grounds.session, path)
        if act is not run_in:
            assert isinstance(caught.value, FileError)
            assert caught.value.code == code
    assert (grounds.around(), await grounds.around_inside(), sorted(grounds.root.rglob("*"))) == before


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_tilde_is_a_name_like_any_other(grounds: Grounds) -> None:
    """B125: for file tools there is no home to be reached by it."""
    with pytest.raises(FileError):
        await read(grounds.session, "~/.bubbles/config.json")
    await write(grounds.session, "~/.bubbles/config.json")
    assert (grounds.root / "~/.bubbles/config.json").read_bytes() == b"written\n"


@in_the_loop_of_its_session
async def test_controller_s_own_files_are_no_root_and_in_none(grounds: Grounds, place: str) -> None:
    """B131: rules and configuration lie in the data directory."""
    data = grounds.bench.settings.data_dir
    for path in ("config.json", "default.rules", "run/owners"):
        for act in (read, write, list_dir):
            with pytest.raises(PathRefusedError):
                await act(grounds.session, f"{data}/{path}")
    for root in (data, data / "run", grounds.bench.base):
        with pytest.raises(InvalidSpecError):
            async with kept_open(grounds.bench, place, root):
                raise AssertionError


# -- rows that need a place of their own --


@in_the_loop_of_its_session
async def test_f043_root_reached_through_a_link_is_the_directory_it_leads_to(
    another_bench: Bench, place: str, tmp_path: Path
) -> None:
    text("a.txt")(another_bench.project, "")
    (tmp_path / "alias").symlink_to(another_bench.project)
    async with kept_open(another_bench, place, tmp_path / "alias") as session:
        assert await session.read_file("a.txt") == b"inside\n"
        assert await run_in(session, "") == str(another_bench.project)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    need("root")
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "small", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        give_up("root", f"root may not mount here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@in_the_loop_of_its_session
async def test_f135_write_on_a_full_disk_leaves_the_old_file_and_nothing_else(
    another_bench: Bench, place: str, small_disk: Path
) -> None:
    (small_disk / "a.txt").write_bytes(b"old")
    async with kept_open(another_bench, place, small_disk) as session:
        for size in (1 << 20, 3 << 20):
            with pytest.raises(FileError) as caught:
                await session.write_file("a.txt", b"x" * size)
            assert caught.value.code == "no_space"
        await session.exec(sh("cat /dev/zero >filler"))
        with pytest.raises(FileError):
            await session.write_file("a.txt", b"x" * 5000)
        assert (small_disk / "a.txt").read_bytes() == b"old"
        assert sorted(os.listdir(small_disk)) == ["a.txt", "filler"]
        (small_disk / "filler").unlink()
        await session.write_file("a.txt", b"new")
        assert (small_disk / "a.txt").read_bytes() == b"new"
        assert os.listdir(small_disk) == ["a.txt"]


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_f137_directory_without_write_permission_is_a_plain_error(grounds: Grounds, place: str) -> None:
    if place == "local":
        need("ordinary-user")
    folder("ro")(grounds.root, "")
    (grounds.root / "ro").chmod(0o555)
    with pytest.raises(FileError) as caught:
        await grounds.session.write_file("ro/x", b"")
    assert caught.value.code == "permission"
    assert list((grounds.root / "ro").iterdir()) == []
