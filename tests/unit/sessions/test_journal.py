"""The file of a history: what a crash, a damaged disk, another program or a later version made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bubbles.providers.contract import UserMessage
from bubbles.sessions import lines
from bubbles.sessions.codec import COMPACTION_MARK, MISSING
from bubbles.sessions.contract import Author, SessionDamagedError, TurnEnd
from bubbles.sessions.history import INTERRUPTED, NOT_RUN, UNKNOWN
from tests.unit.sessions.talk import ORIGIN, PNG, Desk, act, check_valid, reply, result, say, shown

USER: dict[str, Any] = {"kind": "user", "author": "person", "text": "go"}
REPLY: dict[str, Any] = {
    "kind": "assistant",
    "model": "m",
    "provider": "",
    "text": "r",
    "calls": [{"id": "a", "name": "exec", "arguments": "{}"}, {"id": "b", "name": "exec", "arguments": "{}"}],
}
DONE: dict[str, Any] = {"kind": "turn", "end": "done"}


def intent(reply_seq: int, name: str) -> dict[str, Any]:
    return {"kind": "call", "reply": reply_seq, "id": name, "name": "exec"}


def outcome(reply_seq: int, name: str) -> dict[str, Any]:
    return {"kind": "result", "reply": reply_seq, "id": name, "name": "exec", "text": f"of {name}"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


async def warned(desk: Desk) -> tuple[list[str], tuple[str, ...]]:
    """What a new program reads, and what it tells the person."""
    session = await desk.session()
    async with session.turn() as history:
        check_valid(history.messages)
        found = shown(history.messages)
    return found, session.take_warnings()


@pytest.mark.req("CTX-04", "SESS-01")
async def test_lines_are_appended_in_order_with_their_numbers(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "hi", images=(PNG,))
        await act(history, "r", "a")
        await history.compact("S", kept_from=history.units[-1].seq, turn="t1")
        await history.end_turn(TurnEnd.DONE, turn="t1")
    assert desk.kinds == ["session", "user", "assistant", "call", "result", "compaction", "turn"]
    assert [line["seq"] for line in desk.lines] == list(range(7))
    assert desk.lines[0] == {**desk.lines[0], "version": 1, "key": "work"}
    assert all("turn" in line for line in desk.lines[1:])
    assert {line["time"] for line in desk.lines} == {"2026-05-01T12:30:00.000Z"}
    assert desk.file.stat().st_mode & 0o777 == 0o600
    assert desk.folders.state.stat().st_mode & 0o777 == 0o700


@pytest.mark.req("CTX-04")
@pytest.mark.parametrize(
    ("lines_after_user", "expected"),
    [
        ([], []),
        ([REPLY], ["model: r [a] [b]", f"a: {NOT_RUN}", f"b: {NOT_RUN}"]),
        ([REPLY, intent(2, "a")], ["model: r [a] [b]", f"a: {UNKNOWN}", f"b: {NOT_RUN}"]),
        ([REPLY, intent(2, "a"), outcome(2, "a")], ["model: r [a] [b]", "a: of a", f"b: {NOT_RUN}"]),
        (
            [REPLY, intent(2, "a"), outcome(2, "a"), intent(2, "b"), outcome(2, "b")],
            ["model: r [a] [b]", "a: of a", "b: of b"],
        ),
    ],
    ids=["nothing", "a reply", "an intent", "one result", "all results"],
)
async def test_what_a_crash_left_open_is_settled_once_and_told(
    desk: Desk, lines_after_user: list[dict[str, Any]], expected: list[str]
) -> None:
    desk.put(USER, *lines_after_user)
    assert await desk.read() == ["user: go", *expected, f"user: {INTERRUPTED}"]
    settled = desk.file.read_bytes()
    assert desk.lines[-1]["end"] == "interrupted"
    assert desk.lines[-2] == {**desk.lines[-2], "author": "program", "turn": "t1"}
    assert await desk.read() == ["user: go", *expected, f"user: {INTERRUPTED}"]
    assert desk.file.read_bytes() == settled


@pytest.mark.req("CTX-04")
async def test_crash_while_settling_says_nothing_twice(desk: Desk) -> None:
    desk.put(USER, REPLY, intent(2, "a"))
    await desk.read()
    whole = desk.file.read_bytes().splitlines(keepends=True)
    for count in range(4, len(whole)):
        desk.file.write_bytes(b"".join(whole[:count]))
        found = await desk.read()
        assert found == ["user: go", "model: r [a] [b]", f"a: {UNKNOWN}", f"b: {NOT_RUN}", f"user: {INTERRUPTED}"]


@pytest.mark.req("CTX-04")
@pytest.mark.parametrize("cut", [1, 20, -3])
async def test_torn_last_line_is_set_aside_and_reported_and_all_before_it_loads(desk: Desk, cut: int) -> None:
    desk.put(USER, {**REPLY, "calls": []}, DONE)
    before = desk.file.read_bytes()
    torn = json.dumps({"seq": 4, "turn": "t2", **USER}).encode()[:cut]
    desk.file.write_bytes(before + torn)
    found, warnings = await warned(desk)
    assert found == ["user: go", "model: r"]
    assert desk.file.read_bytes() == before
    (aside,) = desk.folders.state.glob("torn-*.jsonl")
    assert aside.read_bytes() == torn
    assert aside.stat().st_mode & 0o777 == 0o600
    assert len(warnings) == 1
    assert f"({len(torn)} bytes) is in {aside}" in warnings[0]
    assert await warned(desk) == (found, ())


async def test_torn_first_line_costs_nothing(desk: Desk) -> None:
    desk.put()
    desk.file.write_bytes(desk.file.read_bytes()[:15])
    found, warnings = await warned(desk)
    assert (found, len(warnings), desk.kinds) == ([], 1, ["session"])


async def test_whole_last_line_that_lacks_only_its_newline_is_kept(desk: Desk) -> None:
    desk.put(USER, {**REPLY, "calls": []}, DONE)
    whole = desk.file.read_bytes()
    desk.file.write_bytes(whole[:-1])
    assert await warned(desk) == (["user: go", "model: r"], ())
    assert desk.file.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"\0" * 4096,
        b"[]",
        b"{}",
        b'{"seq":2}',
        b'{"seq":2,"turn":"t1","kind":"user","author":"nobody","text":"x"}',
        b'{"seq":2,"turn":"t1","kind":"user","author":"person","text":7}',
        b'{"seq":-2,"turn":"t1","kind":"user","author":"person","text":"x"}',
        b'{"seq":true,"turn":"t1","kind":"user","author":"person","text":"x"}',
        b'{"seq":1e99,"turn":"t1","kind":"user","author":"person","text":"x"}',
        b'{"seq":2,"turn":"t1","kind":"assistant","model":"m","provider":"","text":"x","calls":[7]}',
        b'{"seq":2,"turn":"t1","kind":"assistant","model":"m","provider":"","text":"x","usage":{"input":"many"}}',
        b'{"seq":2,"turn":"t1","kind":"assistant","model":"m","provider":"","text":"x","vendor":[]}',
        b'{"seq":2,"turn":"t1","kind":"user","author":"person","text":"x","images":[{"blob":"../../x"},7]}',
        b"[" * 100_000,
        b"9" * 5_000,
    ],
    ids=lambda line: f"{line[:40]!r}",
)
@pytest.mark.req("CTX-04")
async def test_damaged_line_in_the_middle_costs_that_line_alone_and_is_told_once(desk: Desk, line: bytes) -> None:
    desk.put(USER, line, {**USER, "text": "again"}, {**REPLY, "calls": []}, DONE)
    before = desk.file.read_bytes()
    found, warnings = await warned(desk)
    assert found == ["user: go", "user: again", "model: r"]
    assert len(warnings) == 1
    assert "1 line of" in warnings[0]
    assert desk.file.read_bytes().startswith(before)
    once = desk.file.read_bytes()
    assert await warned(desk) == (found, ())
    assert desk.file.read_bytes() == once


@pytest.mark.req("CTX-03")
@pytest.mark.parametrize("lost", [2, 3, 4, 5, 6])
async def test_history_with_a_lost_line_is_valid(desk: Desk, lost: int) -> None:
    rows: list[dict[str, Any] | bytes] = [USER, REPLY, intent(2, "a"), outcome(2, "a"), outcome(2, "b"), DONE]
    rows += [{**USER, "text": "next", "turn": "t2"}, {**REPLY, "calls": [], "turn": "t2"}, {**DONE, "turn": "t2"}]
    rows[lost - 1] = b'{"torn'
    desk.put(*rows)
    found, _ = await warned(desk)
    assert found[0] == "user: go"
    assert found[-2:] == ["user: next", "model: r"]
    settled = desk.file.read_bytes()
    assert await warned(desk) == (found, ())
    assert desk.file.read_bytes() == settled


@pytest.mark.req("CTX-03")
async def test_result_that_was_supplied_late_does_not_hold_its_unit_in_the_history(desk: Desk) -> None:
    rows: list[dict[str, Any] | bytes] = [USER, REPLY, b"lost", outcome(2, "b"), DONE]
    desk.put(*rows, {**USER, "text": "next"}, {**REPLY, "calls": []}, {**USER, "text": "last"}, DONE)
    async with (await desk.session()).turn() as history:
        assert len(history.messages) == 7
        await history.compact("S", kept_from=history.units[-1].seq, turn="t2")
        assert shown(history.messages)[1:] == ["user: last"]
    assert (await desk.read())[1:] == ["user: last"]


async def test_many_lost_results_are_supplied_at_once(desk: Desk) -> None:
    desk.put(USER, *({**REPLY, "text": f"r{number}"} for number in range(3_000)), DONE)
    assert len(await desk.read()) == 9_001


@pytest.mark.req("CTX-03")
async def test_only_the_orphan_result_goes(desk: Desk) -> None:
    """B055"""
    one = {**REPLY, "calls": REPLY["calls"][:1]}
    desk.put(USER, one, outcome(2, "a"), {**USER, "text": "last"}, outcome(2, "b"), outcome(99, "a"), DONE)
    assert await desk.read() == ["user: go", "model: r [a]", "a: of a", "user: last"]


async def test_same_id_in_every_reply_pairs_within_each(desk: Desk) -> None:
    one = {**REPLY, "calls": REPLY["calls"][:1]}
    second = {**outcome(4, "a"), "text": "second"}
    desk.put(USER, one, outcome(2, "a"), one, second, DONE)
    assert await desk.read() == ["user: go", "model: r [a]", "a: of a", "model: r [a_5]", "a_5: second"]


async def test_lines_of_unknown_kinds_stay_and_mean_nothing(desk: Desk) -> None:
    desk.put(USER, {"kind": "mood", "mood": ["good"]}, {**REPLY, "calls": []}, DONE)
    before = desk.file.read_bytes()
    assert await warned(desk) == (["user: go", "model: r"], ())
    assert desk.file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"seq":0,"kind":"session","version":2,"key":"work"}\n{"seq":1}\n', "written by a newer Bubbles"),
        (b"not a history\nat all\n", "holds no line of a history"),
        (b'{"some":"json"}\n', "holds no line of a history"),
        (b'{"seq":0,"kind":"session","version":2,"key":"work"}\n{"to', "written by a newer Bubbles"),
    ],
)
async def test_file_that_is_not_understood_is_not_touched(desk: Desk, content: bytes, why: str) -> None:
    """B074"""
    desk.put()
    desk.file.write_bytes(content)
    session = await desk.session()
    with pytest.raises(SessionDamagedError, match=why) as raised:
        async with session.turn():
            pass
    assert "Nothing was changed" in str(raised.value)
    assert desk.file.read_bytes() == content
    assert not list(desk.folders.state.glob("torn-*"))
    desk.put(USER, DONE)
    async with session.turn() as history:  # mended, and the lock is free
        assert shown(history.messages) == ["user: go"]


@pytest.mark.parametrize("what", ["link", "fifo", "directory"])
async def test_what_is_no_regular_file_is_no_history(desk: Desk, what: str, tmp_path: Path) -> None:
    desk.folders.state.mkdir(parents=True)
    if what == "link":
        desk.file.symlink_to(tmp_path / "other")
    elif what == "fifo":
        os.mkfifo(desk.file)
    else:
        desk.file.mkdir()
    with pytest.raises(SessionDamagedError, match=str(desk.file)):
        await desk.read()
    assert not (tmp_path / "other").exists()


async def test_history_that_another_program_changes_meanwhile_is_not_written_over(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "one")
        with desk.file.open("ab") as stream:
            stream.write(b"\n")
        with pytest.raises(SessionDamagedError, match="another program has changed it"):
            await say(history, "two")
        assert shown(history.messages) == ["user: one"]
    async with session.turn() as history:
        assert shown(history.messages) == ["user: one", f"user: {INTERRUPTED}"]


async def test_history_that_was_edited_between_turns_is_read_anew(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "a secret")
        await history.end_turn(TurnEnd.DONE, turn="t1")
    desk.file.write_bytes(desk.file.read_bytes().replace(b"a secret", b"s       "))
    async with session.turn() as history:
        await say(history, "hi")
    desk.put(USER, DONE)
    async with session.turn() as history:
        assert shown(history.messages) == ["user: go"]
    desk.file.unlink()
    async with session.turn() as history:
        assert shown(history.messages) == []
    assert desk.kinds == ["session"]


@pytest.mark.req("CTX-04")
async def test_two_programs_that_take_turns_see_each_other(desk: Desk) -> None:
    one, other = await desk.session(), await desk.session()
    for number in range(3):
        for session in (one, other):
            async with session.turn() as history:
                await say(history, f"{number}", f"t{number}")
                await act(history, "r", "a", turn=f"t{number}")
                if number == 1:
                    await history.compact("S", kept_from=history.units[-1].seq, turn=f"t{number}")
                await history.end_turn(TurnEnd.DONE, turn=f"t{number}")
                seen = shown(history.messages)
            assert seen == await desk.read()


async def test_line_that_does_not_fit_leaves_the_history_as_it_was(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "one")
        before = desk.file.read_bytes()
        with pytest.raises(SessionDamagedError, match="too long"):
            await reply(history, "x" * (33 << 20))
        assert desk.file.read_bytes() == before
        await reply(history, "shorter")
        assert shown(history.messages) == ["user: one", "model: shorter"]


# -- pictures --


async def test_pictures_are_kept_beside_the_history_and_come_back(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        await say(history, "look", images=(PNG, PNG))
        await reply(history, "", "a")
        await result(history, "a", images=(PNG,))
        await history.end_turn(TurnEnd.DONE, turn="t1")
    (blob,) = (desk.folders.state / "blobs").iterdir()
    assert blob.read_bytes() == PNG.data
    assert blob.stat().st_mode & 0o777 == 0o600
    assert PNG.data.hex() not in desk.file.read_text(encoding="utf-8")
    async with (await desk.session()).turn() as history:
        message = history.messages[0]
        assert isinstance(message, UserMessage)
        assert [(image.media_type, image.data) for image in message.images] == [(PNG.media_type, PNG.data)] * 2
    blob.write_bytes(b"something else")
    assert (await desk.read())[0] == f"user: look{MISSING}{MISSING}"
    blob.unlink()
    blob.mkdir()
    assert (await desk.read())[0] == f"user: look{MISSING}{MISSING}"
    blob.rmdir()
    assert (await desk.read())[2] == f"a: of a{MISSING}"


# -- long files --


async def test_what_is_before_the_last_compaction_is_not_read(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        for number in range(5):
            await say(history, f"old {number}")
        await say(history, "kept")
        await history.compact('S "kind":"compaction"', kept_from=history.units[-1].seq, turn="t1")
        await say(history, 'new "kind":"compaction" \\"kind":"compaction"')
        await history.end_turn(TurnEnd.DONE, turn="t1")
        expected = shown(history.messages)
    first, rest = desk.file.read_bytes().split(b"\n", 1)
    old, kept = rest.split(b'{"seq":6', 1)
    desk.file.write_bytes(b"\n".join((first, b"x" * (len(old) - 1), b'{"seq":6' + kept)))
    assert await warned(desk) == (expected, ())


@pytest.mark.parametrize("offset", [0, 1, 7, 10**9, None])
async def test_index_that_is_wrong_costs_time_and_nothing_else(desk: Desk, offset: int | None) -> None:
    compaction = {"kind": "compaction", "summary": "S", "kept_from": 2, "offset": offset}
    desk.put(USER, {**USER, "text": "kept"}, compaction, DONE)
    desk.file.write_bytes(desk.file.read_bytes().replace(b'"kind": "compaction"', COMPACTION_MARK))
    assert (await desk.read())[1:] == ["user: kept"]


def test_marked_lines_are_found_from_the_end_whatever_the_pieces(tmp_path: Path) -> None:
    mark = b'"kind":"compaction"'
    wanted = [b'{"seq":1,"kind":"compaction"}', b'{"seq":2,' + b" " * 100 + mark + b"}"]
    noise = [b"x" * (lines.CHUNK - 40), mark * 200_000, b"", b"y" * 100]
    content = [noise[0], wanted[0], noise[1], noise[2], wanted[1], noise[3]]
    file = tmp_path / "file"
    file.write_bytes(b"\n".join(content) + b"\n")
    fd = os.open(file, os.O_RDONLY)
    try:
        found = [line for _, line in lines.marked_lines(fd, file.stat().st_size, mark)]
        assert [line for line in found if line in wanted] == wanted[::-1]
        assert len(found) <= 3
        assert [line for _, line in lines.read_lines(fd, 0, file.stat().st_size)] == content
    finally:
        os.close(fd)


def test_too_long_line_is_passed_over_without_being_held(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as stream:
        stream.write(b"a\n")
        stream.truncate(2 + lines.MAX_LINE + 5)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nb\nrest")
    fd = os.open(file, os.O_RDONLY)
    try:
        found = list(lines.read_lines(fd, 0, file.stat().st_size))
        assert [line for _, line in found] == [b"a", None, b"b"]
        assert found[2][0] == 2 + lines.MAX_LINE + 5 + 1
    finally:
        os.close(fd)


async def test_what_people_see_in_the_file_is_text_that_does_nothing_to_their_terminal(desk: Desk) -> None:
    session = await desk.session()
    text = "日本 \x1b[2J \x9b2J \u202e \u2028 \x7f"
    async with session.turn() as history:
        await say(history, text)
        await history.add_user(UserMessage(text="x"), author=Author.PERSON, origin=ORIGIN, turn="t\udcff")
        await history.end_turn(TurnEnd.DONE, turn="t\udcff")
    raw = desk.file.read_text(encoding="utf-8")
    assert "日本" in raw
    assert all(part.isprintable() for part in raw.split("\n"))
    assert desk.lines[1]["text"] == text
    assert await desk.read() == [f"user: {text}", "user: x"]


async def test_next_turn_reads_only_what_is_new(desk: Desk) -> None:
    session = await desk.session()
    async with session.turn() as history:
        for _ in range(5):
            await act(history, "r" * 100, "a")
        await history.end_turn(TurnEnd.DONE, turn="t1")
    whole = desk.file.read_bytes()
    desk.file.write_bytes(b"x" * (len(whole) - 100) + whole[-100:])  # the file itself is the same one
    async with session.turn() as history:
        assert len(history.messages) == 10
    assert session.take_warnings() == ()
