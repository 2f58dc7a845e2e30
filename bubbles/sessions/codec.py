"""How an entry is written as one line of JSON, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bubbles.bus import Origin
from bubbles.providers.contract import NOTHING, AssistantMessage, Image, ToolCall, ToolMessage, Usage, UserMessage
from bubbles.sessions.contract import Author, TurnEnd
from bubbles.sessions.entries import (
    Began,
    Compacted,
    Content,
    Ended,
    Entry,
    Opened,
    Other,
    Replied,
    Resulted,
    Said,
    Skipped,
)
from bubbles.sessions.wellformed import clean

Fields = dict[str, Any]
Blob = Callable[[str], bytes | None]
"""The picture of this SHA-256, if it is there."""

COMPACTION_MARK = b'"kind":"compaction"'
"""In a text of a line the quotes would have backslashes before them."""
MISSING = "\n[A picture of this message is lost.]"
_BLOB = re.compile(r"[0-9a-f]{64}")
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""What could do something to the terminal or the editor of a person who reads the file."""


def encode(entry: Entry, time: datetime, blob_of: Callable[[Image], str]) -> bytes:
    """The line with its newline."""
    fields: Fields = {"seq": entry.seq, "time": _timestamp(time)}
    if not isinstance(entry.content, Opened):
        fields["turn"] = entry.turn
    fields |= _fields(entry.content, blob_of)
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=dict)
    text = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return clean(text).encode() + b"\n"


def decode(line: bytes, blob: Blob) -> Entry:
    """ValueError for what is no line of a history. One of an unknown kind is ``Other``."""
    try:
        fields = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    seq = _number(fields, "seq")
    kind = _text(fields, "kind")
    turn = _text(fields, "turn") if kind != "session" else ""
    return Entry(seq=seq, turn=turn, content=_READERS.get(kind, _other)(fields, blob))


def is_json(line: bytes) -> bool:
    """Whether it is a whole object: a part of one never is."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(content: Content, blob_of: Callable[[Image], str]) -> Fields:
    match content:
        case Opened():
            return {"kind": "session", "version": content.version, "key": content.key}
        case Said():
            return {
                "kind": "user",
                "author": str(content.author),
                **_origin(content.origin),
                **({"ticket": content.ticket} if content.ticket else {}),
                "text": content.message.text,
                **_images(content.message, blob_of),
            }
        case Replied():
            return {"kind": "assistant", **_reply(content)}
        case Began():
            return {"kind": "call", "reply": content.reply, "id": content.call_id, "name": content.name}
        case Resulted():
            message = content.message
            return {
                "kind": "result",
                "reply": content.reply,
                "id": message.call_id,
                "name": message.name,
                "error": message.is_error,
                "text": message.text,
                **_images(message, blob_of),
                **({} if content.full_text is None else {"full_text": content.full_text}),
            }
        case Compacted():
            return {
                "kind": "compaction",
                "kept_from": content.kept_from,
                "open_turn": content.open_turn,
                **({"tickets": list(content.tickets)} if content.tickets else {}),
                "offset": content.offset,
                "summary": content.summary,
            }
        case Ended():
            return {"kind": "turn", "end": str(content.end), **({"discard": True} if content.discard else {})}
        case Skipped():
            return {"kind": "skipped", "before": content.before}
        case Other():
            raise ValueError("what is not known is not written")


def _origin(origin: Origin | None) -> Fields:
    if origin is None:
        return {}
    return {
        "from": {
            "channel": origin.address.channel,
            "chat": origin.address.chat_id,
            "sender": origin.sender,
            "trigger": str(origin.trigger),
        }
    }


def _images(message: UserMessage | ToolMessage, blob_of: Callable[[Image], str]) -> Fields:
    if not message.images:
        return {}
    return {"images": [{"type": image.media_type, "blob": blob_of(image)} for image in message.images]}


def _reply(content: Replied) -> Fields:
    message = content.message
    return {
        "model": content.model,
        "provider": message.provider,
        "usage": {
            "input": content.usage.input_tokens,
            "output": content.usage.output_tokens,
            "cached": content.usage.cached_tokens,
        },
        "text": message.text,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, **_vendor(call.vendor)}
            for call in message.tool_calls
        ],
        **_vendor(message.vendor),
    }


def _vendor(fields: Mapping[str, Any]) -> Fields:
    return {"vendor": dict(fields)} if fields else {}


def _read_user(fields: Fields, blob: Blob) -> Said:
    text, images = _pictures(fields, blob)
    ticket = _text(fields, "ticket") if "ticket" in fields else ""
    return Said(message=UserMessage(text=text, images=images), author=Author(_text(fields, "author")), ticket=ticket)


def _read_reply(fields: Fields, _: Blob) -> Replied:
    calls = fields.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError("calls")
    message = AssistantMessage(
        text=_text(fields, "text"),
        tool_calls=tuple(
            ToolCall(
                id=_text(call, "id"),
                name=_text(call, "name"),
                arguments=_text(call, "arguments"),
                vendor=_mapping(call, "vendor"),
            )
            for call in calls
        ),
        vendor=_mapping(fields, "vendor"),
        provider=_text(fields, "provider"),
    )
    usage = _mapping(fields, "usage")
    counts = [usage.get(name, 0) for name in ("input", "output", "cached")]
    if not all(isinstance(count, int) for count in counts):
        raise ValueError("usage")
    return Replied(
        message=message,
        usage=Usage(input_tokens=counts[0], output_tokens=counts[1], cached_tokens=counts[2]),
        model=_text(fields, "model"),
    )


def _read_call(fields: Fields, _: Blob) -> Began:
    return Began(reply=_number(fields, "reply"), call_id=_text(fields, "id"), name=_text(fields, "name"))


def _read_result(fields: Fields, blob: Blob) -> Resulted:
    text, images = _pictures(fields, blob)
    message = ToolMessage(
        call_id=_text(fields, "id"),
        name=_text(fields, "name"),
        text=text,
        is_error=fields.get("error") is True,
        images=images,
    )
    full_text = fields.get("full_text")
    return Resulted(
        reply=_number(fields, "reply"), message=message, full_text=full_text if isinstance(full_text, str) else None
    )


def _read_compaction(fields: Fields, _: Blob) -> Compacted:
    return Compacted(
        summary=_text(fields, "summary"),
        kept_from=_number(fields, "kept_from"),
        open_turn=None if fields.get("open_turn") is None else _text(fields, "open_turn"),
        tickets=_texts(fields, "tickets"),
        offset=None if fields.get("offset") is None else _number(fields, "offset"),
    )


def _read_turn(fields: Fields, _: Blob) -> Ended:
    return Ended(end=TurnEnd(_text(fields, "end")), discard=fields.get("discard") is True)


def _read_session(fields: Fields, _: Blob) -> Opened:
    return Opened(key=_text(fields, "key"), version=_number(fields, "version"))


def _read_skipped(fields: Fields, _: Blob) -> Skipped:
    return Skipped(before=_number(fields, "before"))


def _other(_fields: Fields, _: Blob) -> Other:
    return Other()


_READERS: Mapping[str, Callable[[Fields, Blob], Content]] = {
    "session": _read_session,
    "user": _read_user,
    "assistant": _read_reply,
    "call": _read_call,
    "result": _read_result,
    "compaction": _read_compaction,
    "turn": _read_turn,
    "skipped": _read_skipped,
}


def _pictures(fields: Fields, blob: Blob) -> tuple[str, tuple[Image, ...]]:
    text, rows = _text(fields, "text"), fields.get("images", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("images")
    images: list[Image] = []
    for row in rows:
        name = _text(row, "blob")
        data = blob(name) if _BLOB.fullmatch(name) else None
        if data is None:
            text += MISSING
        else:
            images.append(Image(media_type=_text(row, "type"), data=data))
    return text, tuple(images)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(name)
    return value


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(name)
    return tuple(value)


def _number(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 60:
        raise ValueError(name)
    return value


def _mapping(fields: Fields, name: str) -> Mapping[str, Any]:
    value = fields.get(name, NOTHING)
    if not isinstance(value, Mapping):
        raise ValueError(name)
    return value or NOTHING
