"""A turn that ends without a word (TOOL-10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from bubbles.bus import Origin, Trigger
from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.scripted import calls
from bubbles.sessions.contract import TurnEnd
from bubbles.sessions.entries import Ended
from bubbles.tools.contract import ToolResult
from tests.unit.agent.scene import HERE, Note, NoteArgs, scene

pytestmark = pytest.mark.req("TOOL-10")


@dataclass(slots=True)
class Hush(Note):
    name: str = "hush"

    async def run(self, args: NoteArgs, origin: Origin) -> ToolResult:
        self.lines.append(args.text)
        return ToolResult(text="Quiet.", silent=True)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_silent_call_ends_the_turn_and_the_model_sees_nothing_of_it_again(before: int) -> None:
    wanted = [*[("note", {"text": "before"})] * before, ("hush", {"text": "nothing"}), ("note", {"text": "after"})]
    at = scene("Hello.", calls(*wanted), "And now?")
    at.loop = at.new_loop(Hush())
    await at.say("Hi.")
    there = list(at.history.messages)
    outcome = await at.say("Look.")
    assert (outcome.end, outcome.text, outcome.calls) == (TurnEnd.DONE, "", before + 1)
    assert at.note.lines == ["before"] * before
    assert list(at.history.messages) == there
    assert at.history.contents[-1] == Ended(end=TurnEnd.DONE, discard=True)
    await at.say("Go on.")
    assert [message.text for message in at.requests[-1].messages] == [*[message.text for message in there], "Go on."]


@pytest.mark.req("CRON-05")
@pytest.mark.parametrize(("trigger", "calls_before", "kept"), [("cron", 0, 0), ("cron", 1, 3), ("user", 0, 1)])
async def test_a_job_that_failed_before_it_did_anything_leaves_nothing(
    trigger: str, calls_before: int, kept: int
) -> None:
    failure = ProviderError(Category.UNAVAILABLE, "no")
    at = scene(*[calls(("note", {"text": "did"}))] * calls_before, failure)
    outcome = await at.say("Look.", origin=replace(HERE, trigger=Trigger(trigger)))
    assert outcome.end is TurnEnd.FAILED
    assert len(at.history.messages) == kept
