"""A turn with a scripted model, real tools box, and a history in memory; and what is valid for a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from bubbles.agent.contract import TurnOutcome
from bubbles.agent.limits import Limits, Model
from bubbles.agent.loop import AgentLoop
from bubbles.bus import Address, Origin
from bubbles.providers.contract import (
    AssistantMessage,
    Category,
    Message,
    ModelReply,
    ModelRequest,
    ProviderError,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from bubbles.providers.scripted import ScriptedProvider, Step
from bubbles.sessions.contract import Author, Unit
from bubbles.sessions.entries import Content, Ended, Replied
from bubbles.sessions.fake import MemoryHistory
from bubbles.sessions.tokens import of_message
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.registry import Toolbox

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")
PROMPT = "You are a test."


@dataclass(slots=True)
class Seen:
    """An observer that keeps everything, in order."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def text(self, piece: str) -> None:
        if self.events and self.events[-1][0] == "text":
            piece = self.events.pop()[1] + piece
        self.events.append(("text", piece))

    def withdrawn(self) -> None:
        self.events.append(("withdrawn", ""))

    def reply_ended(self) -> None:
        self.events.append(("ended", ""))

    def tool(self, call: ToolCall, hint: str) -> None:
        self.events.append(("tool", hint))

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        assert duration_s >= 0
        self.events.append(("result", result.text))

    def notice(self, sentence: str) -> None:
        self.events.append(("notice", sentence))

    def of(self, kind: str) -> list[str]:
        return [what for event, what in self.events if event == kind]


class NoteArgs(Args):
    text: str


@dataclass(slots=True)
class Note:
    """Writes a line down, which is what can be seen of its having run; answers with ``answer``."""

    name: str = "note"
    description: str = "Writes a line down."
    args: type[NoteArgs] = NoteArgs
    answer: Callable[[str], str] = "wrote {}".format
    lines: list[str] = field(default_factory=list)

    def offered(self, origin: Origin) -> bool:
        return True

    def hint(self, args: NoteArgs) -> str:
        return f"{self.name}({args.text[:40]})"

    async def run(self, args: NoteArgs, origin: Origin) -> ToolResult:
        self.lines.append(args.text)
        if args.text == "fail":
            raise ToolError("It did not work.")
        return ToolResult(text=self.answer(args.text))


@dataclass(slots=True)
class Slow(Note):
    """Runs until ``go`` is set."""

    name: str = "slow"
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, args: NoteArgs, origin: Origin) -> ToolResult:
        self.lines.append(args.text)
        self.begun.set()
        await self.go.wait()
        return ToolResult(text="at last")


class NoSpill:
    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        return f"/desk/data/{call_id}.txt"


@dataclass(slots=True)
class Scene:
    """What a test needs of one session."""

    provider: ScriptedProvider
    limits: Limits = field(default_factory=Limits)
    history: MemoryHistory = field(default_factory=MemoryHistory)
    seen: Seen = field(default_factory=Seen)
    note: Note = field(default_factory=Note)
    slow: Slow = field(default_factory=Slow)
    loop: AgentLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = self.new_loop()

    def new_loop(self, *more: Note) -> AgentLoop:
        """As after a restart, perhaps with further tools."""
        return AgentLoop(
            model=Model(provider=self.provider, name="test-model"),
            tools=Toolbox([self.note, self.slow, *more], result_tokens=100_000, spill=NoSpill()),
            limits=self.limits,
            redact=lambda text: text.replace("hunter2", "[redacted]"),
        )

    async def say(
        self,
        text: str = "Do it.",
        *,
        author: Author = Author.PERSON,
        pending: Callable[[], list[UserMessage]] = list,
        prompt: str = PROMPT,
        origin: Origin = HERE,
    ) -> TurnOutcome:
        return await self.loop.run(
            self.history,
            UserMessage(text=text),
            author=author,
            origin=origin,
            prompt=prompt,
            observer=self.seen,
            pending=pending,
        )

    @property
    def requests(self) -> list[ModelRequest]:
        return self.provider.requests

    @property
    def ends(self) -> list[str]:
        return [str(line.end) for line in self.history.contents if isinstance(line, Ended)]

    def kinds(self) -> list[type[Content]]:
        return [type(line) for line in self.history.contents]

    def replies(self) -> list[str]:
        return [line.message.text for line in self.history.contents if isinstance(line, Replied)]


def scene(*script: Step, limits: Limits | None = None) -> Scene:
    return Scene(provider=ScriptedProvider(script), limits=limits or Limits())


def too_long() -> ProviderError:
    return ProviderError(Category.CONTEXT_TOO_LONG, "maximum context length exceeded")


def reply(text: str = "", *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> ModelReply:
    return ModelReply(
        message=AssistantMessage(text=text, tool_calls=calls),
        stop=stop or (Stop.TOOL_CALLS if calls else Stop.END),
        usage=usage or Usage(),
    )


def size(request: ModelRequest) -> int:
    return sum(map(of_message, request.messages))


def texts(messages: Iterable[Message]) -> str:
    return "\n".join(message.text for message in messages)


def fault(messages: Sequence[Message]) -> str | None:
    """Why a provider would refuse these messages, or None (CTX-03)."""
    if not messages or not isinstance(messages[0], UserMessage):
        return "it does not begin with a message of the user"
    due: list[ToolCall] = []
    known: set[str] = set()
    for number, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if not due or message.call_id != due[0].id:
                return f"message {number}: a result of no call, or not in the order of the calls"
            due.pop(0)
            continue
        if due:
            return f"message {number}: calls before it have no result"
        if isinstance(message, AssistantMessage):
            if not message.text.strip() and not message.tool_calls:
                return f"message {number}: an empty reply"
            due = list(message.tool_calls)
            ids = [call.id for call in due]
            if len({*ids}) < len(ids) or known & {*ids}:
                return f"message {number}: the id of a call is used twice"
            known |= {*ids}
    return "the last calls have no result" if due else None


async def talk(history: MemoryHistory, units: Iterable[tuple[str, str, int]], first: int = 1) -> list[Unit]:
    """Grow a history: (``person`` | ``job`` | ``program`` | ``reply`` | ``calls``, text, number of calls)."""
    numbers = count(first)
    for kind, text, calls in units:
        turn = f"t{next(numbers)}"
        if kind in ("person", "job", "program"):
            await history.add_user(UserMessage(text=text), author=Author(kind), origin=HERE, turn=turn)
            continue
        made = tuple(ToolCall(id=f"{turn}_{n}", name="note", arguments='{"text": "x"}') for n in range(calls))
        await history.add_reply(
            AssistantMessage(text=text or "…", tool_calls=made), usage=Usage(), model="m", turn=turn
        )
        for call in tuple(history.open_calls):
            await history.begin_call(call, turn=turn)
            await history.add_result(ToolMessage(call_id=call.id, name=call.name, text=text), turn=turn)
    return list(history.units)
