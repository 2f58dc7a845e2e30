"""A session's copy of the template's skills: what it was given, and how new ones come to it (SESS-05, SKILL-02).

What was given is kept by its digest in ``skills.json`` of the state directory. A copy that differs from it was edited,
and one that is missing was taken out: both are the person's wish and stay. All of it blocks.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bubbles.config.files import content, replace
from bubbles.sessions import beneath
from bubbles.sessions.contract import Folders

GIVEN = "skills.json"
FOLDER = "skills"
SKILL = "SKILL.md"
"""Without it a folder is no skill."""
MAX_FILES = 5_000
MAX_FILE_BYTES = 64 << 20
MAX_GIVEN_BYTES = 4 << 20

Digests = dict[str, str]
"""By the name below ``skills/``, SHA-256 in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Names of skills, by what became of them in one session."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    """The template has another version, and so has the session: left as it is."""
    taken_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Something else stands where its files would be, such as a link."""


def template_files(template: Path) -> Iterator[Path]:
    """Every directory before what is in it. Files beside the skills' folders are about the template, and no skill."""
    found = sorted(template.glob("*/")) if template.is_dir() else []
    pending = [path for path in reversed(found) if path.is_dir()]
    for _ in range(MAX_FILES):
        if not pending:
            return
        path = pending.pop()
        if path.is_symlink() or path.name == "__pycache__":
            continue
        yield path
        if path.is_dir():
            pending.extend(sorted(path.iterdir(), reverse=True))


def bring(folders: Folders, template: Path) -> Brought:
    """Give the session what is new or changed in the template. Raises SessionError or OSError.

    Nobody else may be at work on the session. A crash leaves whole files, and the next call goes on from there.
    """
    given = _load(folders)
    beneath.make_directory(folders.desk, FOLDER)
    outcomes: dict[str, list[str]] = {name: [] for name in ("added", "updated", "edited", "taken_out", "refused")}
    for skill, files in _skills(template).items():
        try:
            outcome = _bring(folders, skill, files, given)
        except beneath.RefusedError:
            outcome = "refused"
        if outcome:
            outcomes[outcome].append(skill)
    return Brought(**{name: tuple(skills) for name, skills in outcomes.items()})


def _bring(folders: Folders, skill: str, files: Mapping[str, Path], given: Digests) -> str:
    """What became of the skill; empty if there was nothing to do."""
    before = {name: given[name] for name in files if name in given}
    now = {name: _digest_of(folders, name) for name in files}
    wanted = {name: _digest(path.read_bytes()) for name, path in files.items()}
    if now == wanted:
        _note(folders, given, wanted)
        return ""
    known = given.get(f"{skill}/{SKILL}")
    if known is not None and now.get(f"{skill}/{SKILL}") is None:
        return "taken_out"
    if any(digest is not None and digest not in (before.get(name), wanted[name]) for name, digest in now.items()):
        return "edited"
    if any(now[name] is None for name in before):
        return "edited"  # a part of it was taken out
    fresh = all(digest is None for digest in now.values())
    for name, path in files.items():
        if now[name] != wanted[name]:
            _write(folders, name, path)
    # Last: a file that is as wanted counts as given, so that what is killed in between goes on from there.
    _note(folders, given, wanted)
    return "added" if fresh else "updated"


def _write(folders: Folders, name: str, path: Path) -> None:
    parts = Path(FOLDER, name).parts
    for end in range(2, len(parts)):
        beneath.make_directory(folders.desk, str(Path(*parts[:end])))
    mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    whole, data = f"{FOLDER}/{name}", path.read_bytes()
    if not beneath.write_bytes(folders.desk, whole, data, mode=mode, replace=False):
        beneath.remove_half_written(folders.desk, whole)
        beneath.write_bytes(folders.desk, whole, data, mode=mode)


def _skills(template: Path) -> dict[str, dict[str, Path]]:
    """The files of each skill by their names below ``skills/``."""
    skills: dict[str, dict[str, Path]] = {}
    for path in template_files(template):
        name = path.relative_to(template)
        if not path.is_dir():
            skills.setdefault(name.parts[0], {})[name.as_posix()] = path
    return {skill: files for skill, files in skills.items() if f"{skill}/{SKILL}" in files}


def _digest_of(folders: Folders, name: str) -> str | None:
    try:
        data = beneath.read_bytes(folders.desk, f"{FOLDER}/{name}", MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    return None if data is None else _digest(data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _load(folders: Folders) -> Digests:
    """What was given, by what is kept of it; nothing if that is not there or damaged: then every copy that differs
    counts as edited.
    """
    try:
        found = json.loads(content(folders.state / GIVEN, MAX_GIVEN_BYTES))["files"]
        return {name: digest for name, digest in found.items() if isinstance(digest, str)}
    except (FileNotFoundError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def _note(folders: Folders, given: Digests, new: Mapping[str, str]) -> None:
    if all(given.get(name) == digest for name, digest in new.items()):
        return
    given.update(new)
    replace(folders.state / GIVEN, json.dumps({"files": dict(sorted(given.items()))}, indent=1) + "\n")
