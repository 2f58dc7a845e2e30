"""What the dispatcher does with tasks in the background: their reports, and ``/stop``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, Trigger
from bubbles.dispatch.contract import Pending
from bubbles.dispatch.dispatcher import FULL, MAX_WAITING
from bubbles.dispatch.notices import BROKEN, CLI
from bubbles.dispatch.slots import Lanes
from bubbles.tools.services import TaskInfo, TaskState
from tests.unit.dispatch.scene import Scene, a_turn_that_takes, done, scene

pytestmark = pytest.mark.req("TOOL-05")


@dataclass(slots=True)
class Known:
    """``RunningTasks``: ``runs`` can be stopped, of ``reports`` none has been given."""

    runs: list[str] = field(default_factory=list)
    reports: set[str] = field(default_factory=set)

    def running(self, session_key: str) -> tuple[TaskInfo, ...]:
        return tuple(
            TaskInfo(id=name, label=f"work {name}", state=TaskState.RUNNING, running_s=1, calls=0, tokens=0)
            for name in self.runs
        )

    async def stop(self, session_key: str, task: str) -> bool:
        if task in self.runs:
            self.runs.remove(task)
            return True
        return False

    def due(self, session_key: str, task: str) -> bool:
        return task in self.reports


async def ends(
    here: Scene, task: str, *, chat: str = "1", channel: str = "fake", trigger: Trigger = Trigger.TASK
) -> None:
    """As the tasks say it."""
    await here.dispatcher.deliver(
        InboundMessage(
            address=Address(channel=channel, chat_id=chat),
            sender="ann",
            text=f"Task {task} is done.",
            trigger=trigger,
            session_key=f"{channel}.1",
            task=task,
        )
    )


async def test_a_report_begins_a_turn_and_is_announced_at_the_terminal_only() -> None:
    async with scene(tasks=Known(reports={"t1", "t2"})) as here:
        await ends(here, "t1")
        assert await here.heard(1) == ["you said Task t1 is done."]
        await ends(here, "t2", channel=CLI)
        await here.heard(4)
    kinds = [(message.kind, message.text) for message in here.sent[1:]]
    said = "Task t2 is done."
    assert kinds == [(Kind.TASK, said), (Kind.REPLY, f"you said {said}"), (Kind.END, "")]


@pytest.mark.req("CORE-06")
@pytest.mark.parametrize(
    ("running", "arrives", "chat", "taken"),
    [
        (Trigger.USER, Trigger.TASK, "1", True),
        (Trigger.TASK, Trigger.USER, "1", True),
        (Trigger.CRON, Trigger.CRON, "1", True),
        (Trigger.USER, Trigger.TASK, "2", False),
        (Trigger.CRON, Trigger.TASK, "1", False),
        (Trigger.USER, Trigger.CRON, "1", False),
        (Trigger.HEARTBEAT, Trigger.CRON, "1", False),
    ],
)
async def test_a_report_goes_into_a_running_turn_of_those_who_wait_for_it(
    running: Trigger, arrives: Trigger, chat: str, taken: bool
) -> None:
    taking, begun, go = a_turn_that_takes()
    async with scene(taking, tasks=Known(reports={"t1"})) as here:
        await here.say("first", trigger=running)
        await begun.wait()
        if arrives is Trigger.USER:
            await here.say("mine", chat=chat)
            report = "mine"
        else:
            await ends(here, "t1", chat=chat, trigger=arrives)
            report = "Task t1 is done."
        go.set()
        assert await here.heard(1 if taken else 2) == ([f"first + {report}"] if taken else ["first", report])


async def test_a_message_of_a_job_is_never_taken_for_the_report_of_one() -> None:
    taking, begun, go = a_turn_that_takes()
    async with scene(taking) as here:
        await here.say("job", trigger=Trigger.CRON)
        await begun.wait()
        await here.say("another job", trigger=Trigger.CRON)
        go.set()
        assert await here.heard(2) == ["job", "another job"]


async def test_a_report_that_a_turn_has_had_begins_none_and_nobody_sees_of_it() -> None:
    tasks = Known()
    async with scene(tasks=tasks) as here:
        await here.say("hello", channel=CLI)
        await ends(here, "t1", channel=CLI)
        await here.idle()
    assert [message.kind for message in here.sent if message.text != "Task t1 is done."] == [Kind.REPLY, Kind.END]


@pytest.mark.req("ERR-04")
async def test_a_turn_with_nothing_to_do_ends_without_a_word() -> None:
    async def nothing(_m: InboundMessage, _o: Origin, _b: TurnObserver, _p: Pending) -> TurnOutcome | None:
        return None

    async with scene(nothing, tasks=Known(reports={"t1"})) as here:
        await ends(here, "t1", channel=CLI)
        await here.heard(2)
    assert [message.kind for message in here.sent] == [Kind.TASK, Kind.END]


@pytest.mark.req("ERR-02")
async def test_whoever_waits_for_a_report_is_told_that_its_turn_broke_and_no_job_is() -> None:
    async def breaks(_m: InboundMessage, _o: Origin, _b: TurnObserver, _p: Pending) -> TurnOutcome:
        raise ZeroDivisionError

    async with scene(breaks, tasks=Known(reports={"t1", "t2"})) as here:
        await ends(here, "t2", trigger=Trigger.CRON)
        await here.idle()
        assert here.sent == []
        await ends(here, "t1")
        assert await here.heard(1) == [BROKEN]


async def test_a_report_that_finds_no_room_is_not_complained_of() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waiting(message: InboundMessage, *_: object) -> TurnOutcome:
        begun.set()
        await go.wait()
        return done(message.text)

    async with scene(waiting, tasks=Known(reports={"t1"})) as here:
        await here.say("first")
        await begun.wait()
        for number in range(MAX_WAITING):
            await here.say(str(number))
        await ends(here, "t1")
        await here.say("one too many")
        assert await here.heard(1) == [FULL]
        go.set()
        await here.idle()


async def test_stop_is_for_the_turn_and_names_the_tasks_that_go_on() -> None:
    taking, begun, _ = a_turn_that_takes()
    async with scene(taking, tasks=Known(runs=["t1", "t2"])) as here:
        await here.say("go", channel=CLI)
        await begun.wait()
        await here.say("/stop", channel=CLI)
        left = "In the background go on: t1 (work t1), t2 (work t2). /stop ID ends one of them, /stop all all."
        assert await here.heard(1, Kind.NOTICE) == [f"Stopped. {left}"]
        await here.idle()
        await here.say("/stop t1", channel=CLI)
        await here.say("/stop t1", channel=CLI)
        left = "In the background goes on: t2 (work t2). /stop t2 ends it."
        assert (await here.heard(3, Kind.NOTICE))[1:] == ["Task t1 is stopped.", f"No task 't1' runs here. {left}"]
    assert [message.failed for message in here.sent if message.kind is Kind.NOTICE] == [False, False, True]
    assert [message.kind for message in here.sent].count(Kind.END) == 3


async def test_stop_of_a_task_leaves_the_turn_alone_and_its_end_is_told_once() -> None:
    taking, begun, go = a_turn_that_takes()
    async with scene(taking, tasks=Known(runs=["t1"])) as here:
        await here.say("go", channel=CLI)
        await begun.wait()
        await here.say("/stop t1", channel=CLI)
        await here.heard(1, Kind.NOTICE)
        go.set()
        assert await here.heard(1, Kind.REPLY) == ["go"]
        await here.idle()
    assert [message.kind for message in here.sent] == [Kind.NOTICE, Kind.REPLY, Kind.END]


async def test_stop_all_ends_the_turn_too() -> None:
    taking, begun, _ = a_turn_that_takes()
    tasks = Known(runs=["t1"])
    async with scene(taking, tasks=tasks) as here:
        await here.say("go")
        await begun.wait()
        await here.say("/stop all")
        assert await here.heard(1) == ["Stopped. So is task t1."]
        await here.idle()
        assert tasks.runs == []


async def test_nobody_but_a_person_stops_anything() -> None:
    tasks = Known(runs=["t1"])
    async with scene(tasks=tasks) as here:
        await here.say("/stop t1", trigger=Trigger.CRON)
        await here.say("/stop t1", trigger=Trigger.BYSTANDER)
        await here.heard(2)
        assert tasks.runs == ["t1"]


@pytest.mark.req("CORE-05", "APPR-03")
async def test_tasks_take_no_place_of_a_turn_and_give_theirs_while_a_person_is_asked() -> None:
    lanes = Lanes(1)
    turn = Origin(session_key="s", address=Address(channel="fake", chat_id="1"), sender="ann")
    one, two = (Origin(session_key="s", address=turn.address, sender="ann", task=name) for name in ("t1", "t2"))
    async with lanes.held(one), lanes.held(turn):
        async with lanes.away(one), lanes.held(two):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lanes.held(two):
                pass
