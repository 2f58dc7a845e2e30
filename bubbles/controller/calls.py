"""Calls that no sandbox can hold: tools of the MCP servers that the owner configured (DEC-11).

They have an allow-list of their own for each server, apart from rules. What is not on it, a person decides on; both are
on record like a command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic

from bubbles.bus import Origin
from bubbles.controller.consent import Consent
from bubbles.controller.policy.contract import Command, Decision, Mode, Policy, Stage, Verdict
from bubbles.controller.timeline.events import Ending, Subject
from bubbles.controller.timeline.writing import Timeline

OUTSIDE = "outside"
"""In place of a backend's name: the server runs, or is reached, outside every sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCall:
    server: str
    """The name that the owner gave it."""
    tool: str
    """As the server calls it."""
    arguments: str
    """JSON text, byte for byte what is sent."""
    allow: tuple[str, ...] = ()
    """The server's allow-list: names of tools, with ``*`` for any characters."""
    backend: str = OUTSIDE
    """The sandbox that the server runs in, if it does."""
    directory: str = ""
    """Where it runs there."""
    network: str = "full"
    held: bool = False
    """That sandbox holds what is reached of the file system and of the network."""


class CallGate:
    """All calls belong to one event loop."""

    def __init__(self, consent: Consent, timeline: Timeline, mode: Mode = Mode.ASK) -> None:
        self._consent = consent
        self._timeline = timeline
        self._mode = mode

    @asynccontextmanager
    async def permitted(self, call: ServerCall, origin: Origin) -> AsyncIterator[None]:
        """Decide and ask; the call is made inside, and how it ends is recorded. Raises ``DeclinedError``."""
        subject = Subject(
            origin=origin,
            command=Command(argv=("mcp", "call", call.server, call.tool, call.arguments)),
            cwd=call.directory or f"MCP server {call.server}",
            backend=call.backend,
            decision=decide_call(call, self._mode),
        )
        await asyncio.to_thread(self._consent.record, subject)
        await self._consent.settle(subject, call.network)
        began, outcome = monotonic(), "error"
        try:
            yield
            outcome = "answered"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            ending = Ending(outcome=outcome, duration_s=monotonic() - began)
            await asyncio.shield(self._timeline.finished(subject, ending))


def named(tool: str, patterns: Sequence[str]) -> str | None:
    """The first of ``patterns`` that names it: ``*`` is any characters, and all else only itself."""
    return next((one for one in patterns if fnmatchcase(tool, re.sub(r"[?\[]", r"[\g<0>]", one))), None)


def decide_call(call: ServerCall, mode: Mode) -> Decision:
    """Pure: the allow-list, then the mode, then a person. What a server says of its tools counts for nothing."""
    listed = named(call.tool, call.allow)
    if listed is not None:
        reason = f"{listed!r} is on the allow-list of the MCP server {call.server}."
        return _decision(Verdict.ALLOW, Stage.RULES, Policy.MCP_ALLOW_LIST, reason)
    if mode is Mode.DENY:
        reason = f"It is not on the allow-list of the MCP server {call.server}, and tools.approvals.mode is deny."
        return _decision(Verdict.DENY, Stage.DEFAULT, Policy.APPROVALS_OFF, reason)
    if mode is Mode.TRUST_SANDBOX and call.held:
        reason = f"The MCP server {call.server} runs in a sandbox that holds what it reaches."
        return _decision(Verdict.ALLOW, Stage.DEFAULT, Policy.TRUST_SANDBOX, reason)
    reason = (
        f"{call.tool!r} is not on the allow-list of the MCP server {call.server} "
        f"(tools.mcpServers.{call.server}.allow): a person decides."
    )
    return _decision(Verdict.ASK, Stage.DEFAULT, Policy.NO_RULE, reason)


def _decision(verdict: Verdict, stage: Stage, policy: Policy, reason: str) -> Decision:
    return Decision(verdict=verdict, stage=stage, policy=policy, reason=reason)
