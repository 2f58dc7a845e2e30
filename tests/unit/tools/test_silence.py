"""stay_silent: who is offered it, and what comes back."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult
from bubbles.tools.registry import Toolbox
from bubbles.tools.silence import StaySilent

pytestmark = pytest.mark.req("TOOL-10")

HERE = Origin(
    session_key="telegram.7",
    address=Address(channel="telegram", chat_id="7"),
    sender="heartbeat",
    trigger=Trigger.HEARTBEAT,
)


class NoSpill:
    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        return None


async def called(origin: Origin, **arguments: object) -> ToolResult:
    box = Toolbox((StaySilent(),), result_tokens=2_000, spill=NoSpill())
    call = ToolCall(id="c1", name="stay_silent", arguments=json.dumps(arguments))
    return (await box.run(call, origin)).result


def test_it_is_offered_in_turns_that_nobody_began_and_in_no_task() -> None:
    tool = StaySilent()
    offered = [trigger for trigger in Trigger if tool.offered(replace(HERE, trigger=trigger))]
    assert offered == [Trigger.CRON, Trigger.HEARTBEAT]
    assert not tool.offered(replace(HERE, task="t1"))


@pytest.mark.parametrize("origin", [replace(HERE, trigger=Trigger.USER), replace(HERE, task="t1")])
async def test_a_model_that_calls_it_where_it_is_not_offered_silences_nothing(origin: Origin) -> None:
    result = await called(origin)
    assert (result.is_error, result.silent) == (True, False)


@pytest.mark.parametrize("trigger", [Trigger.CRON, Trigger.HEARTBEAT])
async def test_the_turn_is_silent_and_the_reason_is_in_the_log_alone(
    trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result = await called(replace(HERE, trigger=trigger), reason="all is\nwell")
    assert (result.is_error, result.silent) == (False, True)
    assert "well" not in result.text
    assert "telegram.7 is silent: all is⟨\\n⟩well" in caplog.text


async def test_no_reason_is_needed_and_a_wrong_argument_ends_nothing() -> None:
    assert (await called(HERE)).silent
    assert not (await called(HERE, reason="x" * 501)).silent
    assert not (await called(HERE, text="hello")).silent
