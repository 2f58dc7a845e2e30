"""One request to the model after another, each of a length that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bubbles.agent.compaction import Bounds, Compacted, compact, needs
from bubbles.agent.contract import TurnObserver
from bubbles.agent.limits import Gauge, Limits, Model
from bubbles.agent.pictures import Pictures
from bubbles.agent.shorten import Fitted, Shortener
from bubbles.agent.turn import Turn
from bubbles.providers.contract import Category, Message, ModelReply, ModelRequest, ProviderError, Stop, ToolSpec
from bubbles.sessions.tokens import estimate, of_message

MAX_SETS = 16
SMALLER = 0.9
"""What a request that was refused as too long must come down to, at most, before it is sent again (B094)."""


Tools = Callable[[], tuple[ToolSpec, ...]]
"""Those that there are now; the same tuple while nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What comes before the messages, in every request of a turn. Tools may come and go between two requests."""

    system: str
    tools: Tools
    costs: SpecCosts


class SpecCosts:
    """Estimated tokens of sets of tools: the few that are in use are counted once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[ToolSpec, ...], int]] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> int:
        held = self._known.pop(id(tools), None) or (tools, sum(map(_cost, tools)))
        self._known[id(tools)] = held
        while len(self._known) > MAX_SETS:
            del self._known[next(iter(self._known))]
        return held[1]


def _cost(tool: ToolSpec) -> int:
    return estimate(f"{tool.name}{tool.description}{json.dumps(tool.parameters, default=dict)}")


@dataclass(slots=True, kw_only=True)
class Asking:
    """The requests of one turn."""

    turn: Turn
    model: Model
    limits: Limits
    gauge: Gauge
    brief: Brief
    pictures: Pictures
    _tools: tuple[ToolSpec, ...] = field(init=False)
    _brief_tokens: int = field(init=False)
    _shortener: Shortener = field(default_factory=Shortener, init=False)
    _told: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        """At the tools that there are now."""
        self._tools = self.brief.tools()
        self._brief_tokens = estimate(self.brief.system) + self.brief.costs.of(self._tools)

    async def ask(self, *, tools: bool = True) -> ModelReply:
        """The model's next reply to the history as it is. Raises ``ProviderError``.

        A request that is too long for the model is sent once more, shorter (PROV-06); one with pictures that is
        refused, without them.
        """
        self._look()
        room = self.gauge.room(self._brief_tokens)
        if needs(self.turn.history, room):
            await self._compact(self.limits.reserve_tokens, force=False)
        fitted = self._fitted()
        try:
            return await self._send(fitted, tools=tools)
        except ProviderError as error:
            if error.category is Category.REJECTED and (seen := self.pictures.refuse(self.turn.history.messages)):
                return await self._send_without(seen, tools=tools)
            if error.category is not Category.CONTEXT_TOO_LONG:
                raise
            await self._compact(min(self.limits.reserve_tokens, fitted.tokens // 8), force=True)
            shorter = self._fitted()
            if shorter.tokens > fitted.tokens * SMALLER:
                raise
        return await self._send(shorter, tools=tools)

    async def compact(self, *, force: bool) -> Compacted | None:
        """Between turns. Nothing is given up for it."""
        return await self._compact(self.limits.reserve_tokens, force=force, may_drop=False)

    async def _compact(self, keep: int, *, force: bool, may_drop: bool = True) -> Compacted | None:
        turn = self.turn
        room = self.gauge.room(self._brief_tokens)
        bounds = Bounds(room=room, keep=keep, turn=turn.id, since=turn.since, may_drop=may_drop)
        done = await compact(turn.history, self.model, bounds, turn.observer, force=force)
        if done is not None:
            turn.spend(done.usage)
        return done

    def _fitted(self) -> Fitted:
        history = self.turn.history
        messages, tokens = self.pictures.taken(history.messages), history.tokens
        if messages is not history.messages:
            tokens = sum(map(of_message, messages))
        fitted = self._shortener.fit(messages, tokens, self.gauge.room(self._brief_tokens))
        if fitted.shortened and not self._told:
            self._told = True
            self.turn.observer.notice("What was too long for the model reached it without its middle.")
        return fitted

    async def _send_without(self, pictures: Sequence[Message], *, tools: bool) -> ModelReply:
        """``pictures``: the messages that have lost them for this."""
        try:
            reply = await self._send(self._fitted(), tools=tools)
        except BaseException:
            self.pictures.allow(pictures)
            raise
        self.turn.observer.notice("The model does not take the pictures of this conversation: it was asked without.")
        return reply

    async def _send(self, fitted: Fitted, *, tools: bool) -> ModelReply:
        size = self._brief_tokens + fitted.tokens
        request = ModelRequest(
            model=self.model.name,
            system=self.brief.system,
            messages=fitted.messages,
            tools=self._tools if tools else (),
            temperature=self.model.temperature,
            max_output_tokens=self.model.max_output_tokens,
        )
        shown = _Shown(self.turn.observer)
        try:
            reply = await self.model.provider.complete(request, on_text=shown)
            if reply.stop is Stop.CONTENT_FILTER:
                raise ProviderError(Category.REJECTED, "the provider's content filter ended the reply")
        except ProviderError as error:
            shown.failed()
            if error.category is Category.CONTEXT_TOO_LONG:
                self.gauge.refused(size)
            raise
        shown.ended(reply.message.text)
        self.turn.spend(reply.usage)
        if tools:
            self.gauge.took(size, reply.usage.input_tokens)
        return reply


class _Shown:
    """The text of one reply on its way to the person (B091)."""

    def __init__(self, observer: TurnObserver) -> None:
        self._observer = observer
        self._some = False

    def text(self, piece: str) -> None:
        self._some = True
        self._observer.text(piece)

    def withdrawn(self) -> None:
        self._some = False
        self._observer.withdrawn()

    def failed(self) -> None:
        """No reply came of it."""
        if self._some:
            self.withdrawn()

    def ended(self, text: str) -> None:
        """``text`` is all of it, for a provider that does not stream."""
        if text and not self._some:
            self._observer.text(text)
        self._observer.reply_ended()
