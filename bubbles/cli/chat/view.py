"""Shows a running turn at a terminal (CORE-04)."""

from __future__ import annotations

from bubbles.agent.contract import TurnOutcome
from bubbles.cli.chat.blocks import Blocks
from bubbles.cli.chat.screen import Screen
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult

WITHDRAWN = "(The reply broke off: what is above of it does not count.)"


class TurnView:
    """A ``TurnObserver`` that prints each block of a reply as soon as it is finished."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._blocks = Blocks()
        self._printed = False
        self.came: TurnOutcome | Exception | None = None
        """How the turn ended; None if it was stopped."""

    def text(self, piece: str) -> None:
        self._print(self._blocks.feed(piece))
        self._screen.live(self._blocks.tail)

    def withdrawn(self) -> None:
        self._blocks.clear()
        self._screen.live("")
        if self._printed:
            self._screen.remark(WITHDRAWN)
        self._printed = False

    def reply_ended(self) -> None:
        self._print(self._blocks.end())
        self._screen.live("")
        self._printed = False

    def tool(self, call: ToolCall, hint: str) -> None:
        del call
        self._screen.hint(hint)

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        del call
        self._screen.result(result.text, is_error=result.is_error, duration_s=duration_s)

    def notice(self, sentence: str) -> None:
        self._screen.notice(sentence)

    def ended(self, came: TurnOutcome | Exception) -> None:
        self.came = came

    def _print(self, blocks: list[str]) -> None:
        for block in blocks:
            self._screen.block(block)
            self._printed = True
