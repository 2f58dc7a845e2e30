"""Replacing a text, exactly or not at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bubbles.bus import Origin
from bubbles.tools.access import Files
from bubbles.tools.contract import ToolError
from bubbles.tools.edit import MAX_FILE_BYTES, EditFile, EditFileArgs, edited
from bubbles.tools.nearest import MAX_SHOWN, nearest
from sandbox_backends.fake import FakeBackend
from tests.tool_desk import HERE, open_fake_desk

pytestmark = pytest.mark.req("TOOL-01")


def change(before: bytes, old: str, new: str, *, every: bool = False) -> bytes:
    return edited(before, EditFileArgs(path="f", old=old, new=new, all=every))[0]


def miss(before: bytes, old: str, new: str = "new", *, every: bool = False) -> str:
    with pytest.raises(ToolError) as caught:
        change(before, old, new, every=every)
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\ntwo\n", "two", "2", b"one\n2\n"),
        (b"one\ntwo\n", "one\ntwo\n", "", b""),
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb\r\n", "x\r\n", b"x\r\nc\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nB", b"a\r\nB\r\n"),
        (b"a\r\nb\r\n", "b\n", "b", b"a\r\nb"),
        (b"a\r\nb\nc\r\nd\r\n", "b\nc", "X", b"a\r\nX\r\nd\r\n"),
        (b"a\r\nb\nc\nd\n", "c", "x\ny", b"a\r\nb\nx\ny\nd\n"),
        (b"a\nb\n", "a\r\nb", "c\r\nd", b"c\nd\n"),
        (b"lone\rreturn\n", "return", "x", b"lone\rx\n"),
        ("\ufeffé\n".encode(), "é", "è", "\ufeffè\n".encode()),
        ("é\n".encode("latin-1"), "é", "è", "è\n".encode("latin-1")),
        (
            "é é é \udcff x\n".encode("utf-8", "surrogateescape"),
            "x",
            "ü",
            "é é é ".encode() + b"\xff " + "ü\n".encode(),
        ),
        ("a\r\né\r\n".encode("utf-16"), "a\né", "漢\n", "漢\r\n\r\n".encode("utf-16")),
        (b"\xfe\xff" + "a\n".encode("utf-16-be"), "a", "b", b"\xfe\xff" + "b\n".encode("utf-16-be")),
        (b"\\d+ $1\n", "\\d+ $1", "\\1 $&", b"\\1 $&\n"),
    ],
)
def test_the_text_is_replaced_and_every_other_byte_stays(before: bytes, old: str, new: str, after: bytes) -> None:
    assert change(before, old, new) == after


def test_every_occurrence_is_replaced_if_asked_for() -> None:
    assert change(b"a b a\r\na\r\n", "a", "\n", every=True) == b"\r\n b \r\n\r\n\r\n\r\n"
    assert change(b"aaaa", "aa", "b", every=True) == b"bb"
    assert change(b"once", "once", "one", every=True) == b"one"


def test_several_occurrences_are_named_by_their_lines() -> None:
    assert "on lines 1, 3: give more" in miss(b"x\ny\nx\n", "x")
    assert "on lines 1, 1:" in miss(b"aaa", "aa")  # which of the two is not known
    assert "10, …" in miss(b"x\n" * 50, "x")


def test_a_miss_shows_the_nearest_text() -> None:
    text = b"def f():\n    return compute(1)\n\ndef g():\n    return 2\n"
    assert "nearest is on line 2:\n    return compute(1)" in miss(text, "    return compute(2)")
    assert "on line 4, which differs in nothing but white space:\ndef g():\n    return 2" in miss(
        text, "def g():\n\treturn 2"
    )
    assert "nothing much like it" in miss(text, "class Completely(Different): pass")
    assert "nothing much like it" in miss(b"", "x")
    lines = [f"line {number} of the file" for number in range(1, 500)]
    shown = miss("\n".join(lines).encode(), "\n".join([*lines[98:200], "line 201 of this file", *lines[201:300]]))
    assert "on line 99:\nline 99 of the file\n" in shown
    assert shown.count("\n") == MAX_SHOWN + 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a" * 5_000_000, "b" * 900_000),
        ("ab" * 2_500_000, "ba" * 2_499_999 + "c"),
        ("\n" * 2_000_000, "x\n" * 400_000),
        ("abcdefgh ijkl\n" * 350_000, "abcdefgh ijkm"),
        (("ab" * 80 + "\n") * 30_000, "ba" * 79 + "a"),
        ("x y\n" * 300_000, "x z\n" * 200_000),
    ],
    ids=range(6),
)
def test_the_nearest_text_is_found_or_given_up_in_bounded_time(text: str, wanted: str) -> None:
    started = time.process_time()
    found = nearest(text, wanted)
    assert time.process_time() - started < 8
    assert found is None or len(found.text) < 10_000


@pytest.mark.parametrize(
    ("before", "old", "new", "said"),
    [
        (b"\x7fELF\0\0", "a", "b", "a program (ELF)"),
        (b"\xff\xfe\x00\xd8", "a", "b", "utf-16-le that is damaged"),
        ("é\n".encode("latin-1"), "é", "漢", "cannot hold"),
        (b"a" * 200_000, "a", "b", "very often"),
        (b"a" * 90_000, "a", "b" * 1000, "very often"),
    ],
)
def test_what_cannot_be_edited_is_said_to_be_so(before: bytes, old: str, new: str, said: str) -> None:
    assert said in miss(before, old, new, every=True)


def test_line_ends_alone_are_no_change() -> None:
    assert "nothing but line ends" in miss(b"a\nb\n", "a\nb", "a\r\nb")


async def test_a_change_of_nothing_is_an_error(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with open_fake_desk(tmp_path, backend) as desk:
        await desk.ok("write_file", path="a.txt", content="a\n")
        assert "old is empty" in await desk.refused("edit_file", path="a.txt", old="", new="x")
        assert "nothing to change" in await desk.refused("edit_file", path="a.txt", old="a", new="a")
        assert "no such file" in await desk.refused("edit_file", path="b.txt", old="a", new="b")
        assert await desk.ok("edit_file", path="a.txt", old="a", new="é") == (
            "Replaced on line 1 in a.txt, which has 3 bytes now."
        )
        assert await desk.ok("edit_file", path="a.txt", old="\n", new="\n\n", all=True)
        backend.sessions[0].files[f"{desk.desk}/big"] = b"a" * (MAX_FILE_BYTES + 1)
        assert "use exec" in await desk.refused("edit_file", path="big", old="a", new="b")


async def test_a_file_that_something_else_changes_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    class Meddler(Files):
        async def read(self, path: str, origin: Origin, *, offset: int = 0, max_bytes: int = 0) -> bytes:
            data = await super().read(path, origin, max_bytes=max_bytes)
            backend.sessions[0].files[f"{desk.desk}/a.txt"] += b"more"
            return data

    backend = FakeBackend()
    async with open_fake_desk(tmp_path, backend) as desk:
        await desk.ok("write_file", path="a.txt", content="a\n")
        tool = EditFile(Meddler(desk.controller, lambda _: desk.place))
        with pytest.raises(ToolError, match="changed by something else"):
            await tool.run(EditFileArgs(path="a.txt", old="a", new="b"), HERE)
        assert backend.sessions[0].files[f"{desk.desk}/a.txt"].startswith(b"a\n")
