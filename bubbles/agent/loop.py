"""One turn: the model chooses tools, they run, results go back, until there is a reply (CORE-01).

What happens is on the disk before it counts: a message before the model gets it, a reply before its calls run, an
intent before its call begins, a result before the model sees it (CTX-04). The loop knows no channel and no tool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from bubbles.agent.asking import Asking, Brief, SpecCosts
from bubbles.agent.compaction import Compacted
from bubbles.agent.contract import Arrival, TurnObserver, TurnOutcome
from bubbles.agent.limits import Gauge, Limits, Model
from bubbles.agent.pictures import Pictures
from bubbles.agent.record import Record
from bubbles.agent.repeats import REMARK, Repeats
from bubbles.agent.replies import Kept, kept
from bubbles.agent.turn import Turn
from bubbles.bus import Origin
from bubbles.providers.contract import AssistantMessage, ProviderError, ToolCall, ToolMessage, UserMessage
from bubbles.sessions.contract import Author, History, TurnEnd
from bubbles.tools.registry import Toolbox

Pending = Callable[[], Sequence[UserMessage | Arrival]]
"""Takes what came since the turn began and was not taken before, of the person or not; never blocks."""

CUT_CALL = (
    "This call was not run: your reply was cut by the output limit before its arguments were complete. Take smaller "
    "steps: write a long file in several parts, and say less at a time."
)
CUT_NOTE = "your reply was cut by the output limit before it said anything. Think less, and take smaller steps."
EMPTY_NOTE = "your reply was empty. Go on with the task, or say in words what came of it."
CUT_TWICE = (
    "I have stopped here: my replies were cut by the output limit twice in a row. Smaller steps may help, or a higher "
    "agents.defaults.maxOutputTokens."
)
EMPTY_TWICE = "I have stopped here: the model gave an empty reply twice in a row. Please ask again."
CUT_NOTICE = "The reply was cut by the output limit (agents.defaults.maxOutputTokens)."
ROUND = "the same calls were made again and again with the same results"
TURN_ENDS = "This call was not run: the turn ends here."
LAST_WORDS = (
    "the turn ends here, because {why}. No tool can be called any more. Tell the person in a few sentences what was "
    "done and what is left."
)


class AgentLoop:
    """For turns of any session with one model, several at a time. It keeps only what it learns of how that counts."""

    def __init__(
        self,
        *,
        model: Model,
        tools: Toolbox,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        redact: Callable[[str], str] = str,
    ) -> None:
        """``redact`` takes secrets out of what is logged (SEC-03)."""
        self._model = model
        self._tools = tools
        self._limits = limits
        self._gauge = Gauge(limits.context_tokens)
        self._pictures = Pictures()
        self._costs = SpecCosts()
        self._record = Record(logging.getLogger(__name__), redact)

    async def run(
        self,
        history: History,
        message: UserMessage | None,
        *,
        author: Author,
        origin: Origin,
        prompt: str,
        observer: TurnObserver,
        pending: Pending = list,
        before: Sequence[Arrival] = (),
        ticket: str = "",
    ) -> TurnOutcome:
        """Raises what is neither a provider's failure nor a limit, with the history settled.

        What came ``before`` the message is written first; with it, there may be no message. The ``ticket`` is that of
        the message.

        Cancelled, it settles the history, and the cancellation goes on. Messages that wait when the final reply comes
        stay with ``pending``: they begin the next turn.
        """
        turn = Turn(history=history, origin=origin, observer=observer, model=self._model.name)
        end, text, error = TurnEnd.FAILED, "", None
        try:
            await turn.begin(message, author, before, ticket)
            end, text = await self._steps(turn, self._asking(turn, prompt), pending)
        except ProviderError as failure:
            error = failure
            self._record.failed(turn, failure)
        except asyncio.CancelledError:
            end = TurnEnd.STOPPED
            raise
        finally:
            await turn.close(end)
        return TurnOutcome(end=end, text=text, turn=turn.id, usage=turn.usage, calls=turn.calls, error=error)

    async def compact(
        self, history: History, *, origin: Origin, prompt: str, observer: TurnObserver
    ) -> Compacted | None:
        """By hand, between turns (CTX-01); None if the history cannot be made shorter. Raises ``ProviderError``."""
        turn = Turn(history=history, origin=origin, observer=observer, model=self._model.name)
        await turn.begin(None, Author.PROGRAM)
        return await self._asking(turn, prompt).compact(force=True)

    def _asking(self, turn: Turn, prompt: str) -> Asking:
        brief = Brief(system=prompt, tools=lambda: self._tools.specs(turn.origin), costs=self._costs)
        self._record.prompt(turn, brief.system)
        return Asking(
            turn=turn,
            model=self._model,
            limits=self._limits,
            gauge=self._gauge,
            brief=brief,
            pictures=self._pictures,
        )

    async def _steps(self, turn: Turn, asking: Asking, pending: Pending) -> tuple[TurnEnd, str]:
        repeats, stumbled = Repeats(), False
        for step in range(self._limits.iterations):
            if step and (arrived := pending()):
                await turn.take_in(arrived)
            reply = await asking.ask()
            found = kept(reply)
            if found.message.tool_calls and (arrived := pending()):
                await turn.take_in(arrived, after=turn.keep(found.message, reply.usage))
                continue
            begun = not (stumbled and found.unfinished) and _begins(found, repeats)
            if not found.is_empty:
                await turn.keep(found.message, reply.usage, begin=begun)
            if found.is_empty or found.unfinished:
                if stumbled:
                    return TurnEnd.LIMIT, await self._give_up(turn, found)
                stumbled = True
                if found.is_empty:
                    await turn.note(CUT_NOTE if found.cut else EMPTY_NOTE)
                    continue
            elif not found.message.tool_calls:
                if found.cut:
                    turn.observer.notice(CUT_NOTICE)
                return TurnEnd.DONE, found.message.text
            else:
                stumbled = False
            going_on = await self._calls(turn, found, repeats, pending, begun=begun)
            if turn.silent:
                return TurnEnd.DONE, ""
            if not going_on:
                return TurnEnd.LIMIT, await self._explained(turn, asking, ROUND)
        why = f"the limit of {self._limits.iterations} steps in one turn is reached"
        return TurnEnd.LIMIT, await self._explained(turn, asking, why)

    async def _calls(self, turn: Turn, found: Kept, repeats: Repeats, pending: Pending, *, begun: bool) -> bool:
        """Run them one after another, until the person writes something. False: the model goes round in circles.

        ``begun``: the first one has begun.
        """
        for number, call in enumerate(tuple(turn.history.open_calls)):
            if turn.silent:
                await turn.answer_open(TURN_ENDS)
                return True
            if begun and number == 0:
                await self._run(turn, call, repeats)
                continue
            if arrived := pending():
                await turn.take_in(arrived)
                return True
            if number in found.unfinished:
                await turn.answer(call, CUT_CALL)
            elif repeated := repeats.foreseen(call):
                await turn.answer(call, REMARK)
                if repeated > 1:
                    await turn.answer_open(TURN_ENDS)
                    return False
            else:
                await turn.history.begin_call(call, turn=turn.id)
                await self._run(turn, call, repeats)
        return True

    async def _run(self, turn: Turn, call: ToolCall, repeats: Repeats) -> None:
        """The intent is on the disk already."""
        turn.running = call.id
        hint = self._tools.hint(call)
        self._record.begins(turn, call, hint)
        turn.observer.tool(call, hint)
        began = time.monotonic()
        finished = await self._tools.run(call, turn.origin)
        duration_s = time.monotonic() - began
        result = finished.result
        turn.calls += 1
        turn.silent = result.silent
        turn.last_tools.append(call.name)
        repeats.ran(call, result, finished.full_text)
        told = ToolMessage(
            call_id=call.id, name=call.name, text=result.text, is_error=result.is_error, images=result.images
        )
        await turn.history.add_result(told, turn=turn.id, full_text=finished.full_text)
        turn.running = None
        self._record.ended(turn, call, result, duration_s)
        turn.observer.result(call, result, duration_s)

    async def _give_up(self, turn: Turn, found: Kept) -> str:
        for number, call in enumerate(tuple(turn.history.open_calls)):
            await turn.answer(call, CUT_CALL if number in found.unfinished else TURN_ENDS)
        return await turn.say(CUT_TWICE if found.cut else EMPTY_TWICE)

    async def _explained(self, turn: Turn, asking: Asking, why: str) -> str:
        """What was done and what is left, in the model's words if it has any (CORE-02)."""
        await turn.note(LAST_WORDS.format(why=why))
        try:
            reply = await asking.ask(tools=False)
        except ProviderError as failure:
            self._record.failed(turn, failure)
        else:
            if text := reply.message.text.strip():
                await turn.keep(AssistantMessage(text=text), reply.usage)
                return text
        tools = f", the last of them {', '.join(turn.last_tools)}" if turn.last_tools else ""
        return await turn.say(
            f"I have stopped here, because {why}. {turn.calls} calls of tools were made{tools}. Write to me to go on."
        )


def _begins(found: Kept, repeats: Repeats) -> bool:
    """Whether the first call of a reply is run, and not only answered."""
    calls = found.message.tool_calls
    return bool(calls) and 0 not in found.unfinished and not repeats.only_repeats(calls[0])
