"""What the MCP client gives to the tools and to ``status``. Open this file first.

A server is hostile input: it may hang, die, flood, lie about its schema, offer a thousand tools, or be absent. None of
that blocks or ends a turn: what is known of a server is looked at, never waited for, but for a call.

McpError (a BubblesError)    the call did not do what was asked; its message is for the model
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bubbles.bus import Origin
from bubbles.controller.programs import Program
from bubbles.errors import BubblesError
from bubbles.providers.contract import Image


class McpError(BubblesError):
    """One or two sentences for the model: what went wrong with the server, and whether trying again may help.

    ``said`` follows ``told``, and may be the server's own words: hostile text.
    """

    def __init__(self, told: str, said: str = "") -> None:
        super().__init__(f"{told} {said}" if said else told)
        self.told = told
        self.said = said


class ServerState(enum.StrEnum):
    OFF = "off"
    """``enabled`` is false."""
    IDLE = "idle"
    """Not started: nothing has needed it yet."""
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    """It failed, and is tried again after a while (back-off)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool that a server has said it has, checked: nothing in it is larger, or of another type, than stated here."""

    server: str
    """The name that the owner gave the server."""
    name: str
    """As the server calls it; printable, at most 128 characters."""
    offered_as: str
    """As the model calls it: ``mcp__SERVER__TOOL``, letters, digits, ``_`` and ``-``, at most 64; no two alike."""
    description: str
    """At most 2,000 characters; hostile text."""
    schema: Mapping[str, Any]
    """JSON schema of an object, of at most 20,000 characters of JSON, with no reference out of it."""
    tokens: int
    """Estimate of what it costs in each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server as ``status`` shows it."""

    name: str
    kind: str
    """``stdio``, ``stdio in the sandbox`` or ``http``."""
    state: ServerState
    tools: int = 0
    """How many it has for the model."""
    problem: str = ""
    """What is wrong, or was last: one sentence for the person, without secrets."""
    retry_in_s: float | None = None
    seen: str = ""
    """When its tools were last learnt, ISO 8601; empty for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """What a call gave."""

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


class Talker(Protocol):
    """A program that runs, and is spoken with. ``bubbles.controller.programs.RunningProgram`` is the real one."""

    async def write(self, data: bytes) -> None:
        """Waits until the program has taken it. Raises ``BubblesError`` when it no longer reads."""
        ...

    async def ended(self) -> str:
        """How it ended, once it has."""
        ...


OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


class Starter(Protocol):
    """Starts programs. ``bubbles.controller.programs.Launcher`` is the real one."""

    def start(
        self, program: Program, on_output: OnOutput, origin: Origin | None = None
    ) -> AbstractAsyncContextManager[Talker]:
        """It runs until the context is left; in the sandbox of ``origin``'s session, if there is one. Raises
        ``BubblesError``. ``on_output`` is called on the event loop, and must not raise.
        """
        ...


class Servers(Protocol):
    """The configured servers, as tools see them. ``bubbles.mcp.servers.McpServers`` is the real one."""

    def tools(self, origin: Origin) -> tuple[ServerTool, ...]:
        """Of all servers that this session can reach now, or could when last seen: the same tuple while nothing
        changes. Waits for nothing; begins to start what is not started.
        """
        ...

    def infos(self, session_key: str | None = None) -> tuple[ServerInfo, ...]:
        """Every configured server; ``session_key`` for those that run in a session's sandbox."""
        ...

    async def settled(self, origin: Origin, within_s: float) -> None:
        """Wait until every server that is starting is ready or has failed, or ``within_s`` is over."""
        ...

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any], origin: Origin) -> ServerAnswer:
        """Raises ``McpError``. Connects first if need be, within the server's ``start_timeout_s``."""
        ...
