"""Reads what a session's prompt is made of. Files of the desk may be anything: they are opened beneath it (SESS-09)."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime

from bubbles.agent.prompt import MOST_SKILLS, PromptParts, Skill
from bubbles.bus import CLI, Origin, Trigger
from bubbles.config.schema import SessionSettings, Settings
from bubbles.controller.contract import Workplace
from bubbles.sessions import beneath
from bubbles.sessions.contract import Folders, SessionError

HEARTBEATS = "HEARTBEATS.md"
MAX_FILE_BYTES = 1 << 20
MAX_SKILL_BYTES = 256 << 10
MAX_HEAD_LINES = 60
"""Of the front matter of a SKILL.md."""
HELD = {
    "FILESYSTEM": "only the roots can be seen and written",
    "NETWORK": "the network is held",
    "PROCESSES": "other processes are invisible",
    "MEMORY": "memory is limited",
    "CREDENTIALS": "HOME is the session's own",
}
"""What a place's flags mean for the one who works there."""
NO_GROUPS = (CLI, "cron")
"""Channels that are none: the terminal, and the history alone of a job that writes to no chat."""
MENTIONS = "in a group, <@id> in your reply mentions the member with that id; find_person gives ids by name"
ALONE = (
    "{begun}, nobody wrote to you: nobody waits, nobody can be asked, and what would need a yes is declined. "
    "Do what you can without, say at the end what is left, and call stay_silent if there is nothing to say"
)
BEGUN = {Trigger.CRON: "begun by a job", Trigger.HEARTBEAT: "begun by the heartbeat"}

Mask = Callable[[str], str]


async def read_parts(
    folders: Folders,
    settings: Settings,
    *,
    own: SessionSettings,
    place: Workplace,
    origin: Origin,
    mask: Mask = str,
    heartbeat: str = "",
) -> PromptParts:
    """Never fails for what a file is: what cannot be read is said in its place.

    ``heartbeat``: how often the session has one, such as ``30m``; empty if it is off. ``mask`` takes the owner's keys
    out (SEC-03): in a place that holds nothing, a command can put one into a file here.
    """
    today = datetime.now(UTC).astimezone().date()
    beats = origin.trigger is Trigger.HEARTBEAT
    parts = await asyncio.to_thread(_read_parts, folders, settings, own, mask, beats=beats)
    parts = replace(parts, facts=facts_of(folders, place, origin, today), heartbeat=heartbeat)
    if str(place.spec.cwd) == str(folders.desk):
        return parts
    # In a project a relative path means another directory.
    skills = tuple(replace(skill, path=f"{folders.desk}/{skill.path}") for skill in parts.skills)
    return replace(parts, skills=skills)


def _read_parts(folders: Folders, settings: Settings, own: SessionSettings, mask: Mask, *, beats: bool) -> PromptParts:
    """``beats``: the heartbeat's own file too (HB-02)."""
    defaults = settings.agents.defaults
    return PromptParts(
        system_prompts=tuple(mask(text) for text in (defaults.system_prompt, own.system_prompt) if text),
        soul=mask(_text(folders, "SOUL.md")),
        memory=mask(_text(folders, "MEMORY.md")),
        window_tokens=defaults.memory_window_tokens,
        skills=tuple(_skills(folders, mask)),
        duties=mask(_text(folders, HEARTBEATS)) if beats else None,
    )


def facts_of(folders: Folders, place: Workplace, origin: Origin, today: date) -> tuple[tuple[str, str], ...]:
    """The session and its place. The date goes to the day, so that a provider's cache lasts that long."""
    held = ", ".join(HELD[name] for flag in place.enforces if (name := flag.name or "") in HELD)
    return (
        ("Session", origin.session_key),
        ("Channel", origin.address.channel),
        ("Chat", origin.address.chat_id),
        *((("Mentions", MENTIONS),) if origin.address.channel not in NO_GROUPS else ()),
        *(
            ("Root", f"{root.path} ({root.label}, {'can be written' if root.writable else 'read-only'})")
            for root in place.spec.roots
        ),
        ("Desk", str(folders.desk)),
        ("Working directory, which relative paths mean", str(place.spec.cwd)),
        ("Sandbox", f"{place.backend}: {held or 'nothing is held, commands run as on the machine itself'}"),
        ("Network", place.network),
        ("Date", f"{today:%A, %Y-%m-%d}, by the clock of {_zone()}"),
        *((("This turn", ALONE.format(begun=begun)),) if (begun := BEGUN.get(origin.trigger)) else ()),
    )


def _zone() -> str:
    """Of this machine, such as ``CET (UTC+01:00)``."""
    now = datetime.now(UTC).astimezone()
    return f"{now:%Z} (UTC{now:%z})"


def _text(folders: Folders, name: str, max_bytes: int = MAX_FILE_BYTES) -> str:
    try:
        return beneath.read_text(folders.desk, name, max_bytes) or ""
    except (SessionError, OSError):
        return f"[{name} cannot be read: it is no ordinary file, or too large.]"


def _skills(folders: Folders, mask: Mask) -> Iterator[Skill]:
    try:
        found = beneath.list_directory(folders.desk, "skills", most=10 * MOST_SKILLS) or []
    except (SessionError, OSError):
        return
    for entry in found:
        if not stat.S_ISDIR(entry.kind) or entry.name.startswith("."):
            continue
        name = f"skills/{entry.name}/SKILL.md"
        try:
            text = beneath.read_text(folders.desk, name, MAX_SKILL_BYTES)
        except (SessionError, OSError):
            continue
        if text is not None:
            head = front_matter(text)
            yield Skill(
                name=mask(head.get("name") or entry.name),
                description=mask(head.get("description", "")),
                path=mask(name),
            )


def front_matter(text: str) -> dict[str, str]:
    """The plain ``key: value`` lines between the first two ``---``; a value may go on in indented lines."""
    lines = text.splitlines()[: MAX_HEAD_LINES + 1]
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, str] = {}
    key = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return {name: value.strip().strip("\"'") for name, value in fields.items()}
        if line[:1].isspace() and key:
            fields[key] += f" {line.strip()}"
        elif ":" in line:
            key, _, value = (part.strip() for part in line.partition(":"))
            fields[key] = "" if value in {">", "|", ">-", "|-"} else value
    return {}
