"""How a server is reached, and how it can fail to answer. Nothing here imports the SDK.

Exception
├── GoneError       the connection ended before the answer came
└── RefusedError    the server answered with an error; the message is its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bubbles.bus import Origin
from bubbles.config.schema import McpServerSettings
from bubbles.mcp.contract import Starter

IDLE_S = 15 * 60.0


class GoneError(Exception):
    def __init__(self, *, unheard: bool) -> None:
        super().__init__()
        self.unheard = unheard
        """The server has certainly not read the request."""


class RefusedError(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    name: str
    settings: McpServerSettings
    starter: Starter
    env: Mapping[str, str] = field(repr=False)
    """The environment that says which proxy is used."""
    redact: Callable[[str], str]
    """Takes out of texts for the log and for people what must not be there, this server's secrets included."""
    mask: Callable[[str], str]
    """Only this server's secrets."""
    origin: Origin | None = None
    """Whose sandbox it runs in; None is outside of any."""
    idle_s: float = IDLE_S
    """After that a server in a sandbox that nobody uses ends, and lets the sandbox go."""
