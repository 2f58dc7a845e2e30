"""A card as a form that a client shows to its person (elicitation), and what its answer means (APPR-02)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

from bubbles.controller.approvals.broker import decided
from bubbles.controller.approvals.card import render
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome

FIELD = "decision"
RUN = "run"
LEAVE = "do not run"

Ask = Callable[[ApprovalCard], Awaitable[ElicitResult]]
"""Puts a card before the person and waits for the answer. Raises what the way there raises."""


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether the client shows forms. One that names no mode means forms: it is from before there were others."""
    found = None if capabilities is None else capabilities.elicitation
    return found is not None and (found.form is not None or found.url is None)


def form(card: ApprovalCard) -> ElicitRequestFormParams:
    limit = "" if card.timeout_s is None else f"\n\nNo answer in {card.timeout_s:g} seconds means no."
    choice: dict[str, Any] = {
        "type": "string",
        "title": "May this run?",
        "description": "Nothing of it runs unless you choose so.",
        "enum": [LEAVE, RUN],
    }
    schema = {"type": "object", "properties": {FIELD: choice}, "required": [FIELD]}
    return ElicitRequestFormParams(message=f"{render(card)}{limit}", requested_schema=schema)


def meant(result: ElicitResult, by: str) -> Answer:
    """Only the form sent off with its one choice is a yes."""
    if result.action == "decline":
        return decided(approved=False, by=by)
    if result.action == "cancel":
        return Answer(outcome=Outcome.DENIED, by=by, told="It was declined: the question was closed without an answer.")
    if result.content == {FIELD: RUN}:
        return decided(approved=True, by=by)
    if result.content == {FIELD: LEAVE}:
        return decided(approved=False, by=by)
    told = f"It was declined: the answer is accepted with {FIELD} as '{RUN}' or '{LEAVE}' only, and was something else."
    return Answer(outcome=Outcome.UNCLEAR, by=by, told=told)
