"""Names of sessions as they are typed."""

from __future__ import annotations

from bubbles.sessions.contract import SessionError
from bubbles.sessions.key import display, named


def name_of(key: str) -> str:
    """What ``-s`` and ``/session`` take for this session: its plain name, or its key where no name can be typed."""
    name = display(key)
    try:
        return name if named(name) == key else key
    except SessionError:
        return key
