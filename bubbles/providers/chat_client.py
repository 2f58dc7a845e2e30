"""Requests by OpenAI's chat completions, as most servers speak them, and the replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bubbles.providers.assembly import Assembly
from bubbles.providers.connection import Connection
from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, TextSink
from bubbles.providers.exchange import Target
from bubbles.providers.wire import Body, RequestWriter

ENDPOINT = "/chat/completions"


class ChatClient:
    """Of one provider; each request is told its target. Safe for concurrent use inside one event loop."""

    def __init__(
        self, name: str, connection: Connection, limit_name: Callable[[str], str], *, in_parts: bool = False
    ) -> None:
        """``limit_name`` gives, for a model, the field that limits the output. ``in_parts``: as ``Assembly`` has it."""
        self._name = name
        self._connection = connection
        self._limit_name = limit_name
        self._in_parts = in_parts
        self._writer = RequestWriter(name)
        self._asks_usage = True

    async def complete(self, request: ModelRequest, target: Target, on_text: TextSink | None) -> ModelReply:
        """One request on the wire; a second one only to a server that does not know ``stream_options``."""
        usage = self._asks_usage  # by the time it is refused, another request may have found out
        try:
            return await self._asked(request, target, on_text, usage=usage)
        except ProviderError as error:
            if not (usage and error.category is Category.REJECTED and "stream_options" in str(error)):
                raise
        self._asks_usage = False
        return await self._asked(request, target, on_text, usage=False)

    async def _asked(
        self, request: ModelRequest, target: Target, on_text: TextSink | None, *, usage: bool
    ) -> ModelReply:
        body = self._body(request, usage=usage)
        assembly = Assembly(self._name, request.messages, target.secrets, in_parts=self._in_parts)
        return await self._connection.ask(target, body, assembly, on_text)

    def _body(self, request: ModelRequest, *, usage: bool) -> Body:
        options: dict[str, Any] = {"stream": True}
        if usage:
            options["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_output_tokens is not None:
            options[self._limit_name(request.model)] = request.max_output_tokens
        try:
            return self._writer.body(request, options)
        except (ValueError, TypeError, RecursionError) as error:
            raise ProviderError(Category.REJECTED, f"the request cannot be written: {type(error).__name__}") from None
