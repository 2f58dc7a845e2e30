"""The tools of a turn: what the model is told of them, and the one way by which its calls reach them.

Whatever a tool does, its call ends in a result that the model can read: this is the edge where what broke is logged
and not told.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from bubbles.bus import Origin
from bubbles.controller.approvals.card import shown_line
from bubbles.controller.contract import GateError
from bubbles.controller.places import SandboxError, SandboxLostError
from bubbles.providers.contract import ToolCall, ToolSpec
from bubbles.sessions.tokens import estimate
from bubbles.tools.contract import Tool, ToolError, ToolResult, ToolSource
from bubbles.tools.schema import parameters, read_arguments
from bubbles.tools.truncate import LONG, Spill, cut_to_tokens

MAX_HINT = 80
MAX_NAME = 64
MAX_REMEMBERED = 16
"""Sets of tools with those of the sources."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A call that is over."""

    result: ToolResult
    """As the model gets it."""
    full_text: str | None = None
    """Absolute path of the file that holds all of its text, if that was cut (CORE-07)."""


class Toolbox:
    """Keeps nothing of a call. Safe for concurrent use inside one event loop."""

    def __init__(
        self,
        tools: Iterable[Tool[Any]],
        *,
        result_tokens: int,
        spill: Spill,
        mask: Callable[[str], str] = str,
        sources: Iterable[ToolSource] = (),
    ) -> None:
        """``result_tokens``: the cap of one result (``tools.resultTokens``). ``mask`` takes out of every result what no
        model may see: the owner's keys (SEC-03). A tool of a ``source`` never stands before one of ``tools``.
        """
        self._sources = tuple(sources)
        self._tools = {tool.name: tool for tool in tools}
        self._result_tokens = result_tokens
        self._spill = spill
        self._mask = mask
        self._specs: dict[tuple[str, ...], tuple[ToolSpec, ...]] = {}
        self._with_sources: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], ...]] = {}

    def without(self, *names: str) -> Toolbox:
        """The same tools but for these."""
        return Toolbox(
            (tool for name, tool in self._tools.items() if name not in names),
            result_tokens=self._result_tokens,
            spill=self._spill,
            mask=self._mask,
            sources=self._sources,
        )

    def specs(self, origin: Origin) -> tuple[ToolSpec, ...]:
        """What the model is offered in a turn of ``origin``: the same object for the same tools."""
        names = tuple(name for name, tool in self._tools.items() if tool.offered(origin))
        found = self._specs.get(names)
        if found is None:
            found = self._specs[names] = tuple(
                ToolSpec(name=name, description=tool.description, parameters=parameters(tool.args))
                for name, tool in ((name, self._tools[name]) for name in names)
            )
        return found if not self._sources else self._joined(found, origin)

    def _joined(self, own: tuple[ToolSpec, ...], origin: Origin) -> tuple[ToolSpec, ...]:
        parts = (own, *(source.specs(origin) for source in self._sources))
        key = tuple(map(id, parts))
        held = self._with_sources.pop(key, None)
        if held is None:  # the parts are kept with it: their ids are theirs as long as they are
            held = (tuple(spec for part in parts for spec in part), *parts)
        self._with_sources[key] = held
        while len(self._with_sources) > MAX_REMEMBERED:
            del self._with_sources[next(iter(self._with_sources))]
        return held[0]

    def hint(self, call: ToolCall) -> str:
        """The call on one line for a person, such as ``read_file("notes.md")``; at most 80 characters (CORE-04)."""
        text = self._hint(call) or f"{call.name[:MAX_NAME]}({call.arguments[: 2 * MAX_HINT]})"
        text = shown_line(text[: 4 * MAX_HINT])
        return text if len(text) <= MAX_HINT else f"{text[: MAX_HINT - 1]}…"

    async def run(self, call: ToolCall, origin: Origin) -> Finished:
        """Do what the model asks for. Raises nothing but CancelledError: every other end is a result."""
        try:
            return await self._fitted(call, await self._done(call, origin), origin)
        except Exception:  # noqa: BLE001 - the edge: the model can go on without this call, and must not see what broke
            _log.exception("tool %s failed", shown_line(call.name[:MAX_NAME]))
            return Finished(
                result=_error(f"{shown_line(call.name[:MAX_NAME])} failed for an internal reason, which is in the log.")
            )

    def _hint(self, call: ToolCall) -> str | None:
        tool = self._tools.get(call.name)
        try:
            if tool is not None:
                return tool.hint(read_arguments(tool.args, call.arguments))
            return next((text for source in self._sources if (text := source.hint(call))), None)
        except ToolError:
            return None

    async def _done(self, call: ToolCall, origin: Origin) -> ToolResult:
        tool = self._tools.get(call.name)
        try:
            if tool is not None and tool.offered(origin):
                return await tool.run(read_arguments(tool.args, call.arguments), origin)
            if tool is None:
                for source in self._sources:
                    if (result := await source.run(call, origin)) is not None:
                        return result
            return _error(self._unknown(call.name, origin))
        except (ToolError, GateError) as error:
            return _error(str(error))
        except SandboxLostError as error:
            return _error(
                f"The sandbox went away, so whether this was done is not known: {error}. Its processes and temporary "
                "files are gone; files in the session's directories stay. The next call opens it anew."
            )
        except SandboxError as error:
            return _error(str(error))

    def _unknown(self, name: str, origin: Origin) -> str:
        known = [spec.name for spec in self.specs(origin)]
        close = difflib.get_close_matches(name[:MAX_NAME], known, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        return f"There is no tool '{shown_line(name[:MAX_NAME])}'.{meant} There are: {', '.join(known) or 'none'}."

    def _cleaned(self, text: str) -> str:
        return self._mask(_encodable(text))

    async def _fitted(self, call: ToolCall, result: ToolResult, origin: Origin) -> Finished:
        long = len(result.text) > LONG
        text = await asyncio.to_thread(self._cleaned, result.text) if long else self._cleaned(result.text)
        if (await asyncio.to_thread(estimate, text) if long else estimate(text)) <= self._result_tokens:
            return Finished(result=result if text is result.text else replace(result, text=text))
        path = await self._spill.keep(call.id, text, origin)
        where = "" if path is None else f"; all of it is in {path}"
        shortened = await asyncio.to_thread(cut_to_tokens, text, self._result_tokens, where)
        return Finished(result=replace(result, text=shortened), full_text=path)


def _encodable(text: str) -> str:
    """Half a character can neither be kept nor sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _error(text: str) -> ToolResult:
    return ToolResult(text=text, is_error=True)
