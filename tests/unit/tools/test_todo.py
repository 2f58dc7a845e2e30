"""The list of things to do: what is kept, and what a damaged file costs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bubbles.tools.todo import FILE, MAX_FILE_BYTES, MAX_ITEMS, Item, load, save
from sandbox_backends.fake import FakeBackend
from tests.tool_desk import open_fake_desk

pytestmark = pytest.mark.req("TOOL-07")

LIST = [{"title": "look"}, {"title": "mend\nit", "status": "doing"}, {"title": "say so", "status": "done"}]


async def test_the_list_is_kept_out_of_the_models_reach_and_lasts(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with open_fake_desk(tmp_path, backend) as desk:
        assert await desk.ok("todo") == "The list is empty."
        assert await desk.ok("todo", items=LIST) == "1. [ ] look\n2. [>] mend it\n3. [x] say so"
        assert not backend.sessions  # no sandbox sees it
        path = desk.folders.state / FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(path.parent) == [FILE]
        assert await desk.ok("todo") == "1. [ ] look\n2. [>] mend it\n3. [x] say so"
        assert await desk.ok("todo", items=[]) == "The list is empty."
        assert await desk.ok("todo") == "The list is empty."


async def test_a_wrong_list_changes_nothing(tmp_path: Path) -> None:
    async with open_fake_desk(tmp_path, FakeBackend()) as desk:
        await desk.ok("todo", items=LIST)
        for wrong in (
            [{"title": ""}],
            [{"title": "x" * 501}],
            [{"title": "x", "status": "later"}],
            [{"title": "x"}] * (MAX_ITEMS + 1),
            ["x"],
            "x",
        ):
            assert "Expected" in await desk.refused("todo", items=wrong)
        assert "look" in await desk.ok("todo")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"items": [{"title": 1}]}', b"[]", b"\xff", b"[" * 100_000, b" " * (MAX_FILE_BYTES + 1)]
)
def test_a_damaged_file_is_put_aside_and_told(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(data)
    items, told = load(path)
    assert items == ()
    (aside,) = tmp_path.iterdir()
    assert aside.name in told
    assert aside.read_bytes() == data
    save(path, (Item(title="new"),))
    assert load(path) == ((Item(title="new"),), "")


async def test_a_list_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    async with open_fake_desk(tmp_path, FakeBackend()) as desk:
        (desk.folders.state / FILE).mkdir()
        assert "cannot be kept" in await desk.refused("todo", items=LIST)
        assert "cannot be kept" in await desk.refused("todo")
        assert [path.name for path in desk.folders.state.iterdir()] == [FILE]


async def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('{"items": [{"title": "secret"}]}')
    async with open_fake_desk(tmp_path, FakeBackend()) as desk:
        (desk.folders.state / FILE).symlink_to(tmp_path / "elsewhere")
        assert "secret" not in await desk.refused("todo")
        await desk.ok("todo", items=LIST)
    assert "secret" in (tmp_path / "elsewhere").read_text()
