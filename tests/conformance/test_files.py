"""Files by the contract of a sandbox, over every backend and the fake (SBX-02)."""

from __future__ import annotations

import pytest

from sandbox_backends.contract import MAX_READ_BYTES, ExecRequest
from sandbox_backends.errors import FileError, InvalidRequestError, PathRefusedError
from tests.places import EVERY, REAL, Bench

every_place = pytest.mark.parametrize("name", EVERY)
real_place = pytest.mark.parametrize("name", REAL)
pytestmark = pytest.mark.req("SBX-02")


@every_place
@pytest.mark.req("TOOL-01")
async def test_files_are_written_read_listed_and_described(bench: Bench, name: str) -> None:
    data = bytes(range(256)) * 5000
    async with bench.open(name) as session:
        await session.write_file("new/dir/data.bin", data)
        assert await session.read_file("new/dir/data.bin") == data
        assert await session.read_file(f"{bench.project}/new/dir/data.bin", offset=256, max_bytes=3) == b"\0\1\2"
        assert await session.read_file("new/dir/data.bin", offset=10**9) == b""
        listing = await session.list_dir("new/dir")
        assert [(entry.name, entry.stat.kind, entry.stat.size_bytes) for entry in listing.entries] == [
            ("data.bin", "file", len(data))
        ]
        assert (await session.stat("new")).kind == "directory"
        await session.write_file("new/dir/data.bin", b"short", mode=0o600)
        found = await session.stat("new/dir/data.bin")
        assert (found.size_bytes, found.mode) == (5, 0o600)


@every_place
async def test_file_errors_say_what_is_wrong(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        await session.write_file("dir/file", b"")
        for path, code in (("missing", "not_found"), ("dir", "not_a_file"), ("a\0b", "invalid")):
            with pytest.raises(FileError) as caught:
                await session.read_file(path)
            assert caught.value.code == code
        with pytest.raises(FileError):
            await session.write_file("dir", b"")
        with pytest.raises(FileError):
            await session.write_file("newname/", b"")
        with pytest.raises(FileError):
            await session.list_dir("missing")


@every_place
@pytest.mark.req("DEC-13")
async def test_paths_that_leave_the_roots_are_refused(bench: Bench, name: str) -> None:
    """What they name is there, so that a refusal is told apart from a file that is missing."""
    beside = bench.base / "project-evil"
    beside.mkdir()
    for outside in (bench.base / "x", beside / "x"):
        outside.write_text("secret")
        outside.chmod(0o644)
    async with bench.open(name) as session:
        await session.write_file("a/inside", b"")
        for path in ("../x", "/etc/passwd", str(beside / "x"), "a/../../x", "../project-evil/x"):
            with pytest.raises(PathRefusedError):
                await session.read_file(path)
            with pytest.raises(PathRefusedError):
                await session.stat(path)
            with pytest.raises(PathRefusedError):
                await session.write_file(path, b"changed")
        for path in ("..", "/etc", str(beside)):
            with pytest.raises(PathRefusedError):
                await session.list_dir(path)
        with pytest.raises(PathRefusedError):
            await session.write_file("/etc/bubbles-was-here", b"")
    assert (bench.base / "x").read_text() == (beside / "x").read_text() == "secret"


@every_place
async def test_numbers_that_no_file_has_are_the_callers_mistake(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        await session.write_file("file", b"data")
        wrong = ({"offset": -1}, {"offset": 2**63}, {"max_bytes": -1}, {"max_bytes": MAX_READ_BYTES + 1})
        for numbers in wrong:
            with pytest.raises(InvalidRequestError):
                await session.read_file("file", **numbers)
        for mode in (-1, 0o1000, 0o4755):
            with pytest.raises(InvalidRequestError, match="mode"):
                await session.write_file("file", b"changed", mode=mode)
        assert await session.read_file("file") == b"data"
        assert (await session.stat("file")).mode == 0o644
        assert await session.read_file("file", max_bytes=0) == b""


@every_place
async def test_name_that_begins_like_a_directory_is_no_directory(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        await session.write_file("foobar/x", b"")
        for attempt in (session.stat, session.list_dir, session.read_file):
            with pytest.raises(FileError) as caught:
                await attempt("foo")
            assert caught.value.code == "not_found"
        await session.write_file("foo", b"a file")
        assert await session.read_file("foo") == b"a file"


@real_place
async def test_names_that_are_not_utf8_are_carried_byte_for_byte(bench: Bench, name: str) -> None:
    odd = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")
    async with bench.open(name) as session:
        await session.write_file(odd, b"odd")
        assert [entry.name for entry in (await session.list_dir()).entries] == [odd]
        result = await session.exec(ExecRequest(argv=("cat", odd), timeout_s=10))
        assert result.stdout == b"odd"


@real_place
async def test_files_belong_to_the_owner_of_the_project_with_ordinary_modes(bench: Bench, name: str) -> None:
    """B022, B023."""
    async with bench.open(name) as session:
        await session.write_file("by-tool", b"")
        assert (await session.exec(ExecRequest(argv=("touch", "by-command"), timeout_s=10))).ok
    for made in ("by-tool", "by-command"):
        found = (bench.project / made).stat()
        assert found.st_uid == bench.project.stat().st_uid
        assert found.st_mode & 0o777 == 0o644
