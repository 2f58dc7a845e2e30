"""Writing to chats, and who is in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbles.bus import Address, InboundMessage, Kind, Origin
from bubbles.channels.contract import ChannelError, Person, Roster
from bubbles.channels.fake import FakeChannel
from bubbles.config.channels import ChannelSettings
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from bubbles.gateway.services import FRESH_S, MAX_CHATS, ChatCourier, ChatMembers
from bubbles.tools.services import Member, ServiceError

HERE = Origin(session_key="fake.7", address=Address(channel="fake", chat_id="7"), sender="ann")
GROUP = Address(channel="fake", chat_id="-9")


@asynccontextmanager
async def courier(
    root: Path, *allow_from: str, heard_from: tuple[Address, ...] = ()
) -> AsyncIterator[tuple[ChatCourier, Ledger]]:
    async with Ledger(root / "ledger.db") as ledger, Post(ledger, {"fake": FakeChannel()}, Metrics()) as post:
        for address in heard_from:
            await ledger.take(InboundMessage(address=address, sender="ann", text="hi", message_id="m", is_group=True))
        yield ChatCourier(post, ledger, {"fake": ChannelSettings(allow_from=allow_from)}), ledger


@pytest.mark.req("TOOL-04")
@pytest.mark.parametrize("where", [GROUP, Address(channel="fake", chat_id="bob")])
async def test_what_is_on_its_way_is_on_the_disk(tmp_path: Path, where: Address) -> None:
    async with courier(tmp_path, "bob", heard_from=(GROUP,)) as (sender, ledger):
        assert sender.channels == ("fake",)
        await sender.send(where, "dinner is ready", HERE)
        (row,) = await ledger.parcels()
    assert (row.parcel.address, row.parcel.piece.text, row.parcel.piece.kind) == (where, "dinner is ready", Kind.REPLY)


@pytest.mark.req("TOOL-04", "CHAN-02")
@pytest.mark.parametrize("chat_id", ["eve", "*", "bo", "bob ", "BOB", ""])
async def test_a_chat_that_nobody_let_in_is_not_written_to_even_where_everybody_may_write(
    tmp_path: Path, chat_id: str
) -> None:
    async with courier(tmp_path, "*", "bob", heard_from=(GROUP,)) as (sender, ledger):
        with pytest.raises(ServiceError, match="nothing is sent there: let them write first"):
            await sender.send(Address(channel="fake", chat_id=chat_id), "hello", HERE)
        assert await ledger.parcels() == []


@pytest.mark.req("TOOL-04")
async def test_a_channel_that_is_off_is_said_to_be(tmp_path: Path) -> None:
    async with courier(tmp_path, "bob") as (sender, _):
        with pytest.raises(ServiceError, match="The channel 'slack' is not on: take one of fake"):
            await sender.send(Address(channel="slack", chat_id="bob"), "hello", HERE)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def roster(*ids: str) -> Roster:
    return Roster(people=tuple(Person(id=ident, names=(ident.title(), "x")) for ident in ids))


@pytest.mark.req("TOOL-08")
async def test_members_are_those_of_the_platform_and_asked_for_once_a_minute() -> None:
    clock, channel = Clock(), FakeChannel(rosters={"-9": roster("ann")})
    members = ChatMembers({"fake": channel}, clock)
    assert await members.of(GROUP) == (Member(id="ann", names=("Ann", "x")),)
    channel.rosters["-9"] = roster("ann", "bob")
    clock.now += FRESH_S - 1
    assert len(await members.of(GROUP) or ()) == 1
    clock.now += 1
    assert len(await members.of(GROUP) or ()) == 2
    assert await members.of(HERE.address) is None


@pytest.mark.req("TOOL-08")
async def test_a_platform_that_does_not_say_is_asked_again() -> None:
    channel = FakeChannel(rosters={"-9": roster("ann")})
    channel.members_error = ChannelError("it needs the right to see members")
    members = ChatMembers({"fake": channel})
    with pytest.raises(ServiceError, match="fake does not say who is here: it needs the right to see members"):
        await members.of(GROUP)
    channel.members_error = None
    assert await members.of(GROUP)


async def test_of_a_channel_that_is_off_nothing_is_known() -> None:
    with pytest.raises(ServiceError, match="'slack' is not on"):
        await ChatMembers({}).of(Address(channel="slack", chat_id="1"))


async def test_members_of_many_chats_do_not_pile_up() -> None:
    asked = 0

    class Counting(FakeChannel):
        async def members(self, chat_id: str) -> Roster | None:
            nonlocal asked
            asked += 1
            return await super().members(chat_id)

    members = ChatMembers({"fake": Counting()})
    for number in range(MAX_CHATS + 1):
        await members.of(Address(channel="fake", chat_id=str(number)))
    await members.of(Address(channel="fake", chat_id="1"))
    assert asked == MAX_CHATS + 1
    await members.of(Address(channel="fake", chat_id="0"))
    assert asked == MAX_CHATS + 2
