"""The directories of a session: made once, and the links of the desk put right at every turn. All of it blocks.

Nothing that the program obeys is read through the desk: ``session.jsonl`` and ``config.json`` stand there as links for
people, and what a model puts in their place is renamed and has no effect (SESS-07; B125, B131).
"""

from __future__ import annotations

from pathlib import Path

from bubbles.sessions import beneath, skillset
from bubbles.sessions.contract import Folders, SessionDamagedError
from bubbles.sessions.journal import FILE

CONFIG = "config.json"
LINKS = (FILE, CONFIG)
SKILLS_TEMPLATE = Path(__file__).parents[2] / "skills_template"
"""Of a checkout. Where it is missing, a new session has no skills."""

SOUL = """\
# Soul

You are Bubbles, a personal assistant.

- Say what is so, briefly and kindly. If you do not know, say that, and look it up if you can.
- Do what was asked, whole; ask first when it could mean two things and the wrong one would cost something.
- What belongs to the person is not yours to lose: look before you change, keep what you cannot restore.

This file is yours and your person's: either of you may rewrite it.
"""
MEMORY = """\
# Memory

What is worth knowing next time: facts about the person, decisions, where things are.
"""


def prepare(folders: Folders, template: Path = SKILLS_TEMPLATE) -> list[str]:
    """Make what is missing; sentences for the person about what was in the way. Raises SessionDamagedError."""
    try:
        folders.state.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders.state.parent.mkdir(mode=0o700, exist_ok=True)
        folders.state.mkdir(mode=0o700, exist_ok=True)
        if folders.state.stat().st_mode & 0o077:
            folders.state.chmod(0o700)
        folders.desk.parent.mkdir(exist_ok=True)
        folders.desk.mkdir(mode=0o700, exist_ok=True)
        if not (folders.state / FILE).exists():
            _furnish(folders, template)
        beneath.make_directory(folders.desk, "data")
        return _link(folders)
    except OSError as error:
        raise SessionDamagedError(
            f"The folders of session {folders.key} cannot be used: {error.filename or folders.desk}, "
            f"{error.strerror or error}. Mend that, or use another session."
        ) from error


def _furnish(folders: Folders, template: Path) -> None:
    """What a new session has. Nothing that is there is touched: it may be the desk of one that lost its history.

    ``config.json`` comes last: where it is, an earlier start got as far, and what is not there was removed.
    """
    beneath.write_bytes(folders.desk, "SOUL.md", SOUL.encode(), replace=False)
    beneath.write_bytes(folders.desk, "MEMORY.md", MEMORY.encode(), replace=False)
    if not (folders.state / CONFIG).exists():
        skillset.bring(folders, template)
        beneath.write_bytes(folders.state, CONFIG, b"{}\n", mode=0o600, replace=False)


def _link(folders: Folders) -> list[str]:
    warnings = []
    for name in LINKS:
        try:
            aside = beneath.put_link(folders.desk, name, folders.state / name)
        except beneath.RefusedError as error:
            warnings.append(str(error))  # the link is for people: without it the session works as well
            continue
        if aside is not None:
            warnings.append(
                f"{name} in the desk of session {folders.key} was something else than the link that it is for you. "
                f"The link is back; what was there is now {folders.desk / aside}, and has no effect."
            )
    return warnings
