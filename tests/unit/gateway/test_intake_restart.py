"""What becomes of messages that an earlier process took and did not deal with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bubbles.bus import InboundMessage
from bubbles.channels.contract import Incoming
from bubbles.config.channels import ChannelSettings
from bubbles.gateway.intake import BROKEN, KEPT_S
from tests.unit.gateway.intake_scene import HERE, heard, scene


async def before(root: Path, *messages: Incoming, tries: int = 0) -> None:
    """An earlier process took these, and was killed after so many turns of each."""
    async with scene(root) as earlier:
        for message in messages:
            await earlier.intake.take("fake", message)
        for taken in earlier.delivered:
            for _ in range(tries):
                await earlier.ledger.begun(taken.ticket)


@pytest.mark.req("OPS-02")
async def test_what_an_earlier_process_took_is_handed_on_again_in_order(tmp_path: Path) -> None:
    await before(tmp_path, heard("one", message_id="a"), heard("two", "bob", "b"), heard("/status", message_id="c"))
    async with scene(tmp_path) as here:
        await here.intake.resume()
        assert here.texts == ["one", "two", "/status"]
        assert all(message.resumed and message.ticket for message in here.delivered)
        assert await here.notices() == []
        assert here.ledger.undone == 3


@pytest.mark.req("OPS-02")
async def test_who_waits_is_told_that_there_was_an_interruption(tmp_path: Path) -> None:
    await before(
        tmp_path,
        heard("write\nthe `report` for <@bob> <<@x>@room> " + "x" * 99, message_id="a"),
        heard("do it", message_id="b", name="Ann: the 1st", is_group=True),
        heard("chatter", message_id="c", is_group=True, addressed=False),
        tries=1,
    )
    async with scene(tmp_path) as here:
        await here.intake.resume()
        shown = "write the 'report' for @bob @x@room> " + "x" * 23
        assert await here.notices() == [
            f"I was interrupted while working on: «{shown}…»; I take it up again.",
            "I was interrupted while working on: «do it»; I take it up again.",
        ]
        assert len(here.delivered) == here.ledger.undone == 3


@pytest.mark.req("OPS-02")
async def test_after_the_third_time_a_message_is_given_up_with_a_sentence(tmp_path: Path) -> None:
    await before(
        tmp_path,
        heard("crash", message_id="a"),
        heard("x", message_id="b", is_group=True, addressed=False),
        tries=3,
    )
    async with scene(tmp_path) as here:
        await here.intake.resume()
        (said,) = await here.notices()
        assert said.startswith("I was interrupted 3 times while working on: «crash».")
        assert (here.delivered, here.ledger.undone) == ([], 0)
    async with scene(tmp_path) as again:
        await again.intake.resume()
        assert len(await again.notices()) == 1


@pytest.mark.req("APPR-04")
@pytest.mark.parametrize("text", ["ok", "/approve bcdf", "拒绝"])
async def test_what_answers_a_card_that_died_with_the_program_is_void_and_said_to_be(tmp_path: Path, text: str) -> None:
    await before(tmp_path, heard("run it", message_id="a"), heard(text, message_id="b"))
    async with scene(tmp_path, asked=(HERE,)) as here:
        await here.intake.resume()
        assert here.texts == ["run it"]
        assert (await here.notices())[-1] == (
            f"The program was restarted, and what it had asked is gone with it: «{text}» was not counted as an answer, "
            "and nothing was run by it. If you meant something else, say it again."
        )
        assert here.ledger.undone == 1


@pytest.mark.req("OPS-02")
async def test_a_yes_with_which_a_turn_had_begun_is_taken_up_like_any_message(tmp_path: Path) -> None:
    await before(tmp_path, heard("yes"), tries=1)
    async with scene(tmp_path) as here:
        await here.intake.resume()
        assert here.texts == ["yes"]
        assert await here.notices() == ["I was interrupted while working on: «yes»; I take it up again."]


@pytest.mark.req("CHAN-02")
async def test_whom_the_owner_has_put_out_since_then_is_not_obeyed(tmp_path: Path) -> None:
    await before(
        tmp_path, heard("mine", message_id="a"), heard("his", "bob", "b"), heard("x", "bob", "c", is_group=True)
    )
    async with scene(tmp_path, ChannelSettings(allow_from=("ann",), group_policy="off")) as here:
        await here.intake.resume()
        assert here.texts == ["mine"]
        assert await here.notices() == [
            "I was interrupted before I had answered: «his». Send it again if it is still wanted."
        ]
        assert here.ledger.undone == 1


@pytest.mark.req("OPS-02")
async def test_one_message_that_cannot_be_handed_on_does_not_hinder_the_others(tmp_path: Path) -> None:
    await before(tmp_path, heard("one", message_id="a"), heard("two", message_id="b"))
    delivered = []

    async def deliver(message: InboundMessage) -> None:
        if message.text == "one":
            raise RuntimeError("a bug")
        delivered.append(message.text)

    async with scene(tmp_path, deliver=deliver) as here:
        await here.intake.resume()
        assert (delivered, await here.notices()) == (["two"], [BROKEN])


@pytest.mark.req("OPS-02")
async def test_what_came_by_a_channel_that_is_off_now_waits_for_it_for_a_day(tmp_path: Path) -> None:
    await before(tmp_path, heard("one"))
    async with scene(tmp_path, on=False, clock=time.time) as off:
        await off.intake.resume()
        assert (off.delivered, off.ledger.undone) == ([], 1)
    async with scene(tmp_path, clock=time.time) as here:
        await here.intake.resume()
        assert here.texts == ["one"]
    async with scene(tmp_path, on=False, clock=lambda: time.time() + KEPT_S) as late:
        await late.intake.resume()
        assert (late.delivered, late.ledger.undone, await late.notices()) == ([], 0, [])
