"""What a channel sees of a running turn: text on the way, and tools about to run, if that is wanted (CORE-04)."""

from __future__ import annotations

from collections.abc import Callable

from bubbles.bus import Address, Kind, OutboundMessage
from bubbles.dispatch.contract import Policy
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult


class ChannelObserver:
    """A reply's text is progress once a tool call follows it; without one it is the answer, which the dispatcher sends.

    ``send`` takes a message without waiting, and may drop it.
    """

    def __init__(self, address: Address, policy: Policy, send: Callable[[OutboundMessage], None]) -> None:
        self._address = address
        self._policy = policy
        self._send = send
        self._text: list[str] = []

    def text(self, piece: str) -> None:
        self._text.append(piece)

    def withdrawn(self) -> None:
        self._text.clear()

    def reply_ended(self) -> None:
        return

    def tool(self, call: ToolCall, hint: str) -> None:
        del call
        text = "".join(self._text).strip()
        self._text.clear()
        if text and self._policy.send_progress:
            self._say(Kind.PROGRESS, text)
        if self._policy.send_tool_hints:
            self._say(Kind.HINT, hint)

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        """Results are the model's."""

    def notice(self, sentence: str) -> None:
        self._say(Kind.NOTICE, sentence)

    def _say(self, kind: Kind, text: str) -> None:
        self._send(OutboundMessage(address=self._address, text=text, kind=kind))


class Unwatched:
    """Of a turn that nobody waits for: nothing of it is shown on the way, and no notice (ERR-02)."""

    def text(self, piece: str) -> None: ...
    def withdrawn(self) -> None: ...
    def reply_ended(self) -> None: ...
    def tool(self, call: ToolCall, hint: str) -> None: ...
    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None: ...
    def notice(self, sentence: str) -> None: ...
