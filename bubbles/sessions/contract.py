"""What a session is (SESS, CTX). Open this file first.

A session is a *desk*, the directory that the model works in, and a *state* directory out of its reach (SESS-07). Its
history is ``session.jsonl`` in the state directory: one JSON object a line, appended only, on the disk (fdatasync)
when a call returns. Lines, by ``kind``:

``session``      the first line: format version, key, when it was made
``user``         a message of a person, a job, or the program itself (``author``)
``assistant``    a reply of the model, with its calls
``call``         intent: the call of this id is about to run
``result``       what a call gave; written before the model sees it
``compaction``   a summary stands for every line before ``kept_from`` (CTX-02)
``turn``         the end of a turn, and how it ended

Every line has ``seq`` (its number, from 0), ``time`` (UTC, ISO 8601) and, but for the first, ``turn`` (an id).

What a crash left open is settled when the history is opened for writing: a call with an intent and no result gets a
result that says its end is unknown and it must not simply be repeated; a call without an intent gets one that says it
was not run. So a history is always valid for a provider (CTX-03), and nothing is ever repeated silently.

SessionError (a BubblesError)
├── SessionBusyError      another process works on this session
└── SessionDamagedError   the history cannot be read at all, or written
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bubbles.bus import Origin
from bubbles.errors import BubblesError
from bubbles.providers.contract import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage


class SessionError(BubblesError):
    """The root of what goes wrong with sessions."""


class SessionBusyError(SessionError):
    """Another process, or another turn of this one, is at work on the session. Names the process."""


class SessionDamagedError(SessionError):
    """A file of the session cannot be used; the message names it and the mend. Nothing was changed."""


class Author(enum.StrEnum):
    """Who wrote a ``user`` line."""

    PERSON = "person"
    JOB = "job"
    """Cron, heartbeat, or a task in the background."""
    PROGRAM = "program"
    """A note of the program for the model, such as that a turn was interrupted. Shown to nobody as a message."""


class TurnEnd(enum.StrEnum):
    DONE = "done"
    LIMIT = "limit"
    """The cap on steps was reached (CORE-02)."""
    STOPPED = "stopped"
    """A person stopped it."""
    FAILED = "failed"
    """The provider, or the program, failed."""
    INTERRUPTED = "interrupted"
    """The program ended in the middle; found at the next opening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of the history that is kept or summarised as one: a user's message, or a reply with all its results."""

    seq: int
    """Of its first line."""
    messages: tuple[Message, ...]
    tokens: int
    """Estimated."""
    author: Author | None
    """Of a user's message; None for a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message that is in the history, and what became of the turn that it belongs to."""

    turn: str
    end: TurnEnd | None = None
    """None: it goes on."""
    reply: str = ""
    """The last words of the turn, if it has ended."""


class History(Protocol):
    """One session's history, open for writing: between ``Session.turn``'s enter and exit. One writer at a time.

    Every method that writes returns when the line is on the disk, and raises ``SessionDamagedError`` if it cannot be
    written; the history is then as it was before.
    """

    @property
    def messages(self) -> Sequence[Message]:
        """What the model gets: the summary, if there is one, as a user's message that says it is one, then what was
        kept. The same objects at every call. While calls are open their results are missing at the end.
        """
        ...

    @property
    def units(self) -> Sequence[Unit]:
        """The kept part, oldest first, without the summary."""
        ...

    @property
    def tokens(self) -> int:
        """Estimate for all of ``messages``."""
        ...

    @property
    def summary(self) -> str | None: ...

    @property
    def open_calls(self) -> Sequence[ToolCall]:
        """Calls of the last reply that have no result yet, in order."""
        ...

    def heard(self, ticket: str) -> Heard | None:
        """What became of the message of this ticket; None if it is not here, or longer ago than is remembered."""
        ...

    def tickets(self, turn: str) -> tuple[str, ...]:
        """Of the messages that this turn had."""
        ...

    async def add_user(
        self, message: UserMessage, *, author: Author, origin: Origin, turn: str, ticket: str = ""
    ) -> None: ...

    async def add_reply(
        self, message: AssistantMessage, *, usage: Usage, model: str, turn: str, begin: bool = False
    ) -> None:
        """``begin``: its first call is about to run, as ``begin_call`` would say; one write for both."""
        ...

    async def begin_call(self, call: ToolCall, *, turn: str) -> None:
        """Before it runs."""
        ...

    async def add_result(self, message: ToolMessage, *, turn: str, full_text: str | None = None) -> None:
        """``full_text``: path of the file that holds all of it, if ``message`` was cut."""
        ...

    async def compact(self, summary: str, *, kept_from: int, turn: str) -> None:
        """``kept_from`` is the ``seq`` of the first unit that is kept, or one past the last line if none is."""
        ...

    async def end_turn(self, end: TurnEnd, *, turn: str, discard: bool = False) -> None:
        """``discard``: nothing of this turn is to be seen by the model again (TOOL-10); the lines stay on the disk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where a session's things are. Absolute paths of the host; ``desk`` is seen at the same path in the sandbox."""

    key: str
    desk: Path
    """``<data_dir>/sessions/<key>``: SOUL.md, MEMORY.md, HEARTBEATS.md, data/, skills/. The model may have put anything
    there: read and clean it only by ``sessions.beneath`` (SESS-09)."""
    state: Path
    """``<data_dir>/session_state/<key>``: session.jsonl, config.json, todo.json, tasks/, blobs/, lock."""

    @property
    def data(self) -> Path:
        """Scratch: what has not been touched for 3 days is removed (SESS-04)."""
        return self.desk / "data"
