"""Requests by OpenAI's Responses API, and the replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bubbles.providers.connection import Connection
from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, TextSink
from bubbles.providers.exchange import Target
from bubbles.providers.responses.reading import ResponsesReading
from bubbles.providers.responses.wire import ResponsesWriter
from bubbles.providers.wire import Body

ENDPOINT = "/responses"
_UNSEALED = "invalid_encrypted_content"
"""What the vendor says of reasoning that it cannot open: of another account, or too old."""


class ResponsesClient:
    """Of one provider; each request is told its target. Safe for concurrent use inside one event loop."""

    def __init__(self, name: str, connection: Connection, *, pictures_in_results: bool = True) -> None:
        """``pictures_in_results``: as ``ResponsesWriter`` has it."""
        self._name = name
        self._connection = connection
        self._writer = ResponsesWriter(name, pictures_in_results=pictures_in_results)

    async def complete(
        self, request: ModelRequest, target: Target, options: Mapping[str, Any], on_text: TextSink | None
    ) -> ModelReply:
        """One request on the wire; a second one, without the reasoning of earlier replies, if that is refused.

        Otherwise a session could never go on from there. ``options``: further fields of the request.
        """
        try:
            return await self._asked(request, target, options, on_text)
        except ProviderError as error:
            if error.category is not Category.REJECTED or _UNSEALED not in str(error):
                raise
            if not self._writer.forget_reasoning(request.messages):
                raise
        return await self._asked(request, target, options, on_text)

    async def _asked(
        self, request: ModelRequest, target: Target, options: Mapping[str, Any], on_text: TextSink | None
    ) -> ModelReply:
        body = self._body(request, options)
        reading = ResponsesReading(self._name, request.messages, target.secrets)
        return await self._connection.ask(target, body, reading, on_text)

    def _body(self, request: ModelRequest, options: Mapping[str, Any]) -> Body:
        try:
            return self._writer.body(request, options)
        except (ValueError, TypeError, RecursionError) as error:
            raise ProviderError(Category.REJECTED, f"the request cannot be written: {type(error).__name__}") from None
