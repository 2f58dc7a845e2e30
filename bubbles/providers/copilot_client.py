"""Models of a GitHub Copilot subscription, by the login of its owner (PROV-03).

It speaks OpenAI's chat completions for some models and the Responses API for others, refusing each by the wrong one.
Read from Zed's client, litellm and others, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bubbles.errors import ConfigError
from bubbles.providers import chat_client
from bubbles.providers.admission import Admission
from bubbles.providers.chat_client import ChatClient
from bubbles.providers.connection import Connection
from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, TextSink, UserMessage
from bubbles.providers.exchange import Target
from bubbles.providers.logins.contract import API, Access, AccessSource
from bubbles.providers.logins.copilot import EDITOR
from bubbles.providers.responses import client as responses_client
from bubbles.providers.responses.client import ResponsesClient
from bubbles.providers.targets import target_of

NAME = "github_copilot"
INTEGRATION = "vscode-chat"
"""Whose models are offered; the editor is named beside it."""
MAX_LEARNT = 64
"""Models of which it is known by which API they answer."""
_BY_RESPONSES = re.compile(r"gpt-(?:[5-9]|\d\d)(?!-mini)")
_NEW_LIMIT_NAME = re.compile(r"gpt-[5-9]|gpt-\d\d|o\d")
_OTHER_API = ("unsupported_api_for_model", "is not accessible via the")


class CopilotProvider:
    """Safe for concurrent use inside one event loop; ``aclose`` before another one uses it."""

    name = NAME

    def __init__(
        self,
        source: AccessSource,
        *,
        base_url: str | None = None,
        usual: str,
        extra_headers: Mapping[str, str] | None = None,
        request_timeout_s: float = 120.0,
        proxy_for: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """``base_url`` is the person's own and counts before the one that comes with the login; ``usual`` is for when
        neither is there. ``proxy_for`` gives the proxy for an address. The rest is as ``CustomProvider`` has it.
        """
        self._base_url = base_url
        self._usual = usual
        self._extra = extra_headers or {}
        self._proxy_for = proxy_for
        self._admission = Admission(NAME, source)
        self._connection = Connection(request_timeout_s)
        self._chat = ChatClient(NAME, self._connection, _limit_name, in_parts=True)
        self._responses = ResponsesClient(NAME, self._connection, pictures_in_results=False)
        self._learnt: dict[str, bool] = {}
        try:
            target_of(base_url or usual, "", headers={}, extra={}, proxy=None)
        except ValueError:  # its words may hold a piece of a password
            raise ConfigError(f"providers.{NAME}.baseUrl is no address of a server: correct it.") from None

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """A request that is turned down is sent once more, with a new token; one by the wrong API, by the other."""
        return await self._admission.admitted(lambda access: self._sent(request, access, on_text))

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _sent(self, request: ModelRequest, access: Access, on_text: TextSink | None) -> ModelReply:
        responses = self._learnt.get(request.model, bool(_BY_RESPONSES.match(request.model)))
        try:
            return await self._by(request, access, on_text, responses=responses)
        except ProviderError as error:
            if error.category is not Category.REJECTED or not any(words in str(error) for words in _OTHER_API):
                raise
        reply = await self._by(request, access, on_text, responses=not responses)
        if len(self._learnt) < MAX_LEARNT:
            self._learnt[request.model] = not responses
        return reply

    async def _by(
        self, request: ModelRequest, access: Access, on_text: TextSink | None, *, responses: bool
    ) -> ModelReply:
        if not responses:
            target = self._target(request, access, chat_client.ENDPOINT)
            return await self._chat.complete(request, target, on_text)
        target = self._target(request, access, responses_client.ENDPOINT)
        limits = {"temperature": request.temperature, "max_output_tokens": request.max_output_tokens}
        options: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        return await self._responses.complete(request, target, options, on_text)

    def _target(self, request: ModelRequest, access: Access, endpoint: str) -> Target:
        address = self._base_url or access.more.get(API) or self._usual
        by_person = not request.messages or isinstance(request.messages[-1], UserMessage)
        headers = {
            "Authorization": f"Bearer {access.token}",
            "Copilot-Integration-Id": INTEGRATION,
            **EDITOR,
            "Openai-Intent": "conversation-edits",
            "X-Initiator": "user" if by_person else "agent",  # what an agent sends after its tools is not billed anew
        }
        if any(getattr(message, "images", ()) for message in request.messages):
            headers["Copilot-Vision-Request"] = "true"
        try:
            proxy = self._proxy_for(address)
            return target_of(
                address, endpoint, headers=headers, extra=self._extra, proxy=proxy, secrets=(access.token,)
            )
        except ValueError:
            raise ProviderError(Category.REJECTED, "the address that came with the login is none") from None


def _limit_name(model: str) -> str:
    return "max_completion_tokens" if _NEW_LIMIT_NAME.match(model) else "max_tokens"
