"""How a turn is shown, and what the conversation says around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from bubbles.agent.contract import TurnOutcome
from bubbles.bus import Address, Kind, Origin, OutboundMessage
from bubbles.cli.chat.asking import ConversationApprover
from bubbles.cli.chat.contract import Question
from bubbles.cli.chat.conversation import EMPTY, NO_ANSWER, Conversation
from bubbles.cli.chat.oneshot import QuietView
from bubbles.cli.chat.options import Options
from bubbles.cli.chat.screen import Screen, colours
from bubbles.cli.chat.view import WITHDRAWN, TurnView
from bubbles.controller.approvals.contract import ApprovalCard, Outcome
from bubbles.providers.contract import Category, ProviderError, ToolCall
from bubbles.sessions.contract import TurnEnd
from bubbles.tools.contract import ToolResult

CALL = ToolCall(id="1", name="list_dir", arguments="{}")
CARD = ApprovalCard(
    id="abcd", command="git push\x1b[2J", segment="", reason="No rule.", directory="/", sandbox="local", network="full"
)
HERE = Origin(session_key="s", address=Address(channel="cli", chat_id="s"), sender="me")


@dataclass(slots=True)
class Sheet:
    """A terminal in memory. ``typed`` is what comes after the question was shown."""

    written: list[str] = field(default_factory=list)
    typed: list[str | None] = field(default_factory=list)
    columns: int = 80
    alive: str = ""
    encoding: str = "utf-8"

    def write(self, text: str) -> None:
        self.written.append(text)

    def live(self, text: str) -> None:
        self.alive = text

    def ready(self) -> None: ...

    def size(self) -> tuple[int, int]:
        return self.columns, 24

    async def line(self) -> str | None:
        return None

    async def answer(self, prompt: str) -> str | None:
        self.written.append(prompt)
        if not self.typed:
            await asyncio.Event().wait()
        return self.typed.pop(0)

    @asynccontextmanager
    async def asking(self, text: str) -> AsyncIterator[Question]:
        self.write(text)
        yield self

    @property
    def text(self) -> str:
        return "".join(self.written)


def screen(sheet: Sheet) -> Screen:
    return Screen(out=sheet.write, aside=sheet.write, coloured=False, live=sheet.live, columns=lambda: sheet.columns)


@pytest.mark.req("CORE-04")
def test_blocks_are_shown_when_they_are_finished_and_the_rest_is_live() -> None:
    sheet = Sheet()
    view = TurnView(screen(sheet))
    for piece in ("One.", "\n\nTw", "o"):
        view.text(piece)
    assert (sheet.text, sheet.alive) == ("One.\n\n", "Two")
    view.reply_ended()
    view.tool(CALL, 'list_dir(".")')
    view.result(CALL, ToolResult(text="x" * 2000), 0.26)
    view.result(CALL, ToolResult(text="There is no\nfile", is_error=True), 0)
    assert sheet.alive == ""
    assert sheet.text.endswith('Two\n\n· list_dir(".")\n  ok, 2.0 kB, 0.3 s\n  error: There is no, 0.0 s\n')


def test_why_a_call_failed_is_shown_up_to_a_limit_however_narrow_the_terminal() -> None:
    sheet = Sheet(columns=40)
    screen(sheet).result("why " * 70 + "end\nmore", is_error=True, duration_s=0)
    screen(sheet).result("x" * 10_000, is_error=True, duration_s=0)
    first, second = sheet.text.splitlines()
    assert first.endswith("why end, 0.0 s")
    assert second == f"  error: {'x' * 299}…, 0.0 s"


def test_a_terminal_gets_its_sentences_broken_between_words_and_nothing_else() -> None:
    sheet = Sheet(columns=30)
    at_terminal = replace(screen(sheet), folds=True)
    at_terminal.notice("The model needs a key, and none is set at all.")
    at_terminal.result("There is no such file in the project.", is_error=True, duration_s=0)
    at_terminal.remark("Line one of a prompt, which is long.\nLine two.")
    assert sheet.text.splitlines() == [
        "The model needs a key, and",
        "none is set at all.",
        "  error: There is no such",
        "  file in the project, 0.0 s",
        "Line one of a prompt, which is long.",
        "Line two.",
    ]


def test_what_was_shown_of_a_reply_that_broke_off_is_marked_b091() -> None:
    sheet = Sheet()
    view = TurnView(screen(sheet))
    view.text("Unfinished")
    view.withdrawn()
    assert (sheet.text, sheet.alive) == ("", "")
    view.text("One.\n\nTwo")
    view.withdrawn()
    view.text("Again.")
    view.reply_ended()
    assert sheet.text == f"One.\n\n{WITHDRAWN}\nAgain.\n\n"


def test_a_pipe_gets_nothing_that_can_be_withdrawn_and_its_last_word_elsewhere_b091() -> None:
    sheet = Sheet()
    view = QuietView(screen(sheet), [])
    view.text("One.\n\nTwo")
    view.withdrawn()
    view.text("Let me look.")
    view.reply_ended()
    assert sheet.text == ""
    view.tool(CALL, "list_dir()")
    view.text("The answer.")
    view.reply_ended()
    assert sheet.text == "Let me look.\n· list_dir()\n"


@pytest.mark.parametrize(
    ("env", "terminal", "coloured"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
    ],
)
def test_colours_are_for_terminals_that_have_them(env: dict[str, str], terminal: bool, coloured: bool) -> None:
    assert bool(colours(env, terminal=terminal)) is coloured


def talk(sheet: Sheet) -> Conversation:
    conversation = Conversation(Options(session="s"))
    conversation.attach(sheet, coloured=False)
    return conversation


def message(kind: Kind, text: str = "", session: str = "s") -> OutboundMessage:
    return OutboundMessage(address=Address(channel="cli", chat_id=session), text=text, kind=kind)


def outcome(end: TurnEnd, text: str = "", error: ProviderError | None = None) -> TurnOutcome:
    return TurnOutcome(end=end, text=text, turn="t", error=error)


@pytest.mark.req("ERR-03", "ERR-04")
@pytest.mark.parametrize(
    ("came", "notice", "said"),
    [
        (outcome(TurnEnd.FAILED, error=ProviderError(Category.UNAVAILABLE, "secret")), "", f"{NO_ANSWER}\n"),
        (outcome(TurnEnd.FAILED, error=ProviderError(Category.UNAVAILABLE, "secret")), "No.", "No.\n"),
        (ValueError("secret"), "", f"{NO_ANSWER}\n"),
        (outcome(TurnEnd.DONE), "", f"{EMPTY}\n"),
        (outcome(TurnEnd.DONE, "text"), "", ""),
        (outcome(TurnEnd.LIMIT, "That is left."), "That is left.", ""),
    ],
)
async def test_a_turn_never_ends_without_a_word_and_never_with_the_same_twice(
    came: TurnOutcome | Exception, notice: str, said: str
) -> None:
    sheet = Sheet()
    conversation = talk(sheet)
    view = conversation.observer_for(Address(channel="cli", chat_id="s"))
    assert isinstance(view, TurnView)
    view.ended(came)
    if notice:
        await conversation.send(message(Kind.NOTICE, notice))
    await conversation.send(message(Kind.END))
    assert sheet.text == said


async def test_what_another_session_says_is_under_its_name() -> None:
    sheet = Sheet()
    conversation = talk(sheet)
    await conversation.send(message(Kind.NOTICE, "there", "_41lpha"))
    conversation.observer_for(Address(channel="cli", chat_id="_41lpha")).text("growing")
    await conversation.send(message(Kind.NOTICE, "here"))
    assert sheet.text == "[Alpha]\nthere\n[s]\nhere\n"
    assert sheet.alive == ""


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["y"], Outcome.APPROVED),
        (["what?", " OK. "], Outcome.APPROVED),
        (["/approve abcd"], Outcome.APPROVED),
        (["/approve zzzz", "n"], Outcome.DENIED),
        (["拒绝"], Outcome.DENIED),
        ([None], Outcome.DENIED),
        ([""] * 5, Outcome.UNCLEAR),
    ],
)
async def test_only_a_clear_yes_runs_a_command(typed: list[str | None], expected: Outcome) -> None:
    sheet = Sheet(typed=typed)
    answer = await ConversationApprover(sheet).show(CARD, HERE)
    assert answer is not None
    assert answer.outcome is expected
    assert "git push⟨\\x1b⟩[2J" in sheet.text
    assert sheet.typed == []


@pytest.mark.req("APPR-02")
async def test_a_card_that_cannot_be_read_is_declined_and_one_that_is_closed_says_so() -> None:
    narrow = await ConversationApprover(Sheet(columns=19, typed=["y"])).show(CARD, HERE)
    assert narrow is not None
    assert narrow.outcome is Outcome.NOT_SHOWN
    sheet = Sheet()
    approver = ConversationApprover(sheet)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await approver.show(CARD, HERE)
    await approver.close(CARD, narrow.__class__(outcome=Outcome.TIMED_OUT, told="."))
    assert "[abcd] nobody answered in time" in sheet.text
