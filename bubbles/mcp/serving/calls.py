"""The calls that are open: how many run, how many wait, and the way from each to the person behind its client.

A call is a task of its own. So a client's cancellation reaches it once, as tools expect it, and not again and again
until they have ended, as the SDK does it. And it can go on between two requests: in the protocol of 2026-07-28 a server
asks by answering a call with a question, and the client calls again with the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from bubbles.bus import Address, Origin
from bubbles.controller.approvals.broker import nobody
from bubbles.controller.approvals.card import shown_line
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.mcp.contract import ServerAnswer
from bubbles.mcp.serving.contract import CHANNEL, Offered
from bubbles.mcp.serving.lines import LinesOut
from bubbles.mcp.serving.questions import Ask, meant
from bubbles.providers.contract import ToolCall

AT_ONCE = 8
"""Calls that run at a time; one that waits for a person does not count."""
MAX_OPEN = 1_024
MAX_OPEN_BYTES = 32 << 20
"""Of what all open calls were asked."""
MAX_CLIENT = 60
"""Characters of a client's name."""
BUSY = "Too much is asked for at once: nothing was done of this. Wait for answers, and call again."

_log = logging.getLogger(__name__)


class OpenCall:
    """One call, from its beginning until its answer has been fetched."""

    def __init__(self, origin: Origin, call: ToolCall, ask: Ask | None) -> None:
        self.origin = origin
        self.call = call
        self.ask = ask
        """None: the client cannot put a question to a person."""
        self.running = False
        """Whether it holds one of the places of those that run."""


class Calls:
    """All calls belong to one event loop. An ``Approver`` for the cards of its own calls."""

    def __init__(self, session_key: str, unasked: str) -> None:
        """``unasked``: why nobody can be asked where a client cannot ask, and the mend."""
        self._address = Address(channel=CHANNEL, chat_id=session_key)
        self._session_key = session_key
        self._unasked = unasked
        self._places = asyncio.Semaphore(AT_ONCE)
        self._open: dict[Origin, OpenCall] = {}
        self._bytes = 0
        self._numbers = itertools.count(1)
        self._process = secrets.token_hex(4)
        """Results of another process of the same session lie in the same folder."""

    def approver_for(self, origin: Origin) -> Calls:
        del origin
        return self

    def opened(self, client: str, name: str, arguments: str, ask: Ask | None) -> OpenCall:
        """The origin is this call's alone: that is how its cards find back to it. A client's own id would not do,
        nor as the name of a file: each counts from 1, and may use one twice.
        """
        number = next(self._numbers)
        origin = Origin(
            session_key=self._session_key,
            address=self._address,
            sender=f"{shown_line(client[:MAX_CLIENT]) or 'client'} #{number}",
        )
        return OpenCall(origin, ToolCall(id=f"{self._process}-{number}", name=name, arguments=arguments), ask)

    async def run(self, opened: OpenCall, offered: Offered, out: LinesOut) -> ServerAnswer:
        """Its answer. It begins when there is a place, and somebody reads what comes of it."""
        size = len(opened.call.arguments)
        if len(self._open) >= MAX_OPEN or self._bytes + size > MAX_OPEN_BYTES:
            return ServerAnswer(text=BUSY, is_error=True)
        self._open[opened.origin] = opened
        self._bytes += size
        try:
            await self._take(opened)
            await out.roomy()
            return await offered.run(opened.call, opened.origin)
        finally:
            self._give(opened)
            self._bytes -= size
            del self._open[opened.origin]

    @asynccontextmanager
    async def away(self, origin: Origin) -> AsyncIterator[None]:
        """The call waits for a person: others may run meanwhile. One that was ended needs no place again."""
        opened = self._open.get(origin)
        if opened is None or not opened.running:
            yield
            return
        self._give(opened)
        yield
        await self._take(opened)

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer:
        """As ``Approver``."""
        opened = self._open.get(origin)
        if opened is None or opened.ask is None:
            return nobody(self._unasked)
        try:
            result = await opened.ask(card)
        except (MCPError, ValidationError) as error:
            _log.warning("card %s came back without an answer: %s", card.id, type(error).__name__)
            return Answer(
                outcome=Outcome.NOT_SHOWN,
                told="It was declined: the program that called did not bring back a person's answer.",
            )
        return meant(result, origin.sender)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        """A form that is still open is taken back where it was sent from."""

    async def _take(self, opened: OpenCall) -> None:
        await self._places.acquire()
        opened.running = True

    def _give(self, opened: OpenCall) -> None:
        if opened.running:
            opened.running = False
            self._places.release()
