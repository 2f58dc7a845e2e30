"""Models of a ChatGPT subscription, by the login of its owner: OpenAI's Responses API as Codex uses it (PROV-03).

Read from openai/codex and others that speak it, November 2026: only streams, nothing kept by the vendor, instructions
demanded, no messages of the role ``system``. Fields that it does not know are refused: there is no temperature and no
limit of the output.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from bubbles.errors import ConfigError
from bubbles.providers.admission import Admission
from bubbles.providers.connection import Connection
from bubbles.providers.contract import ModelReply, ModelRequest, TextSink, UserMessage
from bubbles.providers.exchange import Target
from bubbles.providers.logins.contract import Access, AccessSource
from bubbles.providers.responses.client import ENDPOINT, ResponsesClient
from bubbles.providers.targets import target_of

NAME = "openai_codex"
MAX_TOLD_APART = 4_096
"""Characters of the first message by which conversations are told apart."""


class CodexProvider:
    """Safe for concurrent use inside one event loop; ``aclose`` before another one uses it.

    ``temperature`` and ``max_output_tokens`` of a request are left out.
    """

    name = NAME

    def __init__(
        self,
        source: AccessSource,
        *,
        base_url: str,
        extra_headers: Mapping[str, str] | None = None,
        request_timeout_s: float = 120.0,
        proxy: str | None = None,
    ) -> None:
        """As ``CustomProvider``; ``base_url`` may end in ``/responses``."""
        self._base_url = base_url
        self._extra = extra_headers or {}
        self._proxy = proxy
        self._admission = Admission(NAME, source)
        self._connection = Connection(request_timeout_s)
        self._client = ResponsesClient(NAME, self._connection)
        try:
            self._target(Access(token=""), "")
        except ValueError:  # its words may hold a piece of a password
            raise ConfigError(f"providers.{NAME}.baseUrl is no address of a server: correct it.") from None

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """A request that is turned down is sent once more, with a new token."""
        conversation = _conversation(request)
        options = {"prompt_cache_key": conversation}

        async def send(access: Access) -> ModelReply:
            return await self._client.complete(request, self._target(access, conversation), options, on_text)

        return await self._admission.admitted(send)

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _target(self, access: Access, conversation: str) -> Target:
        headers = {
            "Authorization": f"Bearer {access.token}",
            "Accept": "text/event-stream",
            "OpenAI-Beta": "responses=experimental",
            "originator": "bubbles",
            "session_id": conversation,
        }
        if access.account:
            headers["ChatGPT-Account-Id"] = access.account
        return target_of(
            self._base_url,
            ENDPOINT,
            headers=headers,
            extra=self._extra,
            proxy=self._proxy,
            secrets=(access.token, access.account),
        )


def _conversation(request: ModelRequest) -> str:
    """The same as long as a conversation begins alike: by this the vendor finds what it has read already."""
    first = request.messages[0] if request.messages else None
    text = first.text[:MAX_TOLD_APART] if isinstance(first, UserMessage) else ""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{request.model}\n{text}".encode("utf-8", "replace").decode()))
