"""Who gets past the intake, by a message or a button, and who does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import InboundMessage, Trigger
from bubbles.channels.access import Refusal
from bubbles.channels.contract import Attachment, Incoming
from bubbles.channels.fake import FakeChannel
from bubbles.config.channels import ChannelSettings
from bubbles.gateway.intake import Intake, Neighbours
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.media import Files
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post
from bubbles.gateway.turned_away import MAX_KEPT
from bubbles.sessions.session import Sessions
from tests.unit.gateway.intake_scene import HERE, OPEN, Clock, Scene, group, heard, scene


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


# -- who is let in ----------------------------------------------------------------------------------------------------


@pytest.mark.req("CHAN-02")
async def test_a_message_of_an_allowed_person_is_kept_and_handed_on_with_its_ticket(here: Scene) -> None:
    await here.take("hello")
    (kept,) = await here.ledger.waiting()
    (message,) = here.delivered
    assert message.ticket
    assert kept.message == replace(message, resumed=True)
    assert message == InboundMessage(address=HERE, sender="ann", text="hello", message_id="m1", ticket=message.ticket)
    assert here.count("messages") == "1"


@pytest.mark.req("CHAN-02")
async def test_a_stranger_costs_nothing_and_gets_no_answer(here: Scene, caplog: pytest.LogCaptureFixture) -> None:
    def fetch() -> Any:
        raise AssertionError("a stranger's file was fetched")

    file = Attachment(name="a", fetch=fetch)
    for number in range(3):
        await here.take("let me in", "eve", f"m{number}", name="Eve\x1b[2J\u202e", attachments=(file,))
    assert (here.delivered, here.ledger.undone, await here.notices()) == ([], 0, [])
    assert not await here.ledger.known(HERE, "m0")
    assert here.count("turned_away") == "3"
    (visitor,) = here.intake.turned_away("fake")
    assert (visitor.id, visitor.name, visitor.why) == ("eve", r"Eve⟨\x1b⟩[2J⟨\u202e⟩", Refusal.STRANGER)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "put 'eve' into channels.fake.allowFrom" in line
    assert "\x1b" not in line


async def test_a_stranger_is_named_in_the_log_once_an_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with scene(tmp_path, clock=clock) as here:
        for wait_s in (0, 3_599, 1, 3_600):
            clock.now += wait_s
            await here.take(sender="eve")
        assert len(caplog.records) == 3
        await here.take(sender="mallory")
        assert len(caplog.records) == 4


async def test_those_turned_away_are_a_few_and_chatter_does_not_hide_who_wants_in(here: Scene) -> None:
    await here.take(sender="eve")
    for number in range(3 * MAX_KEPT):
        await here.intake.take("fake", heard(sender=f"off{number}", is_group=True, addressed=False))
    kept = here.intake.turned_away("fake")
    assert len(kept) == MAX_KEPT
    assert kept[0].id == f"off{3 * MAX_KEPT - 1}"

    async with scene(here.data_dir / "other", ChannelSettings(allow_from=("ann",))) as mention:
        await mention.take(sender="eve")
        for number in range(3 * MAX_KEPT):
            await mention.take(sender=f"off{number}", **group(addressed=False))
        kept = mention.intake.turned_away("fake")
        assert len(kept) == MAX_KEPT
        assert [visitor.id for visitor in kept if visitor.why is Refusal.STRANGER] == ["eve"]


@pytest.mark.req("CHAN-03")
async def test_what_is_not_said_to_the_assistant_is_nothing_to_it_where_only_mentions_count(tmp_path: Path) -> None:
    async with scene(tmp_path, ChannelSettings(allow_from=("ann",))) as here:
        await here.take("chatter", **group(addressed=False))
        await here.take("to you", message_id="m2", **group())
        assert here.texts == ["<@ann>: to you"]


@pytest.mark.req("CHAN-03", "CHAN-04")
async def test_chatter_of_allowed_people_is_a_bystanders_where_everything_counts(here: Scene) -> None:
    await here.take("ok", **group(addressed=False))
    (message,) = here.delivered
    assert (message.trigger, message.is_group, message.text) == (Trigger.BYSTANDER, True, "<@ann>: ok")


# -- buttons ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("APPR-01")
async def test_a_button_of_a_card_is_the_command_that_it_stands_for(here: Scene) -> None:
    await here.take("/approve bcdf", press=True, **group(name="Ann"))
    assert here.texts == ["/approve bcdf"]


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize("sender", ["eve", "", "*", "ann\n"])
async def test_a_button_pressed_by_somebody_else_does_nothing(here: Scene, sender: str) -> None:
    await here.take("/approve bcdf", sender, press=True, **group())
    assert (here.delivered, here.ledger.undone) == ([], 0)


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize("text", ["ok", "/status", "/approve", "delete everything", "", "/approve a\n" + "x" * 99])
async def test_a_button_that_is_none_of_ours_does_nothing(here: Scene, text: str) -> None:
    await here.take(text, press=True)
    assert (here.delivered, here.ledger.undone) == ([], 0)


@pytest.mark.req("APPR-01", "CHAN-07")
async def test_a_press_that_comes_again_is_dropped(here: Scene) -> None:
    for _ in range(3):
        await here.take("/approve bcdf", message_id="press-1", press=True)
    assert here.texts == ["/approve bcdf"]
    assert here.count("duplicates") == "2"


@pytest.mark.req("APPR-03")
async def test_a_reply_to_a_card_names_the_card(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with (
        Ledger(tmp_path / "home" / "gateway" / "ledger.db") as ledger,
        Post(ledger, {"fake": channel}, Metrics()) as post,
        asyncio.TaskGroup() as tasks,
    ):
        running = tasks.create_task(channel.run(_Deaf()))
        await channel.until(lambda: channel.running)
        ident = await post.card(HERE, "May this run?", "bcdf")
        delivered: list[InboundMessage] = []

        async def note(message: InboundMessage) -> None:
            delivered.append(message)

        intake = Intake(
            Neighbours(
                channels={"fake": channel},
                access={"fake": OPEN},
                ledger=ledger,
                post=post,
                files=Files(tmp_path / "home", Sessions(tmp_path / "home"), 1),
                metrics=Metrics(),
                key_of=lambda _: "x",
                deliver=note,
                is_command=lambda _: False,
                asked=lambda _: False,
            )
        )
        await intake.take("fake", heard("OK", reply_to=ident, is_group=True))
        await intake.take("fake", heard("OK", message_id="m2", reply_to="999", is_group=True))
        await intake.take("fake", heard("OK", message_id="m3", reply_to=ident, chat_id="8", is_group=True))
        running.cancel()
    assert [(message.reply_to, message.text) for message in delivered] == [
        ("bcdf", "OK"),
        (None, "<@ann>: OK"),
        (None, "<@ann>: OK"),
    ]


class _Deaf:
    async def take(self, message: Incoming) -> None:
        raise AssertionError(message)

    def connected(self, who: str) -> None: ...
    def alive(self) -> None: ...
