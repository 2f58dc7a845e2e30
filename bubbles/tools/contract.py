"""What a tool is. Open this file first.

A tool keeps nothing of a conversation: whose call it is comes with each call as an ``Origin``. Shell and files go
through the controller, in the place that ``PlaceOf`` gives for the origin's session.

ToolError (a BubblesError)    the call did not do what was asked; its message is for the model
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from bubbles.bus import Origin
from bubbles.controller.contract import Workplace
from bubbles.errors import BubblesError
from bubbles.providers.contract import Image, ToolCall, ToolSpec

PlaceOf = Callable[[Origin], Workplace]


class ToolError(BubblesError):
    """One or two sentences for the model: what was wrong, and what to do instead."""


class Args(BaseModel):
    """What a model passes. Docstrings of fields are what it reads about them; names it invents are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    text: str
    """All of it; the registry cuts what is over the cap (CORE-07)."""
    is_error: bool = False
    images: tuple[Image, ...] = ()
    silent: bool = False
    """The turn ends here without a word, and the model sees nothing of it again (TOOL-10)."""


A = TypeVar("A", bound=Args)


class Tool(Protocol[A]):
    """One ability. ``args`` is the model of what ``run`` gets."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str:
        """For the model: when to use it, what comes back."""
        ...

    @property
    def args(self) -> type[A]: ...

    def offered(self, origin: Origin) -> bool:
        """Whether the model sees it in this turn (CRON-06, TOOL-10)."""
        ...

    def hint(self, args: A) -> str:
        """The call in a few words for a person, such as ``read_file("notes.md")``."""
        ...

    async def run(self, args: A, origin: Origin) -> ToolResult:
        """Raises ``ToolError``, ``DeclinedError`` or ``SandboxError``; the registry makes results of them."""
        ...


class ToolSource(Protocol):
    """Tools that are known only while the program runs, and may come and go: those of MCP servers."""

    def specs(self, origin: Origin) -> tuple[ToolSpec, ...]:
        """What the model is offered now: the same tuple while nothing changes. Waits for nothing."""
        ...

    def hint(self, call: ToolCall) -> str | None:
        """As ``Tool.hint``; None for what is none of its tools."""
        ...

    async def run(self, call: ToolCall, origin: Origin) -> ToolResult | None:
        """None for what is none of its tools, or is not offered now. Raises as ``Tool.run``."""
        ...
