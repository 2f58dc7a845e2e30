"""Brings the template's skills to every session (SESS-05)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bubbles.sessions import skillset
from bubbles.sessions.contract import Folders, SessionBusyError, SessionError
from bubbles.sessions.key import display
from bubbles.sessions.lock import SessionLock
from bubbles.sessions.skillset import Brought

PROGRAM = "bubbles sync-skills"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """One session's part of it."""

    session: str
    """As a person writes it."""
    brought: Brought = Brought()  # noqa: RUF009 - frozen
    problem: str = ""
    """Why nothing could be done here; one sentence for the person."""
    busy: bool = False
    """A turn was at work there: it is for another time."""


def sync(sessions: Iterator[Folders], template: Path) -> Iterator[Synced]:
    """Each session after the other; what is wrong with one holds up no other. Blocks."""
    for folders in sessions:
        lock = SessionLock(display(folders.key), folders.state / "lock", PROGRAM)
        name = display(folders.key)
        try:
            lock.take(datetime.now(UTC))
            yield Synced(session=name, brought=skillset.bring(folders, template))
        except SessionBusyError as error:
            yield Synced(session=name, problem=str(error), busy=True)
        except SessionError as error:
            yield Synced(session=name, problem=str(error))
        except OSError as error:
            yield Synced(session=name, problem=f"its files cannot be used ({error.strerror or error}).")
        finally:
            lock.release()
