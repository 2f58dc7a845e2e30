"""Asks about a command in the middle of a conversation, through the terminal that it is held at (APPR-01)."""

from __future__ import annotations

import asyncio

from bubbles.bus import Origin
from bubbles.cli.chat.contract import Question, Terminal
from bubbles.controller.approvals.answers import understood
from bubbles.controller.approvals.broker import decided
from bubbles.controller.approvals.card import MIN_WIDTH, render
from bubbles.controller.approvals.contract import Answer, ApprovalCard
from bubbles.controller.approvals.terminal import BY, CLOSED, MAX_TRIES, PROMPT, PROMPT_AGAIN, how, unclear, unshown


class ConversationApprover:
    """Shows one card at a time. Ctrl-C and Ctrl-D mean no; what was typed before the card was there answers nothing."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._turn = asyncio.Lock()

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:  # noqa: ARG002 - the one person there is
        async with self._turn:
            columns, rows = self._terminal.size()
            if columns < MIN_WIDTH:
                return unshown(f"the terminal has {columns} columns and a question needs {MIN_WIDTH}")
            text = f"{render(card, columns, height=rows, encoding=self._terminal.encoding)}\n{how(card)}\n"
            async with self._terminal.asking(text) as question:
                return await _answer(card, question)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        if why := CLOSED.get(answer.outcome):
            self._terminal.write(f"[{card.id}] {why}.\n")


async def _answer(card: ApprovalCard, question: Question) -> Answer:
    for number in range(MAX_TRIES):
        line = await question.answer(PROMPT_AGAIN if number else PROMPT)
        if line is None:
            return decided(approved=False, by=BY)
        word = understood(line)
        if word is not None and word.card in (None, "", card.id):
            return decided(approved=word.approves, by=BY)
    return unclear()
