"""Messages as JSON, in ASCII alone: a lone surrogate, or a NUL, that a platform sends does not hinder the disk."""

from __future__ import annotations

import json
from typing import Any

from bubbles.bus import Address, InboundMessage, Kind, Trigger
from bubbles.channels.contract import Piece


def inbound(message: InboundMessage) -> str:
    """All but its ticket, which is the row's own, and whether it was resumed."""
    return json.dumps(
        {
            "channel": message.address.channel,
            "chat": message.address.chat_id,
            "sender": message.sender,
            "text": message.text,
            "message_id": message.message_id,
            "is_group": message.is_group,
            "trigger": message.trigger.value,
            "reply_to": message.reply_to,
            "session_key": message.session_key,
            "task": message.task,
        }
    )


def read_inbound(body: str, ticket: str) -> InboundMessage:
    """Of an earlier process. Raises ValueError, KeyError, TypeError, RecursionError."""
    fields = _fields(body, ("channel", "chat", "sender", "text", "message_id", "task"))
    return InboundMessage(
        address=Address(channel=fields["channel"], chat_id=fields["chat"]),
        sender=fields["sender"],
        text=fields["text"],
        message_id=fields["message_id"],
        is_group=bool(fields["is_group"]),
        trigger=Trigger(fields["trigger"]),
        reply_to=fields["reply_to"],
        session_key=fields["session_key"],
        task=fields["task"],
        ticket=ticket,
        resumed=True,
    )


def piece(piece: Piece) -> str:
    return json.dumps(
        {
            "chat": piece.chat_id,
            "text": piece.text,
            "kind": piece.kind.value,
            "reply_to": piece.reply_to,
            "card": piece.card,
        }
    )


def read_piece(body: str) -> Piece:
    """Raises ValueError, KeyError, TypeError, RecursionError."""
    fields = _fields(body, ("chat", "text"))
    return Piece(
        chat_id=fields["chat"],
        text=fields["text"],
        kind=Kind(fields["kind"]),
        reply_to=fields["reply_to"],
        card=fields["card"],
    )


def _fields(body: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """One row that somebody else has written must not keep all of it from being read."""
    fields: dict[str, Any] = json.loads(body)
    for name in texts:
        if not isinstance(fields[name], str):
            raise TypeError(f"{name} is no text")
    return fields


def column(text: str) -> str:
    """The same for what is looked for: SQLite takes no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
