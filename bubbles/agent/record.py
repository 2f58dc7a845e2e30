"""What the log tells of a turn (CORE-08): calls and results at INFO, all of the prompt and of results at DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bubbles.agent.turn import Turn
from bubbles.controller.approvals.card import shown_line
from bubbles.providers.contract import ProviderError, ToolCall
from bubbles.tools.contract import ToolResult

MOST = 400
"""Characters of arguments, and of a result, in one line."""


class Record:
    def __init__(self, log: logging.Logger, redact: Callable[[str], str]) -> None:
        self._log = log
        self._redact = redact

    def prompt(self, turn: Turn, system: str) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("turn %s, system prompt:\n%s", turn.id, self._redact(system))

    def begins(self, turn: Turn, call: ToolCall, hint: str) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._log.info("turn %s, call %s: %s %s", turn.id, call.id, self._line(hint), self._line(call.arguments))
        if self._log.isEnabledFor(logging.DEBUG) and len(call.arguments) > MOST:
            self._log.debug("turn %s, arguments of %s:\n%s", turn.id, call.id, self._redact(call.arguments))

    def ended(self, turn: Turn, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        if not self._log.isEnabledFor(logging.INFO):
            return
        how = "error" if result.is_error else "done"
        size = len(result.text)
        said = self._line(result.text)
        self._log.info("turn %s, call %s: %s, %.2f s, %d chars: %s", turn.id, call.id, how, duration_s, size, said)
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("turn %s, result of %s:\n%s", turn.id, call.id, self._redact(result.text))

    def failed(self, turn: Turn, error: ProviderError) -> None:
        tries = error.attempts
        said = self._line(str(error))
        self._log.warning("turn %s: the provider failed (%s, sent %d times): %s", turn.id, error.category, tries, said)

    def _line(self, text: str) -> str:
        """One line in which everything is visible. It is cut after secrets are taken out."""
        line = shown_line(self._redact(text[: 8 * MOST]))
        return line if len(line) <= MOST else f"{line[:MOST]}…"
