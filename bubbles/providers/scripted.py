"""A provider that plays a script: for tests, the demo and benchmarks. It calls nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bubbles.providers.contract import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    ProviderError,
    Stop,
    TextSink,
    ToolCall,
)

Step = ModelReply | ProviderError | str | Callable[[ModelRequest], "Step"]
"""A reply, a failure, the text of a final reply, or what makes one of these of the request."""
PIECE = 24
"""Characters of text that are handed on at a time."""


def calls(*wanted: tuple[str, Mapping[str, Any]], text: str = "", first: int = 1) -> ModelReply:
    """A reply that calls tools: ``calls(("exec", {"script": "ls"}))``. Ids are ``call_1`` and so on from ``first``."""
    made = tuple(
        ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
        for number, (name, arguments) in enumerate(wanted, first)
    )
    return ModelReply(message=AssistantMessage(text=text, tool_calls=made), stop=Stop.TOOL_CALLS)


class ScriptedProvider:
    """Gives the steps of its script one after another, to whoever asks; keeps every request in ``requests``.

    Ids of calls are made unique within the provider, as real ones are. After the last step it says so, as text.
    """

    name = "scripted"

    def __init__(self, script: Iterable[Step] = (), *, delay_s: float = 0.0, keep_requests: bool = True) -> None:
        self._script = iter(script)
        self._delay_s = delay_s
        self._keep = keep_requests
        self._count = 0
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        if self._keep:
            self.requests.append(request)
        step: Step = next(self._script, "The script has ended.")
        while callable(step):
            step = step(request)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if isinstance(step, ProviderError):
            raise step
        reply = ModelReply(message=AssistantMessage(text=step)) if isinstance(step, str) else self._own_ids(step)
        if on_text is not None:
            text = reply.message.text
            for start in range(0, len(text), PIECE):
                on_text.text(text[start : start + PIECE])
        return reply

    async def aclose(self) -> None:
        return

    def _own_ids(self, reply: ModelReply) -> ModelReply:
        made = []
        for call in reply.message.tool_calls:
            self._count += 1
            made.append(
                ToolCall(id=f"{call.id}_{self._count}", name=call.name, arguments=call.arguments, vendor=call.vendor)
            )
        message = AssistantMessage(text=reply.message.text, tool_calls=tuple(made), vendor=reply.message.vendor)
        return ModelReply(message=message, stop=reply.stop, usage=reply.usage)
