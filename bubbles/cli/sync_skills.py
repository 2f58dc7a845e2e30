"""``bubbles sync-skills``: brings the template's skills to every session; what was edited there stays (SESS-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli.report import complain, print_json, visible

if TYPE_CHECKING:
    from bubbles.skills.sync import Synced

SAID = {
    "added": "new: {}",
    "updated": "brought up to date: {}",
    "edited": "edited here, and left as they are: {}",
    "taken_out": "taken out here, and left out: {}",
    "refused": "not written, for something else than a file or folder stands there: {}",
}


def sync_skills(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> int:
    """Bring new and changed skills to every session. A skill that was edited in a session, or taken out, stays so.

    Exit status 1 if a session could not be looked at, such as one that is at work.
    """
    from bubbles.config.load import load_settings
    from bubbles.sessions.session import Sessions
    from bubbles.sessions.workspace import SKILLS_TEMPLATE
    from bubbles.skills.sync import sync

    settings = load_settings()
    sessions = Sessions(settings.data_dir)
    found = sync((sessions.folders(key) for key in sessions.made()), SKILLS_TEMPLATE)
    if as_json:
        every = list(found)
        print_json({"template": str(SKILLS_TEMPLATE), "sessions": [_as_json(each) for each in every]})
    else:
        every = []
        for each in found:
            every.append(each)
            _show(each)
        same = sum(not each.problem and not _lines(each) for each in every)
        print(f"{len(every)} session{'' if len(every) == 1 else 's'}, {same} with nothing to do.")
    return int(any(each.problem for each in every))


def _show(synced: Synced) -> None:
    if synced.problem:
        complain(f"{synced.session}: {synced.problem}")
    for line in _lines(synced):
        print(f"{visible(synced.session)}: {visible(line)}")


def _lines(synced: Synced) -> list[str]:
    names = {name: getattr(synced.brought, name) for name in SAID}
    return [SAID[name].format(", ".join(skills)) for name, skills in names.items() if skills]


def _as_json(synced: Synced) -> dict[str, Any]:
    return {
        "session": synced.session,
        **{name: list(getattr(synced.brought, name)) for name in SAID},
        "problem": synced.problem or None,
    }
