"""Writes to a chat (TOOL-04). Which one is always said: no call is answered by what the program did last (B046)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bubbles.bus import Address, Origin
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.files import quoted
from bubbles.tools.services import Courier, ServiceError

MAX_TEXT = 50_000
"""Characters. Channels split what is too long for their platform."""
MAX_ID = 500
MAX_HINT = 40


class MessageArgs(Args):
    channel: Annotated[str, Field(min_length=1, max_length=64)]
    """Such as telegram."""
    chat_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    """The channel's own id of the chat, as it stands in the prompt or as the person named it."""
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class Message:
    name = "message"
    args = MessageArgs

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    @property
    def description(self) -> str:
        return (
            "Send a message to a chat, such as another one than this. Your reply reaches this chat by itself: do not "
            "send it twice. Only chats that the owner has let in can be written to."
        )

    def offered(self, origin: Origin) -> bool:
        del origin
        return bool(self._courier.channels)

    def hint(self, args: MessageArgs) -> str:
        return f"message({args.channel}, {args.chat_id[:MAX_HINT]}, {quoted(args.text[:MAX_HINT])})"

    async def run(self, args: MessageArgs, origin: Origin) -> ToolResult:
        if not args.text.strip():
            raise ToolError("The text is blank: say something, or send nothing.")
        known = self._courier.channels
        if args.channel not in known:
            raise ToolError(f"There is no channel {args.channel!r} that is on: take one of {', '.join(known)}.")
        if not args.chat_id.isprintable() or not args.chat_id.strip():
            raise ToolError("chat_id is no id: it is one line without control characters.")
        address = Address(channel=args.channel, chat_id=args.chat_id)
        try:
            await self._courier.send(address, args.text, origin)
        except ServiceError as error:
            raise ToolError(str(error)) from None
        return ToolResult(text=f"It is on its way to {args.channel}, chat {args.chat_id}.")
