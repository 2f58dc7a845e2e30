"""Notices a model that goes round in circles (CORE-02)."""

from __future__ import annotations

import hashlib
import json
from collections import deque

from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult

LONGEST_ROUND = 3
"""Calls after which a round may begin again: the same call, two in turn, three in turn."""

REMARK = (
    "This call was not run: it was made twice before with the same arguments, and gave the same result each time. "
    "Doing it again changes nothing. Take what it gave, try another way, or tell the person what keeps you from going "
    "on. If you repeat it once more, the turn ends."
)


class Repeats:
    """The last calls of one turn."""

    def __init__(self) -> None:
        self._made: deque[tuple[str, str]] = deque(maxlen=2 * LONGEST_ROUND)
        self._foreseen = 0

    def ran(self, call: ToolCall, result: ToolResult, full_text: str | None) -> None:
        text = result.text if full_text is None else result.text.replace(full_text, "")
        self._made.append((_key(call), _digest(f"{result.is_error}\n{text}")))
        self._foreseen = 0

    def foreseen(self, call: ToolCall) -> int:
        """0 if the call should run; else how many calls in a row, with this one, would only repeat a round."""
        before = self._before(call)
        if before is None:
            return 0
        self._made.append(before)
        self._foreseen += 1
        return self._foreseen

    def only_repeats(self, call: ToolCall) -> bool:
        """What ``foreseen`` would say, without counting it."""
        return self._before(call) is not None

    def _before(self, call: ToolCall) -> tuple[str, str] | None:
        """How the call went in the round that it would repeat for the third time."""
        made, key = list(self._made), _key(call)
        for length in range(1, LONGEST_ROUND + 1):
            last = made[-length:]
            if len(made) >= 2 * length and last == made[-2 * length : -length] and last[0][0] == key:
                return last[0]
        return None


def _key(call: ToolCall) -> str:
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return f"{call.name}\n{_digest(arguments)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
