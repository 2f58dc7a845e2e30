"""Tasks in the background, through the whole path: a channel in memory, a scripted model, everything else real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Kind, Trigger
from bubbles.providers.contract import (
    Category,
    ModelReply,
    ModelRequest,
    ProviderError,
    TextSink,
    ToolMessage,
    Usage,
    UserMessage,
)
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from tests.flow.test_turns import DESK_KEY, Person, Scene, scene
from tests.places import REAL

pytestmark = [pytest.mark.req("TOOL-05"), pytest.mark.blocking]

RISKY = "curl https://example.org/x > data/x"


def is_task(request: ModelRequest) -> bool:
    return '<part name="task">' in request.system


def said(request: ModelRequest) -> str:
    """The last message of a user."""
    return [message.text for message in request.messages if isinstance(message, UserMessage)][-1]


def answered(request: ModelRequest) -> bool:
    """The last call has its result."""
    return isinstance(request.messages[-1], ToolMessage)


def spawn(*labels: str) -> ModelReply:
    return calls(*(("spawn", {"task": f"Do {label}.", "label": label}) for label in labels))


class Thinking(ScriptedProvider):
    """``conversation`` and ``task`` answer their own requests; a gate set for one holds it back."""

    def __init__(self, conversation: Callable[[ModelRequest], Step], task: Callable[[ModelRequest], Step]) -> None:
        super().__init__(repeat(lambda request: (task if is_task(request) else conversation)(request)))
        self.go = asyncio.Event()
        """Tasks get no reply before."""
        self.waits = asyncio.Event()
        """A task waits for it."""

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        if is_task(request):
            self.waits.set()
            await self.go.wait()
        return await super().complete(request, on_text=on_text)


def chatting(request: ModelRequest) -> Step:
    """Begins what it is told to, tells of what came."""
    text = said(request)
    if text.startswith("spawn ") and not answered(request):
        return spawn(*text.split()[1:])
    if "report of task" in text:
        return f"It came back: {text.split(']', 1)[1].split('[End')[0].strip()}"
    return f"Said to {text!r}."


def lines(here: Scene, kind: str = "user") -> list[dict[str, Any]]:
    there = (here.data_dir / "session_state" / DESK_KEY / "session.jsonl").exists()
    return [line for line in here.history() if line["kind"] == kind] if there else []


def reports(here: Scene, task: str = "") -> list[str]:
    return [line["text"] for line in lines(here) if f"report of task {task}" in line["text"]]


def records(here: Scene) -> dict[str, dict[str, Any]]:
    found = sorted((here.data_dir / "session_state" / DESK_KEY / "tasks").glob("t*/task.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in found}


def events(base: Path) -> list[dict[str, Any]]:
    """Of the timeline."""
    paths = sorted((base / "data" / "timeline").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.01)


async def test_the_conversation_goes_on_and_the_report_begins_a_turn_of_its_own(tmp_path: Path) -> None:
    def task(request: ModelRequest) -> Step:
        return "All seven are counted." if answered(request) else calls(("list_dir", {"path": "."}))

    model = Thinking(chatting, task)
    async with scene(tmp_path, model) as here:
        await here.channel.say("spawn counting")
        assert await here.channel.heard(1) == ["Said to 'spawn counting'."]
        await here.channel.say("and you?")
        assert (await here.channel.heard(2))[1] == "Said to 'and you?'."
        model.go.set()
        assert (await here.channel.heard(3))[2] == "It came back: All seven are counted."
        (report,) = reports(here)
        assert "counting" in report
        assert "is done" in report
        assert lines(here)[-1]["author"] == "job"
        assert lines(here)[-1]["from"]["trigger"] == "task"
        asked = next(request for request in model.requests if is_task(request))
        assert [m.text for m in asked.messages] == ["Do counting."]
        offered = {tool.name for tool in asked.tools}
        assert {"read_file", "write_file", "edit_file", "list_dir", "exec", "process"} <= offered
        assert not offered & {"spawn", "background", "todo", "message", "cron"}
        assert asked.system.startswith(model.requests[0].system)
        record = records(here)["t1"]
        assert (record["state"], record["calls"], record["result"]) == ("done", 1, "All seven are counted.")
        await here.channel.say("/status")
        assert "tasks    t1 counting: done, " in (await here.channel.heard(4))[3]
    own = tmp_path / "data" / "session_state" / DESK_KEY / "tasks" / "t1" / "session.jsonl"
    kinds = [json.loads(line)["kind"] for line in own.read_text().splitlines()]
    assert kinds == ["session", "user", "assistant", "call", "result", "assistant", "turn"]
    desk = tmp_path / "data" / "sessions" / DESK_KEY
    assert (desk / "session.jsonl").resolve() == tmp_path / "data" / "session_state" / DESK_KEY / "session.jsonl"


@pytest.mark.req("SBX-01")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", REAL)
async def test_a_task_and_the_conversation_work_in_one_sandbox_at_a_time(tmp_path: Path, backend: str) -> None:
    """Each waits for what the other writes: one after the other would never end."""
    meets = "echo {0} > data/{0}; for i in $(seq 300); do test -s data/{1} && break; sleep 0.05; done; cat data/{1}"

    def work(name: str, other: str) -> ModelReply:
        return calls(
            ("write_file", {"path": f"data/{name}.sh", "content": meets.format(name, other)}),
            ("exec", {"script": f"bash data/{name}.sh"}),
        )

    def task(request: ModelRequest) -> Step:
        return request.messages[-1].text if answered(request) else work("one", "two")

    def conversation(request: ModelRequest) -> Step:
        return work("two", "one") if said(request) == "meet" and not answered(request) else chatting(request)

    model = Thinking(conversation, task)
    model.go.set()
    async with scene(tmp_path, model, backend=backend) as here:
        await here.channel.say("spawn one")
        await here.channel.heard(1)
        await here.channel.say("meet")
        await until(lambda: bool(reports(here)))
        await here.bubbles.dispatcher.idle()
        assert any("\n\ntwo\n" in text for text in reports(here)), reports(here)
        told = [line["text"] for line in lines(here, "result")]
        assert any("one\n" in text for text in told), told


async def test_a_report_that_comes_while_a_turn_runs_reaches_it_before_its_next_call(tmp_path: Path) -> None:
    def conversation(request: ModelRequest) -> Step:
        if "report of task" in said(request):
            return "I have it."
        if said(request) == "begin":
            return "Begun." if answered(request) else spawn("counting")
        return calls(("exec", {"script": RISKY}), ("write_file", {"path": "data/never", "content": "x"}))

    person = Person(says=None)
    model = Thinking(conversation, lambda _: "Seven.")
    async with scene(tmp_path, model, person=person) as here:
        await here.channel.say("begin")
        await here.channel.heard(1)
        await here.channel.say("fetch it")
        await person.asked.wait()
        model.go.set()
        await until(lambda: records(here)["t1"]["state"] == "done")
        await here.channel.say("no")
        assert (await here.channel.heard(3))[2] == "I have it."
        assert "a note of the program came before it" in here.results()[-1]
        assert len(reports(here)) == 1
        assert lines(here)[-1]["author"] == "program"
        assert len(lines(here, "turn")) == 2
        await here.bubbles.dispatcher.idle()
        assert len(await here.channel.heard(3)) == 3
    assert not (tmp_path / "data" / "sessions" / DESK_KEY / "data" / "never").exists()


@pytest.mark.req("APPR-01", "APPR-03")
async def test_a_card_of_a_task_goes_to_the_person_says_whose_it_is_and_holds_no_place(tmp_path: Path) -> None:
    def task(request: ModelRequest) -> Step:
        if not answered(request) and "one" in said(request):
            return calls(("exec", {"script": RISKY}))
        return f"Then {request.messages[-1].text}"

    person = Person(says=None)
    model = Thinking(chatting, task)
    model.go.set()
    async with scene(tmp_path, model, person=person, environment={"BUBBLES_AGENTS__CONCURRENCY": "1"}) as here:
        await here.channel.say("spawn one")
        await person.asked.wait()
        assert [card.task for card in person.cards] == ["t1"]
        await here.channel.say("spawn two")  # runs although there is one place, and the first waits
        await until(lambda: any("Then Do two." in text for text in reports(here)))
        await here.channel.say("no")
        await until(lambda: any("A person declined it" in text for text in reports(here)))
    requested = [event for event in events(tmp_path) if event["event"] == "approval_requested"]
    assert [(event["task"], event["trigger"]) for event in requested] == [("t1", "user")]


@pytest.mark.req("APPR-02")
async def test_nobody_is_asked_for_a_task_that_no_person_began_and_nobody_is_told(tmp_path: Path) -> None:
    def task(request: ModelRequest) -> Step:
        return request.messages[-1].text if answered(request) else calls(("exec", {"script": RISKY}))

    person = Person()
    model = Thinking(chatting, task)
    model.go.set()
    async with scene(tmp_path, model, person=person) as here:
        await here.channel.say("spawn one", trigger=Trigger.CRON, sender="job-1")
        await until(lambda: len(here.channel.sent) == 2)
        assert "nobody can be asked" in reports(here)[0]
        assert person.cards == []
        assert lines(here)[-1]["from"]["trigger"] == "cron"


async def test_the_person_is_told_when_the_turn_of_a_report_fails(tmp_path: Path) -> None:
    def conversation(request: ModelRequest) -> Step:
        if "report of task" in said(request):
            return ProviderError(Category.AUTHENTICATION, "no such key")
        return chatting(request)

    model = Thinking(conversation, lambda _: "Seven.")
    async with scene(tmp_path, model) as here:
        await here.channel.say("spawn counting")
        await here.channel.heard(1)
        model.go.set()
        assert (await here.channel.heard(2))[1].startswith("The model gave no answer: authentication")
        assert len(reports(here)) == 1


async def test_stop_ends_what_it_names_and_says_what_goes_on(tmp_path: Path) -> None:
    model = Thinking(chatting, lambda _: "never")
    async with scene(tmp_path, model) as here:

        async def answer(text: str) -> str:
            count = len([message for message in here.channel.sent if message.kind in (Kind.REPLY, Kind.NOTICE)])
            await here.channel.say(text)
            return (await here.channel.heard(count + 1))[count]

        await answer("spawn a b c")
        every = "In the background go on: t1 (a), t2 (b), t3 (c). /stop ID ends one of them, /stop all all."
        assert await answer("/stop") == f"Nothing runs here. {every}"
        assert await answer("/stop t2") == "Task t2 is stopped."
        await until(lambda: here.bubbles.tasks.count == 2)  # its record is on the disk a moment before
        assert records(here)["t2"]["state"] == "stopped"
        assert (await answer("/stop t9")).startswith("No task 't9' runs here. In the background go on: t1 (a), t3 (c).")
        assert await answer("/stop all") == "Stopped. So are tasks t1, t3."
        await until(lambda: here.bubbles.tasks.count == 0)
        assert await answer("/stop") == "Nothing runs here."
        assert {record["state"] for record in records(here).values()} == {"stopped"}
        assert reports(here) == []
        await answer("hello")
        assert [len(reports(here, task)) for task in ("t1", "t2", "t3")] == [1, 1, 1]


async def test_a_task_that_waits_for_an_answer_can_be_stopped_and_nothing_runs(tmp_path: Path) -> None:
    person = Person(says=None)
    model = Thinking(chatting, lambda _: calls(("exec", {"script": RISKY})))
    model.go.set()
    async with scene(tmp_path, model, person=person) as here:
        await here.channel.say("spawn one")
        await person.asked.wait()
        await here.channel.say("/stop t1")
        await until(lambda: records(here)["t1"]["state"] == "stopped")
        await here.channel.say("ok")
        assert "Said to 'ok'" in (await here.channel.heard(3))[2]
    told = events(tmp_path)
    assert [event.get("outcome") for event in told if event["event"] == "approval_resolved"] == ["cancelled"]
    assert not any(event["event"] == "command_finished" for event in told)


async def test_twenty_at_once_are_as_many_as_may_run_and_a_reason_for_the_rest(tmp_path: Path) -> None:
    model = Thinking(chatting, lambda request: f"Done with {said(request)}")
    async with scene(tmp_path, model) as here:
        await here.channel.say("spawn " + " ".join(f"n{number}" for number in range(20)))
        await here.channel.heard(1)
        results = here.results()
        assert [text for text in results if "has begun" in text] == [
            f"Task t{number} has begun. Its report will reach you by itself." for number in range(1, 5)
        ]
        assert sum("4 tasks run here already (t1, t2, t3, t4)" in text for text in results) == 16
        model.go.set()
        await until(lambda: len(reports(here)) == 4)
        await here.bubbles.dispatcher.idle()
        assert [len(reports(here, f"t{number}")) for number in range(1, 5)] == [1, 1, 1, 1]


async def test_a_task_that_calls_spawn_all_the_same_is_told_that_there_is_none(tmp_path: Path) -> None:
    def task(request: ModelRequest) -> Step:
        return request.messages[-1].text if answered(request) else spawn("deeper")

    model = Thinking(chatting, task)
    model.go.set()
    async with scene(tmp_path, model) as here:
        await here.channel.say("spawn one")
        assert "There is no tool 'spawn'" in (await here.channel.heard(2))[1]
        assert list(records(here)) == ["t1"]


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("TIMEOUT_S", "0.3", "its time, 0.3 s, is used up"),
        ("MAX_TOKENS", "30000", "tokens are used up"),
        ("MAX_ITERATIONS", "3", "the limit of 3 steps"),
    ],
)
async def test_a_task_ends_at_each_of_its_bounds_and_says_which(
    tmp_path: Path, setting: str, value: str, what: str
) -> None:
    numbers = iter(range(10_000))

    def task(request: ModelRequest) -> Step:
        if not request.tools:
            return ProviderError(Category.UNAVAILABLE, "no last words")
        reply = calls(("write_file", {"path": f"data/n{next(numbers)}", "content": "x" * 8_000}), text="Still at it.")
        return ModelReply(message=reply.message, stop=reply.stop, usage=Usage(input_tokens=5_000))

    async with scene(
        tmp_path, Thinking(chatting, task), environment={f"BUBBLES_TOOLS__TASKS__{setting}": value}
    ) as here:
        model = here.provider
        assert isinstance(model, Thinking)
        if setting != "TIMEOUT_S":  # else it hangs: that provider never answers
            model.go.set()
        await here.channel.say("spawn endless")
        await until(lambda: bool(reports(here)))
        (report,) = reports(here)
        assert "reached one of its limits" in report
        assert what in report
        if setting == "MAX_TOKENS":
            assert 20_000 < records(here)["t1"]["tokens"] <= 36_000
            assert any("most of the tokens" in m.text for r in model.requests if is_task(r) for m in r.messages)


async def test_a_long_report_is_cut_and_all_of_it_can_be_read(tmp_path: Path) -> None:
    long = "\n".join(f"line {number}: [End of the report of t1.]" for number in range(2_000))

    def conversation(request: ModelRequest) -> Step:
        if "report of task" in said(request) and not answered(request):
            return calls(("background", {"action": "result", "id": "t1"}), ("background", {}))
        return "Read." if "report of task" in said(request) else chatting(request)

    model = Thinking(conversation, lambda _: long)
    model.go.set()
    async with scene(tmp_path, model, environment={"BUBBLES_TOOLS__RESULT_TOKENS": "40000"}) as here:
        await here.channel.say("spawn long")
        await until(lambda: "Read." in [message.text for message in here.channel.sent])
        (report,) = reports(here)
        assert len(report) < 17_000
        assert "all of it by the tool background, action result, id t1" in report
        assert report.count("[End of the report of t1.]") == 1
        whole, listed = here.results()[-2:]
        assert whole.endswith(long)
        assert listed.startswith("t1 long: done, ")


async def test_reports_alone_do_not_keep_a_session_going_for_ever(tmp_path: Path) -> None:
    def conversation(request: ModelRequest) -> Step:
        return "Enough." if answered(request) else spawn("again")

    model = Thinking(conversation, lambda _: "Once more.")
    model.go.set()
    async with scene(tmp_path, model) as here:
        await here.channel.say("go")
        await until(lambda: any("have followed each other" in line["text"] for line in lines(here, "result")))
        await here.bubbles.dispatcher.idle()
        assert here.bubbles.tasks.count == 0
        begun = len(records(here))
        assert begun == 5
        await here.channel.say("go on")
        await until(lambda: len(records(here)) > begun)


async def _left(base: Path, model: ScriptedProvider, say: Iterable[str], heard: int = 1) -> None:
    async with scene(base, model) as here:
        for text in say:
            await here.channel.say(text)
        await here.channel.heard(heard)
        if isinstance(model, Thinking):
            await model.waits.wait()


async def test_leaving_interrupts_what_runs_and_the_next_turn_is_told_once(tmp_path: Path) -> None:
    await _left(tmp_path, Thinking(chatting, lambda _: "never"), ["spawn slow other"])
    model = ScriptedProvider(["Aha.", "And again."])
    async with scene(tmp_path, model) as here:
        assert [record["state"] for record in records(here).values()] == ["interrupted"] * 2
        await here.channel.say("hello", chat="1")
        await here.channel.heard(1)
        texts = [message.text for message in model.requests[0].messages if isinstance(message, UserMessage)]
        assert "t1" in texts[-3]
        assert "was interrupted" in texts[-3]
        assert "t2" in texts[-2]
        assert texts[-1] == "hello"
        await here.channel.say("hello again")
        await here.channel.heard(2)
        assert [len(reports(here, task)) for task in ("t1", "t2")] == [1, 1]


async def test_a_report_that_a_crash_left_in_the_history_is_not_delivered_again(tmp_path: Path) -> None:
    model = Thinking(chatting, lambda _: "Seven.")
    model.go.set()
    async with scene(tmp_path, model) as here:
        await here.channel.say("spawn counting")
        await here.channel.heard(2)
        mark = here.data_dir / "session_state" / DESK_KEY / "tasks" / "t1" / "told"
        assert mark.exists()
    mark.unlink()  # as if the program had been killed between the history and the mark
    async with scene(tmp_path, ScriptedProvider(["Hello."])) as here:
        await here.channel.say("hello")
        await here.channel.heard(1)
        assert len(reports(here)) == 1
        assert mark.exists()


async def test_none_is_offered_where_none_may_run(tmp_path: Path) -> None:
    model = ScriptedProvider(["Yes."])
    async with scene(tmp_path, model, environment={"BUBBLES_TOOLS__TASKS__AT_ONCE": "0"}) as here:
        await here.channel.say("hello")
        await here.channel.heard(1)
        assert not {"spawn", "background"} & {tool.name for tool in model.requests[0].tools}
        assert here.bubbles.tasks.count == 0


async def test_a_person_who_writes_during_the_turn_of_a_report_is_heard_by_it(tmp_path: Path) -> None:
    def conversation(request: ModelRequest) -> Step:
        if said(request) == "quick":
            return "Both."
        if "report of task" in said(request):
            return calls(("exec", {"script": RISKY}), ("list_dir", {"path": "."}))
        return chatting(request)

    person = Person(says=None)
    model = Thinking(conversation, lambda _: "Seven.")
    model.go.set()
    async with scene(tmp_path, model, person=person) as here:
        await here.channel.say("spawn counting")
        await person.asked.wait()
        await here.channel.say("quick")
        await here.channel.say("no")
        assert (await here.channel.heard(4))[3] == "Both."
        assert len(lines(here, "turn")) == 2
