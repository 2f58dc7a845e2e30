"""A picture that the model does not take ends neither the turn nor the session (B093)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bubbles.bus import Origin
from bubbles.providers.contract import (
    Category,
    Image,
    ModelReply,
    ModelRequest,
    ProviderError,
    ToolMessage,
    UserMessage,
)
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from bubbles.sessions.contract import TurnEnd
from bubbles.tools.contract import ToolResult
from tests.unit.agent.scene import Note, NoteArgs, Scene, fault, texts

DAMAGED = Image(media_type="image/png", data=b"\x89PNG\r\n\x1a\nand nothing of a picture")
REFUSED = ProviderError(Category.REJECTED, "could not process image")


@dataclass(slots=True)
class Look(Note):
    async def run(self, args: NoteArgs, origin: Origin) -> ToolResult:
        return ToolResult(text=f"{args.text}: image/png.", images=(DAMAGED,))


def pictures(request: ModelRequest) -> int:
    return sum(len(m.images) for m in request.messages if isinstance(m, UserMessage | ToolMessage))


def blind(then: str | ModelReply) -> Step:
    """Of a server that takes no pictures."""
    return lambda request: REFUSED if pictures(request) else then


def looking(*script: Step) -> Scene:
    return Scene(provider=ScriptedProvider(script), note=Look())


async def test_a_request_that_is_refused_is_sent_once_more_without_pictures_and_so_are_all_later_ones() -> None:
    look = calls(("note", {"text": "a.png"}))
    at = looking(look, blind("n/a"), blind("I cannot see it."), blind("Still here."))
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.DONE, "I cannot see it.")
    assert [pictures(request) for request in at.requests] == [0, 1, 0]
    assert "a.png: image/png.\n[1 picture(s) are left out here" in texts(at.requests[-1].messages)
    assert len(at.seen.of("notice")) == 1
    assert (await at.say("And now?")).text == "Still here."
    assert [pictures(request) for request in at.requests] == [0, 1, 0, 0]
    assert len(at.seen.of("notice")) == 1
    assert all(fault(request.messages) is None for request in at.requests)
    kept = [message for message in at.history.messages if isinstance(message, ToolMessage)]
    assert kept[0].images == (DAMAGED,), "another model may take it"


async def test_pictures_that_were_not_what_was_wrong_are_sent_again() -> None:
    at = looking(calls(("note", {"text": "a.png"})), REFUSED, REFUSED, "Now it works.")
    outcome = await at.say()
    assert outcome.end is TurnEnd.FAILED
    assert outcome.error is REFUSED
    assert at.seen.of("notice") == []
    assert (await at.say()).text == "Now it works."
    assert [pictures(request) for request in at.requests] == [0, 1, 0, 1]


@pytest.mark.req("PROV-06")
async def test_a_refused_request_without_pictures_is_not_sent_again() -> None:
    at = looking(REFUSED, "never asked for")
    assert (await at.say()).end is TurnEnd.FAILED
    assert len(at.requests) == 1
