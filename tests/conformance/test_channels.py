"""What every channel does, whatever its platform, against a server that speaks the platform's own protocol."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator

import pytest

from bubbles.bus import Kind
from bubbles.channels.contract import (
    ChannelError,
    FatalChannelError,
    Incoming,
    MaybeSentError,
    NotSentError,
    Piece,
    RefusedError,
    SendError,
    SlowDownError,
)
from bubbles.channels.supervisor import Phase, Supervisor
from tests.channel_servers.desk import Desk, DiskFullError, failure, running, until
from tests.channel_servers.rigs import RIGS, Rig, elsewhere, with_

pytestmark = pytest.mark.req("CHAN-01")


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with RIGS[request.param]() as made:
        yield made


@pytest.fixture
def desk() -> Desk:
    return Desk()


everywhere = pytest.mark.parametrize("rig", with_(), indirect=True)


def where(*features: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", with_(*features), indirect=True)


def piece(text: str, chat: str, reply_to: str | None = None, card: str | None = None) -> Piece:
    return Piece(chat_id=chat, text=text, kind=Kind.REPLY, reply_to=reply_to, card=card)


async def heard(desk: Desk, count: int = 1) -> Incoming:
    """The message of this number."""
    return (await desk.got(count))[count - 1]


# -- in --


@everywhere
@pytest.mark.req("CHAN-02", "CHAN-04")
async def test_whoever_writes_is_heard_since_a_channel_decides_nothing(rig: Rig, desk: Desk) -> None:
    async with running(rig.channel(), desk):
        await rig.say("let me in", who=rig.stranger)
        message = await heard(desk)
    assert (message.sender, message.text, message.press) == (rig.stranger, "let me in", False)
    assert (message.is_group, message.addressed) == (False, True)
    assert message.name
    assert message.name != message.sender


@everywhere
@pytest.mark.req("CHAN-03", "CHAN-04")
async def test_in_a_group_it_is_said_whether_the_assistant_is_meant(rig: Rig, desk: Desk) -> None:
    async with running(rig.channel(), desk):
        await rig.say("not to you", in_group=True)
        await rig.say("to you", in_group=True, to_us=True)
        await desk.got(2)
    assert [(each.chat_id, each.is_group, each.addressed, each.text) for each in desk.taken] == [
        (rig.group, True, False, "not to you"),
        (rig.group, True, True, "to you"),
    ]


@everywhere
@pytest.mark.req("CHAN-03")
async def test_a_reply_to_the_assistant_is_said_to_it_and_names_the_message(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi", in_group=True)
        await heard(desk)
        ident = await channel.send(piece("what?", rig.group))
        assert ident is not None
        await rig.say("that", in_group=True, reply_to=ident)
        message = await heard(desk, 2)
    assert (message.addressed, message.reply_to) == (True, ident)


@everywhere
@pytest.mark.req("CHAN-07")
async def test_messages_come_in_their_order_each_with_an_id_of_its_own(rig: Rig, desk: Desk) -> None:
    async with running(rig.channel(), desk):
        for number in range(20):
            await rig.say(f"m{number}", who=(rig.ann, rig.stranger)[number % 2], in_group=True)
        await desk.got(20)
    assert [each.text for each in desk.taken] == [f"m{number}" for number in range(20)]
    assert len({each.message_id for each in desk.taken}) == 20


@everywhere
@pytest.mark.req("CHAN-07", "OPS-02")
async def test_what_could_not_be_put_on_the_disk_comes_again_with_the_same_id(rig: Rig, desk: Desk) -> None:
    for text in ("one", "two", "three"):
        await rig.say(text)
    lost = Desk()
    lost.open.clear()
    async with running(rig.channel(), lost):
        await lost.until(lambda: lost.beats)
        await asyncio.sleep(0.05)  # it is killed while it waits for the disk
    desk.faults.append(DiskFullError("full"))
    assert isinstance(await failure(rig.channel(), desk), DiskFullError)
    async with running(rig.channel(), desk):
        await desk.got(3)
        first = [each.message_id for each in desk.taken]
        await rig.say("four")
        await desk.got(4)
    assert [each.text for each in desk.taken] == ["one", "two", "three", "four"]
    assert len(set(first)) == 3


@everywhere
@pytest.mark.req("CHAN-07")
async def test_a_lost_connection_is_made_again_and_nothing_is_lost(rig: Rig, desk: Desk) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        if seconds < 2 * 60:
            pauses.append(seconds)
        await asyncio.sleep(0.02 if seconds <= 5 else 30)

    supervisor = Supervisor(rig.channel(), desk.take, sleep=pause)
    work = asyncio.create_task(supervisor.run())
    await rig.say("before")
    await heard(desk)
    assert supervisor.state.phase is Phase.UP
    await rig.down()
    await until(lambda: supervisor.state.restarts)
    assert supervisor.state.why
    assert rig.secret not in supervisor.state.why or not rig.secret
    await rig.say("meanwhile")
    await rig.up()
    assert (await heard(desk, 2)).text == "meanwhile"
    assert supervisor.state.phase is Phase.UP
    work.cancel()
    await asyncio.wait({work})
    assert [each.text for each in desk.taken] == ["before", "meanwhile"]


# -- mentions --


@everywhere
@pytest.mark.req("CHAN-06")
async def test_a_mention_of_somebody_comes_as_their_id(rig: Rig, desk: Desk) -> None:
    async with running(rig.channel(), desk):
        await rig.say("ask", in_group=True, mention=rig.stranger)
        assert (await heard(desk)).text == f"ask <@{rig.stranger}>"


@where("mentions")
@pytest.mark.req("CHAN-06")
async def test_a_mention_calls_whoever_is_known_and_nobody_from_code(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi", in_group=True)
        await heard(desk)
        await channel.send(piece(f"<@{rig.ann}>, `<@{rig.ann}>` and <@{rig.stranger}>", rig.group))
        await channel.send(piece(f"```\n<@{rig.ann}>\n```", rig.group))
    assert [each.mentions for each in rig.shown()] == [(rig.ann,), ()]


@everywhere
@pytest.mark.req("CHAN-06")
async def test_members_of_a_group_have_ids_and_a_private_chat_has_none(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi", in_group=True)
        await heard(desk)
        assert await channel.members(rig.ann) is None
        if "mentions" in rig.has:
            roster = await channel.members(rig.group)
            assert roster is not None
            assert rig.ann in [person.id for person in roster.people]
            assert rig.secret not in repr(roster)


# -- files --


@where("files")
@pytest.mark.req("CHAN-05")
async def test_a_file_is_fetched_in_pieces_when_it_is_wanted(rig: Rig, desk: Desk) -> None:
    data = bytes(range(256)) * 2_000
    async with running(rig.channel(), desk):
        await rig.say("", file=data)
        [file] = (await heard(desk)).attachments
        assert (file.name, file.mime, file.size) == ("notes.txt", "text/plain", len(data))
        async with file.fetch() as pieces:
            assert b"".join([part async for part in pieces]) == data
        async with file.fetch() as pieces:  # and it may be left before its end
            assert data.startswith(await anext(aiter(pieces)))


@where("files", "network")
@pytest.mark.req("CHAN-05")
async def test_a_file_that_is_too_large_is_not_fetched_to_its_end(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("", file=bytes(channel.traits.max_file_bytes + 1))
        [file] = (await heard(desk)).attachments
        got = 0

        async def fetch() -> None:
            nonlocal got
            async with file.fetch() as pieces:
                async for part in pieces:
                    got += len(part)

        with pytest.raises(ChannelError):
            await fetch()
        assert got <= channel.traits.max_file_bytes


@where("files", "network")
@pytest.mark.req("SEC-03", "CHAN-05")
async def test_no_other_host_learns_the_credential_by_a_file(rig: Rig, desk: Desk) -> None:
    async with running(rig.channel(), desk), elsewhere() as (url, told):
        await rig.say("", file=b"x")
        [file] = (await heard(desk)).attachments
        rig.send_files_elsewhere(url)
        with pytest.raises(ChannelError) as caught:
            async with file.fetch() as pieces:
                _ = [part async for part in pieces]
        assert rig.secret not in "".join(told)
        assert rig.secret not in str(caught.value)


# -- out --


@everywhere
async def test_a_message_of_the_greatest_length_arrives_whole(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi")
        await heard(desk)
        for letter in ("x", "\U0001f600"):
            text = letter * (channel.traits.max_text // channel.traits.measure(letter))
            assert channel.traits.measure(text) > channel.traits.max_text - 2
            await channel.send(piece(text, rig.ann))
            assert rig.shown()[-1].text == text
        with pytest.raises(RefusedError):
            await channel.send(piece(" \n", rig.ann))


@everywhere
@pytest.mark.parametrize(
    "kind", [SlowDownError, RefusedError, MaybeSentError, NotSentError], ids=lambda kind: kind.__name__
)
@pytest.mark.req("CHAN-07")
async def test_what_became_of_a_message_is_told_apart(rig: Rig, desk: Desk, kind: type[SendError]) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi")
        await heard(desk)
        rig.next_send(kind)
        with pytest.raises(kind) as caught:
            await channel.send(piece("one", rig.ann))
        assert type(caught.value) is kind
        assert not isinstance(caught.value, SlowDownError) or caught.value.retry_after_s == 7
        await channel.send(piece("two", rig.ann))
    assert rig.shown()[-1].text == "two"


@everywhere
@pytest.mark.req("CHAN-07")
async def test_a_channel_that_is_not_connected_sends_nothing(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    for _ in range(2):
        with pytest.raises(NotSentError):
            await channel.send(piece("hi", rig.ann))
        async with running(channel, desk):  # the same channel is run anew each time
            pass
    assert rig.shown() == []


@where("edits")
async def test_a_message_can_be_put_in_the_place_of_another(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    assert channel.traits.edits or rig.secret == ""
    async with running(channel, desk):
        await rig.say("hi")
        await heard(desk)
        ident = await channel.send(piece("working", rig.ann, card="bcdf"))
        assert ident is not None
        await channel.edit(ident, piece("done", rig.ann))
        await channel.edit(ident, piece("done", rig.ann))
        [shown] = rig.shown()
        assert (shown.id, shown.text, shown.buttons) == (ident, "done", ())
        with pytest.raises(RefusedError):
            await channel.edit("12345678", piece("x", rig.ann))


@where("buttons")
@pytest.mark.req("APPR-01")
async def test_a_card_has_buttons_that_name_it(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    assert channel.traits.buttons
    async with running(channel, desk):
        await rig.say("hi")
        await heard(desk)
        await channel.send(piece("Run it?", rig.ann, card="bcdf"))
    [shown] = rig.shown()
    assert len(shown.buttons) == 2
    assert all("bcdf" in button for button in shown.buttons)


@where("typing")
async def test_that_somebody_writes_can_be_shown(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    async with running(channel, desk):
        await rig.say("hi")
        await channel.typing((await heard(desk)).chat_id)
    with pytest.raises(SendError):
        await channel.typing(rig.ann)


# -- the connection --


@everywhere
@pytest.mark.req("CHAN-07")
async def test_a_credential_that_the_platform_does_not_know_is_for_a_person_to_mend(rig: Rig, desk: Desk) -> None:
    error = await failure(rig.with_wrong_credentials(), desk)
    assert isinstance(error, FatalChannelError)
    assert "token" in str(error)
    assert desk.who == []


@everywhere
@pytest.mark.req("CHAN-07")
async def test_the_platform_is_heard_of_and_who_we_are(rig: Rig, desk: Desk) -> None:
    channel = rig.channel()
    assert channel.stall_s >= 30
    async with running(channel, desk):
        assert len(desk.who) == 1
        assert desk.who[0]
        await desk.until(lambda: desk.beats)


@everywhere
async def test_cancelling_ends_it_at_once_and_leaves_nothing_open(rig: Rig, desk: Desk) -> None:
    before = asyncio.all_tasks()
    channel = rig.channel()
    loop = asyncio.get_running_loop()
    async with running(channel, desk) as work:
        await rig.say("hi")
        await heard(desk)
        await channel.send(piece("hi", rig.ann))
        begun = loop.time()
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        assert loop.time() - begun < 1
    await until(lambda: not rig.connections())
    assert asyncio.all_tasks() == before


@where("network")
@pytest.mark.req("CHAN-07")
async def test_a_platform_that_cannot_be_reached_is_a_passing_failure(rig: Rig, desk: Desk) -> None:
    await rig.down()
    error = await failure(rig.channel(), desk)
    assert isinstance(error, ChannelError)
    assert not isinstance(error, FatalChannelError)
    assert desk.who == []


@where("credentials")
@pytest.mark.req("SEC-03")
async def test_no_line_of_the_log_has_the_credential(rig: Rig, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    channel = rig.channel()
    errors: list[BaseException] = []
    async with running(channel, desk):
        await rig.say("", file=b"x")
        [file] = (await heard(desk)).attachments
        async with file.fetch() as pieces:
            _ = [part async for part in pieces]
        for kind in (SlowDownError, RefusedError, MaybeSentError, NotSentError):
            rig.next_send(kind)
            with pytest.raises(kind) as caught:
                await channel.send(piece("x", rig.ann))
            errors.append(caught.value)
    await rig.down()
    errors.append(await failure(channel, desk))
    shown = "".join("".join(traceback.format_exception(error)) for error in errors) + repr(channel)
    assert rig.secret not in shown
    assert rig.secret not in caplog.text
