"""Head, tail, and a name for the file that holds all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.sessions.tokens import estimate
from bubbles.tools.truncate import MAX_KEPT, DeskSpill, cut, cut_to_tokens, safe_name
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.fake import FakeBackend
from tests.tool_desk import HERE, open_fake_desk

pytestmark = pytest.mark.req("CORE-07")


def test_it_is_cut_where_lines_end() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    shown = cut(text, 200, "; see there")
    head, _, rest = shown.partition("[… ")
    said, _, tail = rest.partition("…]\n")
    assert head == "".join(f"line {number}\n" for number in range(13))
    assert tail == "".join(f"line {number}\n" for number in range(989, 1000))
    assert said == f"{len(text) - len(head) - len(tail):,} characters, 976 lines, are left out here; see there "
    assert cut("short", 200, "") == "short"
    assert cut("x" * 100, 20, "") == "x" * 10 + "\n[… 80 characters are left out here …]\n" + "x" * 10


@given(st.text(st.sampled_from("ab\n é漢😀"), max_size=3000), st.integers(200, 400))
def test_any_text_fits_and_keeps_its_two_ends(text: str, tokens: int) -> None:
    text *= 3
    shown = cut_to_tokens(text, tokens, "; all of it is in /a/b/c.txt")
    assert estimate(shown) <= tokens
    assert shown[:20] == text[:20]
    assert shown[-20:] == text[-20:]


@pytest.mark.parametrize("ident", ["call_1", "a" * 80, "toolu_01A-b"])
def test_an_ordinary_id_is_a_name(ident: str) -> None:
    assert safe_name(ident) == ident


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_id_is_made_a_name_of_its_own(one: str, two: str) -> None:
    for ident in (one, two):
        name = safe_name(ident)
        assert name.replace("-", "a").replace("_", "a").isalnum()
        assert name.isascii()
        assert 0 < len(name) < 100
    assert (safe_name(one) == safe_name(two)) == (one == two)


async def test_what_is_kept_lies_beneath_the_desk_and_is_bounded(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with open_fake_desk(tmp_path, backend) as desk:
        spill = DeskSpill(desk.controller, lambda _: desk.place, lambda _: desk.folders)
        for ident in ("../../x", "call_1", ""):
            path = await spill.keep(ident, "text\udcff", HERE)
            assert path is not None
            assert path.startswith(f"{desk.desk}/data/tool-output/")
            assert "/.." not in path
            assert backend.sessions[0].files[path] == b"text\\udcff"
        path = await spill.keep("long", "x" * (2 * MAX_KEPT), HERE)
        assert path is not None
        assert len(backend.sessions[0].files[path]) < MAX_KEPT + 200


async def test_what_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    backend = FakeBackend(open_error=BackendUnavailableError("there is no sandbox"))
    async with open_fake_desk(tmp_path, backend) as desk:
        spill = DeskSpill(desk.controller, lambda _: desk.place, lambda _: desk.folders)
        assert await spill.keep("call_1", "text", HERE) is None
