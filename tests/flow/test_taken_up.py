"""A message whose turn was cut off is taken up again by the next start, and nothing is done twice (OPS-02)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bubbles.bus import Address, InboundMessage, Kind
from bubbles.providers.contract import ModelRequest, UserMessage
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from tests.flow.test_turns import Person, Scene, scene

pytestmark = [pytest.mark.req("OPS-02"), pytest.mark.blocking]


def message(text: str, ticket: str, *, resumed: bool = False) -> InboundMessage:
    address = Address(channel="fake", chat_id="1")
    return InboundMessage(address=address, sender="ann", text=text, ticket=ticket, resumed=resumed)


async def ends(here: Scene, count: int = 1) -> list[str]:
    await here.channel.heard(count, kinds=(Kind.END,))
    return await here.channel.heard(0)


def heard(request: ModelRequest) -> list[str]:
    return [each.text for each in request.messages if isinstance(each, UserMessage)]


async def cut_off(base: Path, *said: str) -> None:
    """A turn that waits for a person when the program is told to end."""
    person = Person(says=None)
    script: list[Step] = [
        calls(
            ("write_file", {"path": "data/log", "content": "once\n"}),
            ("exec", {"script": "curl https://example.org/x"}),
        )
    ]
    async with scene(base, script, person=person) as here:
        for number, text in enumerate(said):
            await here.bubbles.dispatcher.deliver(message(text, f"t{number}"))
            if number == 0:
                await person.asked.wait()
    assert [sent.kind for sent in here.channel.sent if sent.settles] == [Kind.WORKING]


async def test_it_goes_on_with_all_that_is_known_and_repeats_nothing(tmp_path: Path) -> None:
    await cut_off(tmp_path, "Write once, then fetch.")
    provider = ScriptedProvider(["It was written; the fetch was not allowed."])
    async with scene(tmp_path, provider) as here:
        await here.bubbles.dispatcher.deliver(message("Write once, then fetch.", "t0", resumed=True))
        assert await ends(here) == ["It was written; the fetch was not allowed."]
    texts = heard(provider.requests[0])
    assert texts.count("Write once, then fetch.") == 1
    assert "begins with: Write once, then fetch." in texts[-1]
    assert (here.data_dir / "sessions" / "fake.1" / "data" / "log").read_text() == "once\n"


async def test_one_that_no_turn_had_begun_with_is_a_message_like_any_other(tmp_path: Path) -> None:
    provider = ScriptedProvider(["Hello."])
    async with scene(tmp_path, provider) as here:
        await here.bubbles.dispatcher.deliver(message("Hi.", "t0", resumed=True))
        assert await ends(here) == ["Hello."]
    assert heard(provider.requests[0]) == ["Hi."]


async def test_a_reply_that_was_not_handed_on_is_not_made_again(tmp_path: Path) -> None:
    async with scene(tmp_path, ["Once."]) as here:
        await here.bubbles.dispatcher.deliver(message("Hi.", "t0"))
        await ends(here)
    provider = ScriptedProvider(["Twice."])
    async with scene(tmp_path, provider) as here:
        await here.bubbles.dispatcher.deliver(message("Hi.", "t0", resumed=True))
        assert await ends(here) == ["Once."]
    assert not provider.requests


async def test_a_reply_that_several_messages_had_is_handed_on_once(tmp_path: Path) -> None:
    person = Person(says=None)
    script: list[Step] = [calls(("exec", {"script": "curl https://example.org/x"})), "Both are dealt with."]
    async with scene(tmp_path, script, person=person) as here:
        await here.bubbles.dispatcher.deliver(message("One.", "t0"))
        await person.asked.wait()
        await here.bubbles.dispatcher.deliver(message("Two.", "t1"))
        await here.bubbles.dispatcher.deliver(message("no", "t2"))
        assert (await ends(here))[-1] == "Both are dealt with."
    provider = ScriptedProvider(["Again."])
    async with scene(tmp_path, provider) as here:
        for number, text in enumerate(["One.", "Two."]):
            await here.bubbles.dispatcher.deliver(message(text, f"t{number}", resumed=True))
        assert await ends(here, 2) == ["Both are dealt with."]
        settled = [ticket for sent in here.channel.sent if sent.kind is Kind.END for ticket in sent.settles]
    assert (settled, provider.requests) == (["t0", "t1"], [])


async def test_what_waited_behind_it_is_answered_by_the_turn_that_goes_on(tmp_path: Path) -> None:
    await cut_off(tmp_path, "Write once, then fetch.", "And hurry.")
    provider = ScriptedProvider(["Both are dealt with."])
    async with scene(tmp_path, provider) as here:
        async with asyncio.TaskGroup() as tasks:
            for number, text in enumerate(["Write once, then fetch.", "And hurry."]):
                tasks.create_task(here.bubbles.dispatcher.deliver(message(text, f"t{number}", resumed=True)))
        assert await ends(here) == ["Both are dealt with."]
        settled = [sent.settles for sent in here.channel.sent if sent.kind is Kind.REPLY]
    assert settled == [("t0", "t1")]
    assert heard(provider.requests[0])[-1] == "And hurry."


async def test_a_reply_whose_turn_was_killed_before_its_last_line_is_handed_on(tmp_path: Path) -> None:
    async with scene(tmp_path, ["Once."]) as here:
        await here.bubbles.dispatcher.deliver(message("Hi.", "t0"))
        await ends(here)
    path = tmp_path / "data" / "session_state" / "fake.1" / "session.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "turn"
    path.write_text("".join(lines[:-1]))
    provider = ScriptedProvider(["I have answered that already, see above."])
    async with scene(tmp_path, provider) as here:
        await here.bubbles.dispatcher.deliver(message("Hi.", "t0", resumed=True))
        assert await ends(here) == ["Once."]
    assert not provider.requests


async def test_a_reply_that_is_handed_on_settles_all_that_it_answers_at_once(tmp_path: Path) -> None:
    """A kill between the answer to the first and the silent end of the second would answer the second once more."""
    async with scene(tmp_path, [calls(("exec", {"script": "sleep 0.3"})), "Both are dealt with."]) as here:
        await here.bubbles.dispatcher.deliver(message("One.", "t0"))
        await here.bubbles.dispatcher.deliver(message("Two.", "t1"))
        await ends(here)
        assert [sent.settles for sent in here.channel.sent if sent.kind is Kind.REPLY] == [("t0", "t1")]
    async with scene(tmp_path, []) as here:
        for number, text in enumerate(["One.", "Two."]):
            await here.bubbles.dispatcher.deliver(message(text, f"t{number}", resumed=True))
        await here.bubbles.dispatcher.idle()
        await ends(here, 2)
        (reply,) = [sent.settles for sent in here.channel.sent if sent.kind is Kind.REPLY]
        assert set(reply) == {"t0", "t1"}
