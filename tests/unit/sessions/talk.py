"""Short ways to write a conversation down, for the tests of sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bubbles.bus import Address, Origin
from bubbles.providers.contract import NO_USAGE, AssistantMessage, Image, Message, ToolCall, ToolMessage, UserMessage
from bubbles.sessions.contract import Author, History
from bubbles.sessions.session import Session, Sessions

ORIGIN = Origin(session_key="work", address=Address(channel="cli", chat_id="terminal"), sender="me")
NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
PNG = Image(media_type="image/png", data=b"\x89PNG not really")


def call(name: str = "a", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=name, name="exec", arguments=arguments)


async def say(history: History, text: str, turn: str = "t1", *, author: Author = Author.PERSON, **more: Any) -> None:
    await history.add_user(UserMessage(text=text, **more), author=author, origin=ORIGIN, turn=turn)


async def reply(history: History, text: str, *calls: str, turn: str = "t1") -> None:
    message = AssistantMessage(text=text, tool_calls=tuple(map(call, calls)))
    await history.add_reply(message, usage=NO_USAGE, model="m", turn=turn)


async def result(history: History, name: str, text: str = "", turn: str = "t1", **more: Any) -> None:
    message = ToolMessage(call_id=name, name="exec", text=text or f"of {name}", **more)
    await history.add_result(message, turn=turn)


async def act(history: History, text: str, *calls: str, turn: str = "t1") -> None:
    """A reply whose calls run."""
    await reply(history, text, *calls, turn=turn)
    for open_call in history.open_calls:
        await history.begin_call(open_call, turn=turn)
        await result(history, open_call.id, turn=turn)


def shown(messages: Sequence[Message]) -> list[str]:
    """Each message in a word: who, its text, its calls."""
    return [_shown(message) for message in messages]


def _shown(message: Message) -> str:
    if isinstance(message, UserMessage):
        return f"user: {message.text}"
    if isinstance(message, ToolMessage):
        return f"{message.call_id}: {message.text}"
    return " ".join([f"model: {message.text}", *(f"[{call.id}]" for call in message.tool_calls)])


def check_valid(messages: Sequence[Message]) -> None:
    """What a provider demands: behind a reply, exactly the results of its calls, in their order (CTX-03)."""
    waiting: list[str] = []
    ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.call_id == waiting.pop(0)
            continue
        assert waiting == []
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
            ids += waiting
    assert waiting == []
    assert len(ids) == len(set(ids))


class Desk:
    """One session's files, and fresh looks at it as another process would have them."""

    def __init__(self, data_dir: Path, key: str = "work") -> None:
        self.key = key
        self.sessions = Sessions(data_dir, now=lambda: NOW)
        self.folders = self.sessions.folders(key)
        self.file = self.folders.state / "session.jsonl"

    async def session(self) -> Session:
        """As of a program that has just started."""
        return await Sessions(self.sessions.folders(self.key).state.parents[1], now=lambda: NOW).open(self.key)

    async def read(self) -> list[str]:
        async with (await self.session()).turn() as history:
            check_valid(history.messages)
            return shown(history.messages)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.lines]

    def put(self, *lines: dict[str, Any] | bytes, key: str = "work") -> None:
        """A file of these lines; numbers and the first line are put in."""
        rows: list[dict[str, Any] | bytes] = [{"kind": "session", "version": 1, "key": key}, *lines]
        self.folders.state.mkdir(parents=True, exist_ok=True)
        with self.file.open("wb") as stream:
            for seq, row in enumerate(rows):
                full = row if isinstance(row, bytes) else json.dumps({"seq": seq, "turn": "t1", **row}).encode()
                stream.write(full + b"\n")
