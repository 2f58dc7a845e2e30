"""How many tokens a text is likely to be. An estimate, without any vendor's tables; the agent corrects it by what
providers count.
"""

from __future__ import annotations

import json

from bubbles.providers.contract import AssistantMessage, Message, ToolCall, ToolMessage

ASCII_BYTES = 4
"""Of one token of English or of code, about."""
OTHER_BYTES = 3
"""Of one token of anything else, in UTF-8: a Chinese character, or one and a half Cyrillic letters."""
IMAGE = 1_600
"""What vendors count for a picture of about 1500 by 1000 pixels; larger ones are scaled down by them."""
MESSAGE = 4
"""What marks the bounds of a message, or of a call, in addition to its text."""


def estimate(text: str) -> int:
    """Tokens of ``text``, rounded up. The cost is that of encoding it once."""
    if text.isascii():
        return -(-len(text) // ASCII_BYTES)
    ascii_bytes = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_bytes
    return -(-ascii_bytes // ASCII_BYTES) - (-other_bytes // OTHER_BYTES)


def of_message(message: Message) -> int:
    """Tokens of a whole message: its text, its pictures, its calls, and what the vendor wants back."""
    tokens = MESSAGE + estimate(message.text)
    if isinstance(message, AssistantMessage):
        tokens += sum(_of_call(call) for call in message.tool_calls) + _of_vendor(message)
        return tokens
    if isinstance(message, ToolMessage):
        tokens += estimate(message.call_id)
    return tokens + IMAGE * len(message.images)


def _of_call(call: ToolCall) -> int:
    return MESSAGE + estimate(call.id) + estimate(call.name) + estimate(call.arguments) + _of_vendor(call)


def _of_vendor(holder: AssistantMessage | ToolCall) -> int:
    return estimate(json.dumps(dict(holder.vendor), default=str)) if holder.vendor else 0
