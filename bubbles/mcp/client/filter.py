"""What a server may say: answers to what it was asked, and little else.

It may ask things itself, which the SDK refuses, and tell that its tools have changed. All else that it says unasked is
let go, and counted: one that does not stop is disconnected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from bubbles.mcp.client.bucket import Bucket

MAX_MESSAGE_BYTES = 16 << 20
BURST = 2_000.0
"""Small messages that a server may say unasked at once."""
PER_S = 100.0
"""And how many a second from then on."""
SMALL_BYTES = 16 << 10
"""A larger one counts as several."""
MAX_QUESTIONS = 32
"""Of the server's that are not answered yet."""
CANCELLED = "notifications/cancelled"
LIST_CHANGED = "notifications/tools/list_changed"


class TooMuchError(Exception):
    """The server has lost its right to be heard; the message says why, as a part of a sentence."""


class MessageFilter:
    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """``on_change`` is told when the server says that its tools have changed."""
        self._on_change = on_change
        self._unasked = Bucket(BURST, PER_S, clock)
        self._asked: set[str] = set()
        self._questions = 0

    def sends(self, message: JSONRPCMessage) -> None:
        """Told of everything that goes to the server."""
        if isinstance(message, JSONRPCRequest):
            self._asked.add(str(message.id))
        elif isinstance(message, JSONRPCResponse | JSONRPCError):
            self._questions = max(0, self._questions - 1)
        elif message.method == CANCELLED:
            self._asked.discard(str((message.params or {}).get("requestId")))

    def admits(self, message: JSONRPCMessage, size: int) -> bool:
        """Whether the message is to be looked at further. Raises ``TooMuchError``."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if str(message.id) in self._asked:
                self._asked.discard(str(message.id))
                return True
            self.charge(size)
            return False
        self.charge(size)
        if isinstance(message, JSONRPCNotification):
            if message.method == LIST_CHANGED:
                self._on_change()
            return False
        self._questions += 1
        if self._questions > MAX_QUESTIONS:
            raise TooMuchError("it asks more than it waits to hear")
        return True

    def charge(self, size: int) -> None:
        """Count something of ``size`` bytes that nobody asked for. Raises ``TooMuchError``."""
        if not self._unasked.take(1 + size / SMALL_BYTES):
            raise TooMuchError("it says too much unasked")
