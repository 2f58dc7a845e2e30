"""The ledger on a real disk: what it was told is there after it is opened again, and only as long as it is needed."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbles.bus import Address, InboundMessage, Kind, Trigger
from bubbles.channels.contract import Memory, Piece
from bubbles.gateway.keeping import tables
from bubbles.gateway.ledger import Asked, Ledger, LedgerError, Parcel

HERE = Address(channel="fake", chat_id="7")


def message(text: str = "hello", ident: str = "1", **more: object) -> InboundMessage:
    fields: dict[str, object] = {"address": HERE, "sender": "ann", **more}
    return InboundMessage(text=text, message_id=ident, **fields)  # type: ignore[arg-type]


def parcels(*texts: str) -> list[Parcel]:
    return [Parcel(address=HERE, piece=Piece(chat_id="7", text=text, kind=Kind.REPLY)) for text in texts]


async def texts(ledger: Ledger) -> list[str]:
    return [row.parcel.piece.text for row in await ledger.parcels()]


def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway" / "ledger.db"


def rows(tmp_path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path(tmp_path))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def everything_on_the_disk(tmp_path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path(tmp_path).parent.iterdir()))


@pytest.mark.req("OPS-02")
async def test_message_is_the_same_after_the_ledger_was_opened_again(tmp_path: Path) -> None:
    told = message(
        "a\ud800\x00 \N{SNOWMAN}",
        "m\udfff1",
        is_group=True,
        trigger=Trigger.BYSTANDER,
        reply_to="c1",
        session_key="work",
    )
    async with Ledger(path(tmp_path), lambda: 50.0) as ledger:
        ticket = await ledger.take(told)
        assert ticket is not None
        await ledger.begun(ticket)
        await ledger.begun(ticket)
    async with Ledger(path(tmp_path)) as again:
        (kept,) = await again.waiting()
        assert again.undone == 1
        assert again.asked(ticket) == Asked(address=HERE, message_id="m\udfff1", is_group=True)
    assert kept.message == InboundMessage(
        address=HERE,
        sender="ann",
        text="a\ud800\x00 \N{SNOWMAN}",
        message_id="m\udfff1",
        is_group=True,
        trigger=Trigger.BYSTANDER,
        reply_to="c1",
        session_key="work",
        ticket=ticket,
        resumed=True,
    )
    assert (kept.tries, kept.taken_at) == (2, 50.0)


@pytest.mark.req("CHAN-07")
async def test_message_is_taken_once_in_its_chat_before_and_after_it_is_settled_and_over_restarts(
    tmp_path: Path,
) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        assert not await ledger.known(HERE, "1")
        tickets = await asyncio.gather(*(ledger.take(message()) for _ in range(10)))
        (ticket,) = [ticket for ticket in tickets if ticket is not None]
        assert await ledger.known(HERE, "1")
        assert await ledger.take(message(address=Address(channel="fake", chat_id="8"))) is not None
        assert await ledger.take(message(address=Address(channel="other", chat_id="7"))) is not None
        await ledger.settle([ticket], [])
        assert await ledger.take(message()) is None
    async with Ledger(path(tmp_path)) as again:
        assert await again.known(HERE, "1")
        assert await again.take(message()) is None
        assert again.undone == 2


@pytest.mark.req("CHAN-07")
async def test_messages_without_an_id_are_all_taken(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        tickets = [await ledger.take(message(ident="")) for _ in range(3)]
        assert len(set(tickets)) == 3
        assert None not in tickets
        assert not await ledger.known(HERE, "")
        await ledger.settle([str(ticket) for ticket in tickets], [])
        assert ledger.undone == 0
        assert await ledger.take(message(ident="")) not in tickets
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(1,)]


@pytest.mark.req("OPS-02")
async def test_settling_is_one_with_the_answer_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path), lambda: 9.0) as ledger:
        first, second = str(await ledger.take(message("one", "1"))), str(await ledger.take(message("two", "2")))
        put = await ledger.settle([first, "job:7", "nonsense", f"{first}9"], parcels("a", "b"))
        assert [kept.message.text for kept in await ledger.waiting()] == ["two"]
        assert ledger.asked(first) is None
        assert await ledger.settle([first], []) == []
        await ledger.settle([second], parcels("c"))
        assert ledger.undone == 0
    async with Ledger(path(tmp_path)) as again:
        found = await again.parcels()
        assert [(row.parcel, row.put_at, row.sending) for row in found] == [
            (parcel, 9.0, False) for parcel in parcels("a", "b", "c")
        ]
        assert [row.id for row in found[:2]] == put
        assert await again.waiting() == []


@pytest.mark.req("OPS-02")
async def test_row_says_whether_it_was_being_sent(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        ids = await ledger.settle([], parcels("gone", "under way", "not sent", "untouched"))
        for row in ids[:3]:
            await ledger.sending(row)
        await ledger.remove(ids[:1])
        await ledger.not_sent(ids[2])
    async with Ledger(path(tmp_path)) as again:
        found = [(row.parcel.piece.text, row.sending) for row in await again.parcels()]
    assert found == [("under way", True), ("not sent", False), ("untouched", False)]


async def test_texts_are_not_on_the_disk_any_more_once_they_are_dealt_with(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        tickets = [str(await ledger.take(message(f"my secret {number} " * 30, str(number)))) for number in range(20)]
        put = await ledger.settle(tickets, parcels(*(f"your secret {number} " * 400 for number in range(20))))
        assert b"secret" in everything_on_the_disk(tmp_path)
        await ledger.remove(put)
    assert b"secret" not in everything_on_the_disk(tmp_path)


@pytest.mark.req("CHAN-07")
async def test_only_the_newest_settled_messages_of_a_channel_stay_known(tmp_path: Path) -> None:
    beyond = 5
    async with Ledger(path(tmp_path)) as ledger:
        other = message(address=Address(channel="other", chat_id="1"))
        await ledger.settle([str(await ledger.take(other))], [])
        left = await ledger.take(message(ident="open"))
        numbers = range(tables.MAX_SETTLED + beyond)
        tickets = await asyncio.gather(*(ledger.take(message(ident=str(number))) for number in numbers))
        await ledger.settle([str(ticket) for ticket in tickets], [])
        known = [number for number in range(beyond + 2) if await ledger.known(HERE, str(number))]
        assert known == [beyond, beyond + 1]
        assert await ledger.known(other.address, "1")
        assert [kept.message.ticket for kept in await ledger.waiting()] == [left]
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(tables.MAX_SETTLED + 2,)]


async def test_chats_and_what_a_channel_remembers_are_there_again(tmp_path: Path) -> None:
    group = Address(channel="fake", chat_id="g")
    moments = iter([1.0, 2.0, 3.0])
    async with Ledger(path(tmp_path), lambda: next(moments)) as ledger:
        await ledger.take(message(ident="1", address=group, is_group=True), name="Ann")
        await ledger.take(message(ident="2"))
        await ledger.take(message(ident="3", address=group, is_group=True, sender="bob"), name="Bob")
        memory: Memory = ledger.memory("fake")
        assert await memory.load("offset") is None
        await memory.save("offset", "41")
        await memory.save("offset", "42")
    async with Ledger(path(tmp_path)) as again:
        assert again.known_chat(group)
        assert (again.is_group(group), again.is_group(HERE)) == (True, False)
        assert not again.known_chat(Address(channel="other", chat_id="g"))
        assert [tuple(chat) for chat in await again.chats("fake")] == [
            (group, True, "bob", "Bob", 3.0),
            (HERE, False, "ann", "", 2.0),
        ]
        assert await again.chats("other") == []
        assert await again.memory("fake").load("offset") == "42"
        assert await again.memory("other").load("offset") is None


async def test_what_is_too_old_is_given_up_by_its_channel(tmp_path: Path) -> None:
    now = 0.0
    async with Ledger(path(tmp_path), lambda: now) as ledger:
        await ledger.settle([], parcels("old", "old too"))
        now = 100.0
        await ledger.settle([], parcels("new"))
        assert await ledger.expire(100.0) == ["fake", "fake"]
        assert await texts(ledger) == ["new"]


@pytest.mark.parametrize("damage", ["overwritten", "cut", "another"])
async def test_damaged_file_is_set_aside_whole_and_said_to_be(tmp_path: Path, damage: str) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        old = str(await ledger.take(message("precious " * 2_000)))
    whole = path(tmp_path).read_bytes()
    if damage == "another":
        path(tmp_path).unlink()
        connection = sqlite3.connect(path(tmp_path))
        connection.execute("CREATE TABLE precious (text TEXT)")
        connection.close()
    else:
        path(tmp_path).write_bytes(b"precious" * 600 if damage == "overwritten" else whole[: len(whole) // 2])
    bad = path(tmp_path).read_bytes()
    async with Ledger(path(tmp_path)) as again:
        (warning,) = again.warnings
        (aside,) = path(tmp_path).parent.glob("damaged-*-ledger.db")
        assert str(aside) in warning
        assert aside.read_bytes() == bad
        assert await again.waiting() == []
        new = str(await again.take(message()))
        await again.settle([old], [])  # a ticket of the one that is gone
        assert (new != old, again.undone) == (True, 1)
    async with Ledger(path(tmp_path)) as fine:
        assert (fine.warnings, fine.undone) == ([], 1)


async def test_ledger_of_a_newer_program_is_left_as_it_is(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        await ledger.take(message())
    rows(tmp_path, "PRAGMA user_version = 99")
    before = path(tmp_path).read_bytes()
    with pytest.raises(LedgerError, match="written by a newer Bubbles"):
        async with Ledger(path(tmp_path)):
            pass
    assert path(tmp_path).read_bytes() == before


async def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        await ledger.take(message())
        files = sorted(path(tmp_path).parent.iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(path(tmp_path).parent.stat().st_mode) == 0o700


async def test_one_message_that_makes_no_sense_hinders_no_other(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        await ledger.take(message("fine", "1"))
        await ledger.take(message("odd", "2"))
        await ledger.settle([], parcels("fine", "odd"))
    connection = sqlite3.connect(path(tmp_path))
    connection.execute("UPDATE messages SET body = '{}' WHERE message_id = '2'")
    connection.execute("UPDATE parcels SET body = ? WHERE body LIKE '%odd%'", (json.dumps([1]),))
    connection.commit()
    connection.close()
    async with Ledger(path(tmp_path)) as again:
        assert [kept.message.text for kept in await again.waiting()] == ["fine"]
        assert await texts(again) == ["fine"]


@pytest.mark.req("OPS-02")
async def test_call_that_is_cancelled_is_brought_to_its_end(tmp_path: Path) -> None:
    async with Ledger(path(tmp_path)) as ledger:
        ticket = str(await ledger.take(message()))
        settling = asyncio.create_task(ledger.settle([ticket], parcels("answer")))
        taking = asyncio.create_task(ledger.take(message(ident="2")))
        await asyncio.sleep(0)
        settling.cancel()
        taking.cancel()
        assert [type(came) for came in await asyncio.gather(settling, taking, return_exceptions=True)] == [
            asyncio.CancelledError,
            asyncio.CancelledError,
        ]
        assert await texts(ledger) == ["answer"]
        assert ledger.undone == 1


@pytest.mark.req("CHAN-07")
async def test_disk_that_takes_nothing_more_is_told_to_each_and_what_it_takes_again_is_kept(tmp_path: Path) -> None:
    async def take(numbers: Sequence[int], size: int) -> list[str | LedgerError | None]:
        calls = (ledger.take(message("x" * size, str(number))) for number in numbers)
        came = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, str | LedgerError) for each in came)
        return came  # type: ignore[return-value]

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with Ledger(path(tmp_path)) as ledger:
        await take([0], 10)
        grown = max(file.stat().st_size for file in path(tmp_path).parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (grown + 40_000, limits[1]))
        try:
            came = await take(range(1, 9), 20_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        refused = [number for number, each in enumerate(came, 1) if isinstance(each, LedgerError)]
        assert refused
        assert "look at the disk" in str(came[refused[0] - 1])
        again = await take(refused, 20_000)
        assert not any(isinstance(each, LedgerError) for each in again)
        assert ledger.undone == 9
    async with Ledger(path(tmp_path)) as opened:
        assert {kept.message.message_id for kept in await opened.waiting()} == {str(number) for number in range(9)}
