"""Each message once and in order, however many come, whatever breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbles.bus import InboundMessage
from bubbles.channels.contract import Attachment
from bubbles.channels.fake import attached
from bubbles.gateway.intake import BROKEN, MAX_UNDONE, SPARE
from bubbles.gateway.ledger import Ledger
from tests.unit.gateway.intake_scene import HERE, Scene, group, nothing, scene


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


# -- once, and in order -----------------------------------------------------------------------------------------------


@pytest.mark.req("CHAN-07")
async def test_what_comes_again_is_dropped_after_a_restart_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.take()
        await here.take()
        await here.take(message_id="m1", chat_id="8")  # ids are of their chats
        assert len(here.delivered) == 2
    async with scene(tmp_path) as again:
        await again.take()
        assert again.delivered == []
        assert again.count("duplicates") == "1"


@pytest.mark.req("CHAN-07")
async def test_a_message_that_comes_twice_at_the_same_time_is_one(here: Scene) -> None:
    opened = 0
    go_on = asyncio.Event()

    @asynccontextmanager
    async def fetch() -> AsyncIterator[AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            await go_on.wait()
            yield b"1"

        nonlocal opened
        opened += 1
        yield pieces()

    file = Attachment(name="a.txt", fetch=fetch)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(here.take(attachments=(file,)))
            tasks.create_task(here.take("/status", message_id="m2"))
        await asyncio.sleep(0.02)
        go_on.set()
    assert (opened, len(await asyncio.to_thread(here.received))) == (1, 1)
    assert sorted(message.message_id for message in here.delivered) == ["m1", "m2"]
    assert here.count("duplicates") == "8"


@pytest.mark.req("CHAN-07")
async def test_if_the_first_of_two_fails_the_second_is_taken(here: Scene) -> None:
    begun = asyncio.Event()

    @asynccontextmanager
    async def fetch() -> AsyncIterator[AsyncIterator[bytes]]:
        begun.set()
        await asyncio.sleep(100)
        yield nothing()

    loop = asyncio.get_running_loop()
    first = loop.create_task(here.take(attachments=(Attachment(name="a", fetch=fetch),)))
    await begun.wait()
    second = loop.create_task(here.take())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert here.texts == ["hello"]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_messages_of_a_chat_stay_in_order_and_other_chats_and_commands_do_not_wait(here: Scene) -> None:
    go_on = asyncio.Event()

    @asynccontextmanager
    async def fetch() -> AsyncIterator[AsyncIterator[bytes]]:
        await go_on.wait()
        yield nothing()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(here.take("look", message_id="m1", attachments=(Attachment(name="a", fetch=fetch),)))
        await asyncio.sleep(0)
        for number in (2, 3):
            tasks.create_task(here.take(str(number), message_id=f"m{number}"))
        await here.take("elsewhere", message_id="m4", chat_id="8")
        await here.take("/stop", message_id="m5")
        assert here.texts == ["elsewhere", "/stop"]
        go_on.set()
    assert [message.message_id for message in here.delivered] == ["m4", "m5", "m1", "m2", "m3"]


@pytest.mark.req("CHAN-07", "OPS-02")
async def test_a_channel_that_is_stopped_while_a_message_is_written_loses_nothing(tmp_path: Path) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Ledger):
        async def take(self, message: InboundMessage, name: str = "") -> str | None:
            ticket = await super().take(message, name)
            writing.set()
            await go_on.wait()
            return ticket

    async with scene(tmp_path, ledger=Slow(tmp_path / "ledger.db")) as here:
        task = asyncio.get_running_loop().create_task(here.take(attachments=(attached("a.txt", b"1"),)))
        await writing.wait()
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(here.delivered) == 1  # it would not come again
        assert len(await asyncio.to_thread(here.received)) == 1


async def test_a_message_that_cannot_be_handed_on_is_dealt_with_by_a_sentence(tmp_path: Path) -> None:
    async def broken(message: InboundMessage) -> None:
        raise RuntimeError("a bug")

    async with scene(tmp_path, deliver=broken) as here:
        await here.take()
        await here.take(message_id="m2", **group(addressed=False))
        assert (await here.notices(), here.ledger.undone) == ([BROKEN], 0)


# -- too much at once -------------------------------------------------------------------------------------------------


class Laden(Ledger):
    """Says that so many more wait than do."""

    more = 0

    @property
    def undone(self) -> int:
        return self.more + super().undone


@pytest.mark.req("CHAN-07")
async def test_while_too_much_waits_a_message_waits_with_its_platform_and_an_answer_gets_through(
    tmp_path: Path,
) -> None:
    ledger = Laden(tmp_path / "ledger.db")
    async with scene(tmp_path, ledger=ledger, asked=(HERE,)) as here:
        ledger.more = MAX_UNDONE
        waiting = asyncio.get_running_loop().create_task(here.take("more work"))
        await here.take("ok", message_id="m2", chat_id="7")
        await here.take("/stop", message_id="m3")
        await here.take("/approve bcdf", message_id="m4", press=True)
        assert here.texts == ["ok", "/stop", "/approve bcdf"]
        assert not waiting.done()
        assert not await here.ledger.known(HERE, "m1")
        ledger.more = -10
        here.intake.eased()
        async with asyncio.timeout(0.5):  # less than after it would look by itself
            await waiting
        assert here.texts[-1] == "more work"


async def test_commands_too_are_bounded(tmp_path: Path) -> None:
    ledger = Laden(tmp_path / "ledger.db")
    async with scene(tmp_path, ledger=ledger) as here:
        ledger.more = MAX_UNDONE + SPARE
        waiting = asyncio.get_running_loop().create_task(here.take("/status"))
        await asyncio.sleep(0.02)
        assert here.texts == []
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert here.delivered == []
