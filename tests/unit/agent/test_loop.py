"""A turn: what happens in which order, and what is left in the history however it ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bubbles.agent.limits import Limits
from bubbles.agent.loop import CUT_CALL, CUT_NOTICE, CUT_TWICE, EMPTY_TWICE, TURN_ENDS
from bubbles.agent.replies import MOST_CALLS
from bubbles.agent.turn import FAILED, NEW_MESSAGE, STOPPED
from bubbles.bus import Origin
from bubbles.providers.contract import (
    AssistantMessage,
    Category,
    Message,
    ModelRequest,
    ProviderError,
    Stop,
    TextSink,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from bubbles.sessions.contract import Author, SessionDamagedError, TurnEnd
from bubbles.sessions.entries import Began, Ended, Replied, Resulted, Said
from bubbles.sessions.fake import MemoryHistory
from tests.unit.agent.scene import HERE, PROMPT, Scene, fault, reply, scene, texts


def note(text: str, tool: str = "note") -> tuple[str, dict[str, str]]:
    return tool, {"text": text}


def results(at: Scene) -> list[ToolMessage]:
    return [message for message in at.history.messages if isinstance(message, ToolMessage)]


class Waiting:
    """Messages that arrive while the turn runs: ``arrive`` says after how many questions of the loop."""

    def __init__(self, *texts: str, after: int = 0) -> None:
        self.left = [UserMessage(text=text) for text in texts]
        self.after = after
        self.asked = 0

    def __call__(self) -> list[UserMessage]:
        self.asked += 1
        if self.asked <= self.after:
            return []
        taken, self.left = self.left, []
        return taken


@pytest.mark.req("CORE-01", "CORE-04")
async def test_tools_run_one_after_another_until_there_is_a_reply() -> None:
    at = scene(calls(note("one"), note("two"), text="First I write."), "All is written.")
    outcome = await at.say("Write one and two.")
    assert (outcome.end, outcome.text, outcome.calls, outcome.error) == (TurnEnd.DONE, "All is written.", 2, None)
    assert at.note.lines == ["one", "two"]
    assert at.kinds() == [Said, Replied, Began, Resulted, Began, Resulted, Replied, Ended]
    assert at.seen.events == [
        ("text", "First I write."),
        ("ended", ""),
        ("tool", "note(one)"),
        ("result", "wrote one"),
        ("tool", "note(two)"),
        ("result", "wrote two"),
        ("text", "All is written."),
        ("ended", ""),
    ]
    first, second = at.requests
    assert (first.system, texts(first.messages)) == (PROMPT, "Write one and two.")
    assert [spec.name for spec in first.tools] == ["note", "slow"]
    assert second.messages[0] is first.messages[0], "a message is serialised once"
    assert fault(second.messages) is None


@pytest.mark.req("CTX-04")
async def test_every_step_is_in_the_history_before_it_counts() -> None:
    at = scene()
    found: list[list[type]] = []

    def asked(request: ModelRequest) -> Step:
        found.append(list(at.kinds()))
        return calls(note("one")) if len(found) == 1 else "Done."

    def ran(text: str) -> str:
        found.append(list(at.kinds()))
        return "wrote it"

    at.note.answer = ran
    at.provider = ScriptedProvider([asked, asked])
    at.loop = at.new_loop()
    await at.say()
    assert found == [[Said], [Said, Replied, Began], [Said, Replied, Began, Resulted]]


async def test_a_provider_that_does_not_stream_is_shown_all_the_same() -> None:
    at = scene("Hello there.")
    inner = at.provider

    class Silent(ScriptedProvider):
        async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None):  # type: ignore[no-untyped-def]
            return await inner.complete(request)

    at.provider = Silent()
    at.loop = at.new_loop()
    assert (await at.say()).text == "Hello there."
    assert at.seen.events == [("text", "Hello there."), ("ended", "")]


# -- Messages that come meanwhile


@pytest.mark.req("CORE-06")
async def test_a_message_that_comes_meanwhile_is_put_before_the_next_call_b060() -> None:
    at = scene(calls(note("one"), note("two"), note("three")), "I dropped two and three.")
    outcome = await at.say(pending=Waiting("Stop that.", "And say why.", after=1))
    assert outcome.text == "I dropped two and three."
    assert at.note.lines == ["one"]
    assert [message.text for message in results(at)] == ["wrote one", NEW_MESSAGE, NEW_MESSAGE]
    last = at.requests[-1].messages
    assert [message.text for message in last[-2:]] == ["Stop that.", "And say why."], "each is a message by itself"
    assert fault(last) is None
    assert sum(isinstance(line, Said) and line.author is Author.PERSON for line in at.history.contents) == 3


@pytest.mark.req("CORE-06")
async def test_a_message_that_comes_with_the_final_reply_is_left_for_the_next_turn() -> None:
    waiting = Waiting("And this?")
    at = scene("Done.")
    assert (await at.say(pending=waiting)).text == "Done."
    assert len(waiting.left) == 1
    assert texts(at.history.messages) == "Do it.\nDone."


async def test_a_message_that_comes_with_the_last_call_is_seen_by_the_next_request() -> None:
    at = scene(calls(note("one")), "Both are answered.")
    await at.say(pending=Waiting("And this?", after=1))
    assert [message.text for message in at.requests[-1].messages[-2:]] == ["wrote one", "And this?"]


@pytest.mark.parametrize("slow", [AssistantMessage, UserMessage])
async def test_a_message_is_not_lost_when_the_turn_is_stopped_while_it_is_taken_in(slow: type[Message]) -> None:
    """From when it is taken: the reply that came before it is still to be written then."""
    began = asyncio.Event()

    class SlowDisk(MemoryHistory):
        async def add_user(
            self, message: UserMessage, *, author: Author, origin: Origin, turn: str, ticket: str = ""
        ) -> None:
            await self.writes(message)
            await super().add_user(message, author=author, origin=origin, turn=turn, ticket=ticket)

        async def add_reply(
            self, message: AssistantMessage, *, usage: Usage, model: str, turn: str, begin: bool = False
        ) -> None:
            await self.writes(message)
            await super().add_reply(message, usage=usage, model=model, turn=turn, begin=begin)

        async def writes(self, message: Message) -> None:
            if isinstance(message, slow) and message.text in ("", "New."):
                began.set()
                await asyncio.sleep(0)

    at = scene(calls(note("one")), "unseen")
    at.history = SlowDisk()
    turn = asyncio.create_task(at.say(pending=Waiting("New.", "Newer.")))
    await began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [message.text for message in at.history.messages[-2:]] == ["New.", "Newer."]
    assert at.ends == ["stopped"]


# -- How a turn ends otherwise


async def test_a_stopped_turn_says_which_call_may_have_had_an_effect() -> None:
    at = scene(calls(note("one"), note("two", "slow"), note("three")))
    turn = asyncio.create_task(at.say())
    await at.slow.begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [message.text for message in results(at)] == [
        "wrote one",
        STOPPED,
        "This call was not run: the turn was stopped before it.",
    ]
    assert at.ends == ["stopped"]
    assert fault(at.history.messages) is None


async def test_a_turn_that_is_stopped_while_the_model_thinks_leaves_a_valid_history() -> None:
    at = scene()
    thinking = asyncio.Event()

    class Thinker(ScriptedProvider):
        async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None):  # type: ignore[no-untyped-def]
            thinking.set()
            await asyncio.Event().wait()

    at.provider = Thinker()
    at.loop = at.new_loop()
    turn = asyncio.create_task(at.say())
    await thinking.wait()
    turn.cancel()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert at.kinds() == [Said, Ended]
    assert at.ends == ["stopped"]


@pytest.mark.req("PROV-07")
async def test_a_failure_of_the_provider_is_an_outcome_and_never_in_the_history() -> None:
    error = ProviderError(Category.UNAVAILABLE, "SECRET DETAIL 503")
    at = scene(calls(note("one")), error)
    outcome = await at.say()
    assert (outcome.end, outcome.text, outcome.error, outcome.calls) == (TurnEnd.FAILED, "", error, 1)
    assert at.ends == ["failed"]
    assert "SECRET" not in repr(at.history.contents)
    assert fault(at.history.messages) is None


async def test_text_of_a_reply_that_fails_is_withdrawn_b091() -> None:
    at = scene()

    class Breaking(ScriptedProvider):
        async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None):  # type: ignore[no-untyped-def]
            assert on_text is not None
            on_text.text("Hel")
            raise ProviderError(Category.UNAVAILABLE, "broke off")

    at.provider = Breaking()
    at.loop = at.new_loop()
    assert (await at.say()).end is TurnEnd.FAILED
    assert at.seen.events == [("text", "Hel"), ("withdrawn", "")]


async def test_a_reply_that_a_content_filter_ended_is_discarded() -> None:
    at = scene(reply("half of a", stop=Stop.CONTENT_FILTER))
    outcome = await at.say()
    assert outcome.end is TurnEnd.FAILED
    assert outcome.error is not None
    assert (outcome.error.category, outcome.error.retryable) == (Category.REJECTED, False)
    assert at.replies() == []
    assert at.seen.events[-1] == ("withdrawn", "")


async def test_what_breaks_otherwise_is_raised_and_the_history_is_settled() -> None:
    class FullDisk(MemoryHistory):
        full = True

        async def add_result(self, message: ToolMessage, *, turn: str, full_text: str | None = None) -> None:
            if self.full:
                self.full = False
                raise SessionDamagedError("The disk is full.")
            await super().add_result(message, turn=turn, full_text=full_text)

    at = scene(calls(note("one"), note("two")))
    at.history = FullDisk()
    with pytest.raises(SessionDamagedError, match="The disk is full"):
        await at.say()
    assert at.ends == ["failed"]
    assert [message.text for message in results(at)] == [FAILED, "This call was not run: the turn broke off before it."]
    assert fault(at.history.messages) is None


@pytest.mark.req("PROV-10")
async def test_arguments_that_are_no_json_are_an_error_that_the_model_sees() -> None:
    bad = ToolCall(id="c", name="note", arguments='{"text": ')
    at = scene(reply("", bad), "I wrote it properly.")
    outcome = await at.say()
    assert outcome.end is TurnEnd.DONE
    (result,) = results(at)
    assert result.is_error
    assert "JSON" in result.text
    assert at.note.lines == []


@pytest.mark.req("CTX-03")
async def test_blanks_before_a_call_do_not_go_back_to_the_provider() -> None:
    """B093: a vendor that refuses such text would refuse all that the session sends from then on."""
    at = scene(calls(note("a"), text="\n\n "), "Done.")
    assert (await at.say()).text == "Done."
    (said,) = (message for message in at.requests[-1].messages if isinstance(message, AssistantMessage))
    assert (said.text, len(said.tool_calls)) == ("", 1)


async def test_a_name_that_no_provider_takes_back_is_told_to_be_no_tool() -> None:
    at = scene(
        reply("", ToolCall(id="c", name="no such.tool\n", arguments="{}"), ToolCall(id="d", name="", arguments="")),
        "Well.",
    )
    await at.say()
    assert [message.is_error for message in results(at)] == [True, True]
    assert [message.name for message in results(at)] == ["no_such_tool_", "unnamed"]


async def test_a_flood_of_calls_in_one_reply_is_bounded() -> None:
    at = scene(calls(*(note(str(number)) for number in range(3_000))), "Enough.")
    outcome = await at.say()
    assert (outcome.end, outcome.calls) == (TurnEnd.DONE, MOST_CALLS)
    assert fault(at.history.messages) is None


# -- Limits


@pytest.mark.req("CORE-02")
async def test_the_cap_on_steps_ends_the_turn_with_the_models_explanation() -> None:
    script = [calls(note(str(number))) for number in range(3)]
    at = scene(*script, "Three lines are written; the rest is left.", limits=Limits(iterations=3))
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.LIMIT, "Three lines are written; the rest is left.")
    assert at.requests[-1].tools == ()
    assert "limit of 3 steps" in at.requests[-1].messages[-1].text
    assert at.seen.events[-2:] == [("text", outcome.text), ("ended", "")]
    assert at.ends == ["limit"]
    assert fault(at.history.messages) is None


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize(
    "last", [ProviderError(Category.UNAVAILABLE, "no"), calls(note("more")), "  "], ids=["fails", "calls", "is empty"]
)
async def test_the_program_explains_if_the_model_does_not(last: Step) -> None:
    at = scene(calls(note("a")), calls(note("b")), last, limits=Limits(iterations=2))
    outcome = await at.say()
    assert outcome.end is TurnEnd.LIMIT
    assert outcome.text == (
        "I have stopped here, because the limit of 2 steps in one turn is reached. 2 calls of tools were made, "
        "the last of them note, note. Write to me to go on."
    )
    assert at.note.lines == ["a", "b"]
    assert at.replies()[-1] == outcome.text
    assert at.seen.events[-2:] == [("text", outcome.text), ("ended", "")]
    assert fault(at.history.messages) is None


@pytest.mark.parametrize("lines", ["AAAA", "ABABAB", "ABCABCAB", "AXYABABAB"])
async def test_a_model_that_goes_round_in_circles_is_told_and_then_stopped(lines: str) -> None:
    at = scene(*(calls(note(line)) for line in lines), "I went round in circles.")
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.LIMIT, "I went round in circles.")
    assert at.note.lines == list(lines[:-2])
    assert "was not run" in results(at)[-2].text
    assert at.requests[-1].tools == ()
    assert fault(at.history.messages) is None


async def test_a_model_that_heeds_the_remark_goes_on() -> None:
    at = scene(*(calls(note(line)) for line in "AAABAA"), "Done.")
    assert (await at.say()).end is TurnEnd.DONE
    assert "".join(at.note.lines) == "AABAA"


async def test_the_order_of_arguments_is_no_difference_and_another_result_is_one() -> None:
    same = [
        ToolCall(id=f"c{n}", name="slow", arguments=text) for n, text in enumerate(['{"text":"a"}', '{"text": "a"}'])
    ]
    at = scene(reply("", *same), calls(note("a", "slow")), *(calls(note("poll")) for _ in range(5)), "Done.")
    at.slow.go.set()
    seen = iter(range(9))
    at.note.answer = lambda text: f"{next(seen)} s so far"
    assert (await at.say()).end is TurnEnd.DONE
    assert len(at.slow.lines) == 2, "the third was the same"
    assert len(at.note.lines) == 5, "each said something new"


@pytest.mark.req("CORE-01")
async def test_calls_cost_the_same_at_the_end_of_a_long_turn() -> None:
    """Counted, not timed: what the loop reads of the history, and estimates, per call."""
    at = scene(*(calls(note(f"line {number}")) for number in range(150)), "Done.")
    looked: list[int] = []
    units = type(at.history).units

    class Counting(type(at.history)):  # type: ignore[misc]
        @property
        def units(self):  # type: ignore[no-untyped-def]
            looked.append(len(self.contents))
            return units.fget(self)  # type: ignore[attr-defined]

    at.history = Counting()
    assert (await at.say()).calls == 150
    assert len(looked) <= 2, "once a turn"


# -- Replies that are cut, or empty


async def test_a_call_cut_by_the_output_limit_gets_one_other_step_and_then_a_clear_end_b062() -> None:
    cut = ToolCall(id="c", name="note", arguments='{"text": "a very lo')
    at = scene(reply("", cut, stop=Stop.LENGTH), reply("", cut, stop=Stop.LENGTH), "never asked for")
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.LIMIT, CUT_TWICE)
    assert len(at.requests) == 2
    assert at.requests[1].messages[-1].text == CUT_CALL, "the second request is not the first again"
    assert at.note.lines == []
    kept = [line.message for line in at.history.contents if isinstance(line, Replied)]
    assert [call.arguments for message in kept for call in message.tool_calls] == ["{}", "{}"]
    assert fault(at.history.messages) is None


async def test_calls_that_were_complete_before_the_cut_are_run() -> None:
    whole = ToolCall(id="a", name="note", arguments='{"text": "whole"}')
    cut = ToolCall(id="b", name="note", arguments="")
    at = scene(reply("Two lines:", whole, cut, stop=Stop.LENGTH), "In smaller steps.")
    assert (await at.say()).end is TurnEnd.DONE
    assert at.note.lines == ["whole"]
    assert [message.text for message in results(at)] == ["wrote whole", CUT_CALL]


async def test_a_second_cut_runs_nothing_and_says_of_each_call_why() -> None:
    whole = ToolCall(id="a", name="note", arguments='{"text": "whole"}')
    cut = ToolCall(id="b", name="note", arguments="")
    at = scene(reply("", cut, stop=Stop.LENGTH), reply("", whole, cut, stop=Stop.LENGTH), "never asked for")
    assert (await at.say()).text == CUT_TWICE
    assert at.note.lines == []
    assert [message.text for message in results(at)] == [CUT_CALL, TURN_ENDS, CUT_CALL]
    assert not [line for line in at.history.contents if isinstance(line, Began)]


async def test_text_cut_by_the_output_limit_reaches_the_person_with_a_remark() -> None:
    at = scene(reply("A long story that", stop=Stop.LENGTH), "never asked for")
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.DONE, "A long story that")
    assert at.seen.of("notice") == [CUT_NOTICE]
    assert len(at.requests) == 1


@pytest.mark.parametrize(("stop", "told"), [(Stop.END, EMPTY_TWICE), (Stop.LENGTH, CUT_TWICE)])
async def test_an_empty_reply_is_asked_about_once(stop: Stop, told: str) -> None:
    at = scene(reply(" ", stop=stop), reply("", stop=stop), "never asked for")
    outcome = await at.say()
    assert (outcome.end, outcome.text) == (TurnEnd.LIMIT, told)
    assert len(at.requests) == 2
    assert at.requests[1].messages[-1].text.startswith("[Note of the program")
    assert fault(at.history.messages) is None
    assert (await scene(reply(""), "Here it is.").say()).text == "Here it is."


# -- The log


@pytest.mark.req("CORE-08", "SEC-03")
async def test_the_log_has_prompt_calls_and_results_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bubbles.agent.loop")
    at = scene(calls(note("key hunter2\nline")), "Done.")
    await at.say(prompt="Whole prompt.\nhunter2")
    said = [record.getMessage() for record in caplog.records if record.name == "bubbles.agent.loop"]
    assert "hunter2" not in "".join(said)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "INFO", "DEBUG"]
    assert said[0].endswith("Whole prompt.\n[redacted]")
    assert "key [redacted]" in said[1]
    assert all("\n" not in line for line in said[1:3])


async def test_without_a_message_the_turn_goes_on_from_the_history() -> None:
    at = scene("Gone on.")
    await at.history.add_user(UserMessage(text="Earlier."), author=Author.PERSON, origin=HERE, turn="t0")
    outcome = await at.loop.run(
        at.history, None, author=Author.PERSON, origin=HERE, prompt=PROMPT, observer=at.seen, pending=list
    )
    assert outcome.text == "Gone on."
