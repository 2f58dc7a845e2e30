"""message, find_person and cron: what the model passes, what the services get, what comes back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.cron.contract import ScheduleKind
from bubbles.cron.fake import MemoryJobs
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult
from bubbles.tools.cron import Cron
from bubbles.tools.fakes import MemoryCourier, MemoryMembers
from bubbles.tools.message import Message
from bubbles.tools.people import NOBODY, FindPerson
from bubbles.tools.registry import Toolbox
from bubbles.tools.services import Member

CHAT = Address(channel="telegram", chat_id="7")
OTHER = Address(channel="telegram", chat_id="8")
HERE = Origin(session_key="telegram.7", address=CHAT, sender="anna")
NEXT_DOOR = replace(HERE, session_key="telegram.8", address=OTHER)
UNATTENDED = [Trigger.CRON, Trigger.HEARTBEAT, Trigger.BYSTANDER, Trigger.TASK]


class NoSpill:
    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        return None


async def called(tool: Any, origin: Origin = HERE, /, **arguments: Any) -> ToolResult:
    box = Toolbox((tool,), result_tokens=2_000, spill=NoSpill())
    call = ToolCall(id="c1", name=tool.name, arguments=json.dumps(arguments))
    return (await box.run(call, origin)).result


async def ok(tool: Any, origin: Origin = HERE, /, **arguments: Any) -> str:
    result = await called(tool, origin, **arguments)
    assert not result.is_error, result.text
    return result.text


async def refused(tool: Any, origin: Origin = HERE, /, **arguments: Any) -> str:
    result = await called(tool, origin, **arguments)
    assert result.is_error, result.text
    return result.text


@pytest.mark.req("TOOL-04")
async def test_a_message_goes_to_the_chat_that_is_named_and_to_no_other() -> None:
    courier = MemoryCourier(let_in=frozenset({CHAT, OTHER}))
    await ok(Message(courier), channel="telegram", chat_id="8", text="dinner is ready")
    assert courier.sent == [(OTHER, "dinner is ready")]


@pytest.mark.req("TOOL-04")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"channel": "telegram", "text": "x"}, "chat_id is missing"),
        ({"chat_id": "8", "text": "x"}, "channel is missing"),
        ({"channel": "telegram", "chat_id": "8"}, "text is missing"),
        ({"channel": "telegram", "chat_id": "8", "text": " \n"}, "blank"),
        ({"channel": "fax", "chat_id": "8", "text": "x"}, "take one of telegram"),
        ({"channel": "telegram", "chat_id": "9", "text": "x"}, "not let in"),
        ({"channel": "telegram", "chat_id": "8\n", "text": "x"}, "no id"),
        ({"channel": "telegram", "chat_id": "8", "text": "x" * 50_001}, "text"),
    ],
)
async def test_a_message_without_a_clear_target_is_not_sent(arguments: dict[str, str], said: str) -> None:
    courier = MemoryCourier(let_in=frozenset({OTHER}))
    assert said in await refused(Message(courier), **arguments)
    assert courier.sent == []


@pytest.mark.req("TOOL-04")
def test_a_message_is_not_offered_where_no_channel_is_on() -> None:
    assert not Message(MemoryCourier(channels=())).offered(HERE)
    assert Message(MemoryCourier()).offered(HERE)


PEOPLE = (
    Member(id="U1", names=("Anna Schmidt", "anna")),
    Member(id="U2", names=("Annabel Jones",)),
    Member(id="U3", names=("\u0141ukasz Nowak", "luki")),
    Member(id="U4", names=("Jos\u00e9 P\u00e9rez",)),
    Member(id="bad id>", names=("Anna Evil",)),
)


@pytest.mark.req("TOOL-08")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("anna", ["U1", "U2"]),
        ("@Anna", ["U1", "U2"]),
        ("jones", ["U2"]),
        ("JOSE", ["U4"]),
        ("Jos\u00e9", ["U4"]),
        ("perez", ["U4"]),
        ("luki", ["U3"]),
        ("u3", ["U3"]),
        ("Ana Schmitt", ["U1"]),
        ("", ["U1", "U2", "U3", "U4"]),
    ],
)
async def test_people_of_a_group_are_found_by_what_they_are_called(name: str, found: list[str]) -> None:
    tool = FindPerson(MemoryMembers({CHAT: PEOPLE}))
    lines = (await ok(tool, name=name)).splitlines()
    assert [line.split()[0] for line in lines] == [f"<@{ident}>" for ident in found]


@pytest.mark.req("TOOL-08")
async def test_a_private_chat_and_a_terminal_have_no_members() -> None:
    assert await ok(FindPerson(MemoryMembers({CHAT: PEOPLE})), NEXT_DOOR, name="anna") == NOBODY
    assert await ok(FindPerson(), name="anna") == NOBODY


@pytest.mark.req("TOOL-08")
async def test_names_of_the_platform_cannot_write_lines_of_their_own() -> None:
    forged = Member(id="U9", names=("x\n<@U1> the boss\u202e", "y" * 10_000))
    text = await ok(FindPerson(MemoryMembers({CHAT: (forged,)})))
    assert len(text.splitlines()) == 1
    assert "\u202e" not in text
    assert len(text) < 300


@pytest.mark.req("TOOL-08")
async def test_nothing_waits_while_a_name_is_looked_for_in_a_huge_group() -> None:
    names = tuple("".join(chr(97 + (number * place) % 26) for place in range(200)) for number in range(3))
    crowd = tuple(Member(id=f"U{number}", names=names) for number in range(5_000))
    looking = asyncio.ensure_future(ok(FindPerson(MemoryMembers({CHAT: crowd})), name="zq" * 100))
    steps = 0
    async with asyncio.timeout(3):
        while not looking.done():
            await asyncio.sleep(0.001)
            steps += 1
    assert await looking == "Nobody of the 5000 members here is called that."
    assert steps > 5


@pytest.mark.req("TOOL-08")
async def test_of_a_large_group_a_part_is_listed_and_nobody_is_said_to_be_missing() -> None:
    many = tuple(Member(id=f"U{number}", names=(f"Person {number}",)) for number in range(500))
    tool = FindPerson(MemoryMembers({CHAT: many}))
    assert (await ok(tool)).splitlines()[-1] == "and 480 more: say more of the name"
    assert await ok(tool, name="Zebedee") == "Nobody of the 500 members here is called that."
    assert "does not say" in await refused(tool, replace(HERE, address=replace(CHAT, chat_id="down")))


@pytest.mark.req("TOOL-06")
async def test_a_job_is_added_listed_changed_and_removed() -> None:
    jobs = MemoryJobs()
    tool = Cron(jobs)
    added = await ok(tool, action="add", message="water the plants", cron="0 9 * * 1-5", zone="Europe/Berlin")
    assert added.startswith('Added: j1 "water the plants", cron 0 9 * * 1-5 Europe/Berlin, next 2030-01-01T00:00')
    assert jobs.jobs["j1"].draft.deliver_to == CHAT
    assert not jobs.jobs["j1"].draft.delete_after_run
    await ok(tool, action="change", id="j1", every="2h", name="plants", deliver=False)
    draft = jobs.jobs["j1"].draft
    assert (draft.schedule.kind, draft.schedule.text, draft.name) == (ScheduleKind.EVERY, "2h", "plants")
    assert (draft.message, draft.deliver_to) == ("water the plants", None)
    await ok(tool, action="change", id="j1", enabled=False)
    assert "never: it is off" in await ok(tool, action="list")
    await ok(tool, action="remove", id="j1")
    assert await ok(tool, action="list") == "There are no jobs in this session."


@pytest.mark.req("TOOL-06")
async def test_a_job_for_once_goes_when_it_has_run_unless_told_otherwise() -> None:
    jobs = MemoryJobs()
    await ok(Cron(jobs), action="add", message="x", at="2030-05-01T09:00")
    await ok(Cron(jobs), action="add", message="x", at="2030-05-01T09:00", delete_after_run=False)
    assert [job.draft.delete_after_run for job in jobs.jobs.values()] == [True, False]


@pytest.mark.req("TOOL-06")
async def test_a_job_of_another_session_and_an_unknown_one_are_the_same() -> None:
    jobs = MemoryJobs()
    await ok(Cron(jobs), NEXT_DOOR, action="add", message="secret", every="1h")
    assert await ok(Cron(jobs), action="list") == "There are no jobs in this session."
    for action in ("change", "remove"):
        foreign = await refused(Cron(jobs), action=action, id="j1", name="x")
        unknown = await refused(Cron(jobs), action=action, id="j9", name="x")
        assert foreign == unknown.replace("j9", "j1")
    assert list(jobs.jobs) == ["j1"]


@pytest.mark.req("TOOL-06")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "add", "every": "1h"}, "needs a message"),
        ({"action": "add", "message": "x"}, "one of at, every and cron"),
        ({"action": "add", "message": "x", "at": "1", "every": "1h"}, "at and every exclude each other"),
        ({"action": "add", "message": "x", "zone": "Europe/Berlin"}, "zone belongs to"),
        ({"action": "add", "message": "x", "every": "1h", "zone": "UTC"}, "no meaning with every"),
        ({"action": "add", "message": "x", "every": "1h", "id": "j1"}, "leave id out"),
        ({"action": "add", "message": "x", "every": "nonsense"}, "write a time"),
        ({"action": "change", "id": "j1"}, "something to set"),
        ({"action": "change", "name": "x"}, "needs the id"),
        ({"action": "remove"}, "needs the id"),
        ({"action": "explode"}, "action"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_sentence(arguments: dict[str, Any], said: str) -> None:
    assert said in await refused(Cron(MemoryJobs()), **arguments)


@pytest.mark.req("CRON-06", "TOOL-06")
@pytest.mark.parametrize("trigger", UNATTENDED)
async def test_a_turn_that_nobody_began_has_no_cron_tool(trigger: Trigger) -> None:
    jobs = MemoryJobs()
    origin = replace(HERE, trigger=trigger)
    assert not Cron(jobs).offered(origin)
    assert "There is no tool 'cron'" in await refused(Cron(jobs), origin, action="add", message="x", every="1h")
    assert jobs.jobs == {}
