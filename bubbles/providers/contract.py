"""What a model provider is. Open this file first.

Messages are immutable and compared by identity: a history hands out the same object in every request, so that a client
may keep what it made of one (a message is serialised once). Wire formats stay inside a client's own file.

ProviderError (a BubblesError)    nothing of it enters the history or a summary (PROV-07)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from bubbles.errors import BubblesError

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Image:
    media_type: str
    """``image/png``, ``image/jpeg``, ``image/gif`` or ``image/webp``."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    """As the provider gave it; unique within a history."""
    name: str
    arguments: str
    """JSON text exactly as the model wrote it, which need not be valid (PROV-10)."""
    vendor: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """Fields of the vendor's own that must go back with the call, such as a thought signature. JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class UserMessage:
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class AssistantMessage:
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    vendor: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """As in ``ToolCall``, such as reasoning that the vendor wants back. JSON values."""
    provider: str = ""
    """Who gave it: ``vendor`` fields go back to this provider only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class ToolMessage:
    """The result of one call. Follows the assistant's message that holds the call, in the order of its calls."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    """Letters, digits, ``_`` and ``-``, at most 64."""
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    model: str
    """As the provider knows it, without our prefix."""
    system: str
    messages: Sequence[Message]
    """Valid: no result without its call, no call without its result (CTX-03)."""
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    """None is the provider's own."""
    max_output_tokens: int | None = None


class Stop(enum.StrEnum):
    """Why a reply ended."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    """Cut by the output limit: text, or the arguments of the last call, may be incomplete."""
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; 0 where it did not say."""

    input_tokens: int = 0
    """All of the prompt, what came from a cache included."""
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt, read from the provider's cache."""


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    message: AssistantMessage
    stop: Stop = Stop.END
    usage: Usage = NO_USAGE


class Category(enum.StrEnum):
    """What a person is told of a failure; nothing else of it (PROV-08)."""

    RATE_LIMIT = "rate limit"
    UNAVAILABLE = "unavailable"
    """A server fault, a timeout, no connection."""
    CONTEXT_TOO_LONG = "context too long"
    AUTHENTICATION = "authentication"
    REJECTED = "rejected"
    """An invalid request, or refused by content policy."""


RETRYABLE = frozenset({Category.RATE_LIMIT, Category.UNAVAILABLE})


class ProviderError(BubblesError):
    """The request failed. The message is for the log only: it may quote the vendor, with secrets taken out."""

    def __init__(
        self,
        category: Category,
        detail: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        resets: str | None = None,
    ) -> None:
        """``retryable`` of None follows from the category; a used-up daily quota is a rate limit that is not.

        ``retry_after_s``: seconds that the server asks for. ``resets``: when a quota is available again, in words fit
        for the person, if the server said so.
        """
        super().__init__(detail)
        self.category = category
        self.retryable = category in RETRYABLE if retryable is None else retryable
        self.retry_after_s = retry_after_s
        self.resets = resets
        self.attempts = 1
        """How often the request was sent; set by the retries."""
        self.status: int | None = None
        """Of the server's answer, if it was a refusal over HTTP."""
        self.mend: str | None = None
        """What the owner can do about it, if that is known: a sentence fit for their own terminal, without a secret."""


class TextSink(Protocol):
    """Takes a reply's text while it comes. Called on the event loop; must not block or raise."""

    def text(self, piece: str) -> None: ...
    def withdrawn(self) -> None:
        """What came of this reply so far does not count: it broke off, and is asked for again or given up (B091)."""
        ...


class Provider(Protocol):
    """Safe for concurrent use inside one event loop."""

    @property
    def name(self) -> str:
        """The registry's name, such as ``openai``."""
        ...

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        """One reply, whole. Raises ``ProviderError``; cancelling ends the request."""
        ...

    async def aclose(self) -> None:
        """Close connections. It may be used again afterwards."""
        ...
