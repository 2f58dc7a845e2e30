"""Reading by lines, writing and listing, over a sandbox in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from bubbles.bus import Origin
from bubbles.tools.access import Files
from bubbles.tools.encodings import Encoding
from bubbles.tools.files import MAX_PICTURE_BYTES, MAX_SHOWN, ListDir, ListDirArgs
from bubbles.tools.paging import MAX_LINE, LinePicker
from sandbox_backends.contract import DirEntry, DirListing, FileStat
from sandbox_backends.fake import FakeBackend
from tests.tool_desk import HERE, ToolDesk, open_fake_desk

pytestmark = pytest.mark.req("TOOL-01")


@asynccontextmanager
async def desk_with(tmp_path: Path, **files: str | bytes) -> AsyncIterator[ToolDesk]:
    """A desk on which these files lie."""
    backend = FakeBackend()
    async with open_fake_desk(tmp_path, backend, result_tokens=2_000) as desk:
        await desk.ok("write_file", path="seed", content="")
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            backend.sessions[0].files[f"{desk.desk}/{name}"] = data
            backend.sessions[0].modes[f"{desk.desk}/{name}"] = 0o644
        yield desk


async def reading(tmp_path: Path, content: str | bytes, **arguments: int) -> str:
    async with desk_with(tmp_path, f=content) as desk:
        return await desk.ok("read_file", path="f", **arguments)


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        ("a\nb\n", {}, "a\nb\n"),
        ("a\nb", {}, "a\nb\n"),
        ("", {}, "[the file is empty]"),
        ("\n", {}, "\n"),
        ("\n\n", {}, "\n\n"),
        ("a\r\nb\r\n", {}, "a\nb\n[lines end with CR LF, which edit_file keeps]"),
        (numbered(5), {"first_line": 2, "lines": 2}, "line 2\nline 3\n[lines 2-3 of 5; go on with first_line=4]"),
        (numbered(5), {"first_line": 4}, "line 4\nline 5\n[lines 4-5, the last]"),
        (numbered(5), {"lines": 5}, numbered(5)),
        (numbered(5) + "end", {"first_line": 6}, "end\n[lines 6-6, the last]"),
        ("\ufeffé\n".encode(), {}, "é\n[the file begins with a byte order mark]"),
        ("é\n漢\n".encode("utf-16"), {"first_line": 2}, "漢\n[lines 2-2, the last; the file is UTF-16]"),
        (b"caf\xe9\n", {}, "café\n[the file is not UTF-8: it is read as Latin-1]"),
        ("éàü".encode() + b"\xff\n", {}, "éàü\\xff\n[some bytes are no UTF-8 and are shown as \\xNN]"),
        (b"\x1b[31mred\x1b[0m\n", {}, "\x1b[31mred\x1b[0m\n"),
    ],
)
async def test_lines_come_as_they_are_with_what_is_left(
    tmp_path: Path, content: str | bytes, arguments: dict[str, int], shown: str
) -> None:
    assert await reading(tmp_path, content, **arguments) == shown


async def test_a_line_past_the_end_is_an_error_that_says_where_that_is(tmp_path: Path) -> None:
    async with desk_with(tmp_path, f=numbered(3)) as desk:
        assert "f has 3 lines: line 4 is past its end" in await desk.refused("read_file", path="f", first_line=4)
        assert "line 1,000,000" in await desk.refused("read_file", path="f", first_line=1_000_000)


@pytest.mark.req("CORE-07")
async def test_a_long_file_is_paged_through_to_its_end_without_a_line_lost(tmp_path: Path) -> None:
    content = numbered(5_000)
    async with desk_with(tmp_path, f=content) as desk:
        seen, first = "", 1
        while True:
            finished = await desk.call("read_file", path="f", first_line=first)
            assert finished.full_text is None  # it fits: nothing is cut out of its middle
            text, _, remark = finished.result.text.rpartition("[")
            seen += text
            if "go on with" not in remark:
                break
            assert f"of {5_000:,};" in remark
            first = int(remark.split("first_line=")[1].rstrip("]"))
    assert seen == content


async def test_a_huge_file_is_read_no_further_than_is_needed(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    async with desk_with(tmp_path, f=line * 400_000) as desk:
        text = await desk.ok("read_file", path="f", lines=1)
        assert text.startswith("x" * 99 + "\n[lines 1-1 of more than ")
        text = await desk.ok("read_file", path="f", first_line=399_999)
        assert text == "x" * 99 + "\n" + "x" * 99 + "\n[lines 399999-400000, the last]"


async def test_a_very_long_line_is_cut(tmp_path: Path) -> None:
    text = await reading(tmp_path, "a\n" + "x" * 3_000_000 + "\nb\n")
    assert f"\n{'x' * MAX_LINE}… [line of 3,000,000 bytes, cut]\nb\n[1 long lines are cut" in text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("first", "count"), [(1, 3), (2, 100), (3, 1), (6, 2), (99, 1)])
def test_pieces_of_any_size_give_the_same_lines(size: int, first: int, count: int) -> None:
    data = "one\n\nthré\r\nfour\nfive\nsix".encode()
    picker = LinePicker(encoding=Encoding(codec="utf-8"), first=first, count=count, tokens=1000)
    for at in range(0, len(data), size):
        picker.feed(data[at : at + size])
    picker.finish()
    assert picker.lines == data.decode().replace("\r", "").split("\n")[first - 1 : first - 1 + count]
    assert picker.ended == 6


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\0\0", "a program (ELF), 7 bytes"),
        (b"%PDF-1.7\n\0", "a PDF document"),
        (b"\0" * 3_000_000, "binary data, 3,000,000 bytes"),
        (bytes(range(32)) * 10, "binary data"),
    ],
)
async def test_what_is_no_text_is_named_with_its_size(tmp_path: Path, content: bytes, said: str) -> None:
    async with desk_with(tmp_path, f=content) as desk:
        assert said in await desk.refused("read_file", path="f")


@pytest.mark.parametrize(
    ("content", "media"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_a_picture_is_known_by_its_bytes_and_handed_on(tmp_path: Path, content: bytes, media: str) -> None:
    async with desk_with(tmp_path, f=content, large=content + b"." * MAX_PICTURE_BYTES) as desk:
        result = (await desk.call("read_file", path="f")).result
        assert not result.is_error
        (image,) = result.images
        assert (image.media_type, image.data) == (media, content)
        assert "make it smaller" in await desk.refused("read_file", path="large")


async def test_writing_says_what_it_did(tmp_path: Path) -> None:
    async with desk_with(tmp_path) as desk:
        assert await desk.ok("write_file", path="d/a.txt", content="é\n") == "Created d/a.txt, 3 bytes."
        assert await desk.ok("write_file", path="d/a.txt", content="") == "Replaced d/a.txt: 0 bytes, which had 3."
        assert "no valid JSON" in await desk.refused("write_file", path="a", content="\ud800")
        assert "at most 5000000" in await desk.refused("write_file", path="a", content="x" * 5_000_001)
        assert "list_dir" in await desk.refused("write_file", path="d", content="x")


@pytest.mark.req("DEC-13")
@pytest.mark.parametrize("path", ["~/.bubbles/config.json", "~", "~root/x", "/etc/passwd", "../x", "a/../../x"])
async def test_a_path_outside_is_refused_with_the_directories_there_are(tmp_path: Path, path: str) -> None:  # B125
    async with desk_with(tmp_path) as desk:
        for tool, more in (
            ("read_file", {}),
            ("write_file", {"content": "x"}),
            ("edit_file", {"old": "a", "new": "b"}),
            ("list_dir", {}),
        ):
            said = await desk.refused(tool, path=path, **more)
            assert said.startswith(f"{path} is, or leads, outside the session's directories")
            assert said.endswith(f"inside them: {desk.desk}.")


async def test_names_with_a_tilde_that_are_no_home_are_names(tmp_path: Path) -> None:
    async with desk_with(tmp_path) as desk:
        for name in ("notes.txt~", "~$report.docx", "a~/b"):
            assert await desk.ok("write_file", path=name, content="x")


async def test_a_listing_shows_kinds_and_sizes_and_hides_nothing_of_a_name(tmp_path: Path) -> None:
    kinds: tuple[tuple[str, Literal["file", "directory", "symlink", "other"]], ...] = (
        ("a.txt", "file"),
        ("d", "directory"),
        ("l", "symlink"),
        ("fifo", "other"),
        ("two\nlines\x1b", "file"),
        ("end ", "file"),
        ("\udcff", "file"),
        ("é", "file"),
    )

    class Listed(Files):
        async def list_dir(self, path: str, origin: Origin) -> DirListing:
            stats = ((name, FileStat(kind=kind, size_bytes=7, mode=0o644, mtime_s=0)) for name, kind in kinds)
            return DirListing(entries=tuple(DirEntry(name=name, stat=stat) for name, stat in stats))

    async with desk_with(tmp_path) as desk:
        tool = ListDir(Listed(desk.controller, lambda _: desk.place))
        assert (await tool.run(ListDirArgs(), HERE)).text == (
            'a.txt  7\nd/\nl  (link)\nfifo  (neither a file nor a directory)\n"two\\nlines\\u001b"  7\n"end "  7\n'
            '"\\udcff"  7\né  7'
        )


async def test_a_large_directory_is_cut_and_an_empty_one_said_to_be_empty(tmp_path: Path) -> None:
    async with desk_with(tmp_path, **{f"f{number}": "" for number in range(MAX_SHOWN + 5)}) as desk:
        text = await desk.ok("list_dir")
        assert text.count("\n") == MAX_SHOWN
        assert text.endswith("[6 more: use exec, with ls and a pattern]")
