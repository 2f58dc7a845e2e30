"""A call as a client sees it: one request, or in the protocol of 2026-07-28 several, with a question between them."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)

from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.mcp.contract import ServerAnswer
from bubbles.mcp.serving.questions import form

MAX_PARKED = 64
"""Calls whose client was asked something; far more than there can be open cards."""


class Question:
    """What a call asks of its person, and what it is answered, if its client comes back."""

    def __init__(self) -> None:
        self.card: ApprovalCard | None = None
        self.asked = asyncio.Event()
        """Set while a card waits."""
        self._reply: asyncio.Future[ElicitResult] | None = None

    async def ask(self, card: ApprovalCard) -> ElicitResult:
        self.card, self._reply = card, asyncio.get_running_loop().create_future()
        self.asked.set()
        try:
            return await self._reply
        finally:
            self.asked.clear()

    def answer(self, responses: InputResponses) -> None:
        """What is no answer to the card leaves it open, for its time."""
        reply = None if self.card is None else responses.get(self.card.id)
        if isinstance(reply, ElicitResult) and self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)
            self.asked.clear()


class Round:
    """A call that goes on, and what its client may ask about it."""

    def __init__(self, task: asyncio.Task[ServerAnswer], question: Question, params: CallToolRequestParams) -> None:
        self.task = task
        self.question = question
        self._asked_for = (params.name, params.arguments)

    def is_for(self, params: CallToolRequestParams) -> bool:
        return self._asked_for == (params.name, params.arguments)


class Rounds:
    """Those that wait for their client to come back."""

    def __init__(self) -> None:
        self._parked: OrderedDict[str, Round] = OrderedDict()

    def park(self, waiting: Round) -> InputRequiredResult:
        card = waiting.question.card
        assert card is not None
        state = secrets.token_urlsafe(16)
        self._parked[state] = waiting
        while len(self._parked) > MAX_PARKED:
            self._parked.popitem(last=False)[1].task.cancel()
        return InputRequiredResult(input_requests={card.id: ElicitRequest(params=form(card))}, request_state=state)

    def resumed(self, params: CallToolRequestParams) -> Round:
        """Raises MCPError."""
        found = self._parked.get(params.request_state or "")
        if found is None or not found.is_for(params):
            raise MCPError(INVALID_PARAMS, "There is no such call that waits for an answer: call anew.")
        del self._parked[params.request_state or ""]
        found.question.answer(params.input_responses or {})
        return found
