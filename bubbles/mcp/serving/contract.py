"""What is offered to another agent's program, the client. Open this file first.

The client is not trusted: it may flood, lie, hang, read nothing, or end at any moment. What it may cause is bounded
here; what its calls may do is decided by the gate behind ``Offered``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bubbles.bus import Origin
from bubbles.mcp.contract import ServerAnswer
from bubbles.providers.contract import ToolCall, ToolSpec

CHANNEL = "mcp"
"""In the address of every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool, and what a client may tell its person of it."""

    spec: ToolSpec
    read_only: bool
    destructive: bool
    """Whether it may overwrite or remove something."""
    idempotent: bool
    """Whether the same call again changes nothing more."""
    open_world: bool
    """Whether it may reach what is not on this machine."""


class Offered(Protocol):
    """The tools and what is behind them. ``bubbles.app.serve`` has the real one."""

    @property
    def tools(self) -> tuple[OfferedTool, ...]: ...

    @property
    def instructions(self) -> str:
        """For the client's model: a few sentences."""
        ...

    def wake(self) -> None:
        """A client is there: begin what takes a while. Waits for nothing."""
        ...

    async def run(self, call: ToolCall, origin: Origin) -> ServerAnswer:
        """Raises nothing but CancelledError, which ends what the call began."""
        ...
