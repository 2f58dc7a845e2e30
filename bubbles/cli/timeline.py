"""``bubbles timeline``: what was decided, asked and run."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli.report import complain, session_key, styled, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bubbles.controller.timeline.events import Fields
    from bubbles.controller.timeline.reading import Entry, TimelineReader, Wanted

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
AGO = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
BEGINS_WITH = 10
"""Entries that ``--follow`` shows of what is there already."""
COLUMNS = (("TIME", 19), ("SESSION", 16), ("WHAT", 26), ("POLICY", 21), ("COMMAND", 0))
NOBODY = "nobody to ask"
MIN_COMMAND = 20
ABOVE = 3
"""Columns in the first of two lines."""


def timeline(
    session: Annotated[
        str | None, typer.Option("--session", "-s", metavar="NAME", parser=session_key, help="Only of this session.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Such as 2h, 3d, 2026-11-01 or 2026-11-01T08:00:00Z."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="P", help="Only of this one, such as rules_allow or high_risk.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as stored, one JSON object each.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C. Begins with the last ten.")
    ] = False,
) -> int:
    """Show which commands were allowed, declined or asked about, by which policy, and how they ended."""
    from bubbles.config.load import load_settings
    from bubbles.controller.policy.contract import Policy
    from bubbles.controller.timeline.reading import TimelineReader, Wanted
    from bubbles.controller.timeline.writing import FOLDER

    if policy is not None and policy not in tuple(Policy):
        raise typer.BadParameter(f"--policy {policy!r} is not known: take one of {', '.join(Policy)}")
    wanted = Wanted(session=session, policy=policy, since=None if since is None else moment(since))
    reader = TimelineReader(load_settings().data_dir / FOLDER)
    if follow:
        return _follow(reader, wanted, as_json)
    entries = reader.entries(wanted)
    first = next(entries, None)
    if first is None and not as_json:
        filtered = wanted != Wanted() and reader.files()
        print(
            "Nothing in the timeline is like that."
            if filtered
            else "The timeline is empty: nothing has passed the gate yet."
        )
    elif first is not None:
        _show(chain((first,), entries), as_json)
    _own_up(reader)
    return 0


def moment(text: str, now: datetime | None = None) -> datetime:
    """When ``--since`` is. Without a zone it is local time. Raises typer.BadParameter."""
    said = f"--since {text!r} is no time: take 2h, 3d, 2026-11-01 or 2026-11-01T08:00:00Z"
    try:
        if ago := AGO.fullmatch(text.strip()):
            return (now or datetime.now(UTC)) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(said) from error


def _follow(reader: TimelineReader, wanted: Wanted, as_json: bool) -> int:
    there: Iterable[Entry] = reader.entries(wanted)
    if wanted.since is None:
        there = deque(there, maxlen=BEGINS_WITH)
    _show(chain(there, reader.follow(wanted)), as_json)
    return 0


def _show(entries: Iterable[Entry], as_json: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if not as_json:
        print(styled(row(tuple(name for name, _ in COLUMNS), width), "bold"))
    for entry in entries:
        print(_stored(entry) if as_json else row(_cells(entry), width), flush=True)


def _stored(entry: Entry) -> str:
    """The line itself; one that somebody edited by hand may hold what a terminal must not get."""
    line = entry.line
    return line if line.isascii() and line.isprintable() else json.dumps(entry.fields)


def row(cells: tuple[str, ...], width: int | None) -> str:
    """Cells in columns that do not depend on what comes later, in two lines where a terminal is too narrow for one; the
    last cell fills its line.
    """
    columns = [_cut(cell, wide).ljust(wide) for cell, (_, wide) in zip(cells[:-1], COLUMNS, strict=False)]
    before = "  ".join(columns)
    above = ""
    if width is not None and width < len(before) + 3 + MIN_COMMAND:
        above = "  ".join(columns[:ABOVE]).rstrip() + "\n"
        before = "  ".join(("", *columns[ABOVE:]))
    room = None if width is None else max(MIN_COMMAND, width - len(before) - 3)
    return f"{above}{before}  {_cut(cells[-1], room)}".rstrip()


def _cut(cell: str, room: int | None) -> str:
    text = visible(cell)
    return text if room is None or len(text) <= room else text[: room - 1] + "…"


def _cells(entry: Entry) -> tuple[str, ...]:
    fields = entry.fields
    return (
        f"{entry.at.astimezone():%Y-%m-%d %H:%M:%S}",
        _text(fields, "session"),
        _happened(fields),
        _text(fields, "policy"),
        _text(fields, "command") or _text(fields, "path"),
    )


def _happened(fields: Fields) -> str:
    """What the entry says, in two or three words."""
    event, outcome, card = (_text(fields, name) for name in ("event", "outcome", "approval"))
    match event:
        case "approval_auto_resolved":
            return "allowed"
        case "approval_auto_declined":
            return "declined"
        case "approval_requested":
            return f"asked [{card}]"
        case "approval_resolved":
            by = f" by {_text(fields, 'by')}" if fields.get("by") else ""
            return f"{NOBODY if outcome == 'nobody' else outcome.replace('_', ' ')} [{card}]{by}"
        case "command_started":
            return "started"
        case "file_written":
            return "file written"
        case "command_finished":
            status = f" {fields['exit_code']}" if isinstance(fields.get("exit_code"), int) else ""
            took = fields.get("duration_s")
            known = isinstance(took, int | float) and 0 <= took < 1e9
            return f"{outcome}{status}{f', {took:.1f} s' if known else ''}"
    return event


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _own_up(reader: TimelineReader) -> None:
    if reader.damaged:
        lines = "1 damaged line was" if reader.damaged == 1 else f"{reader.damaged} damaged lines were"
        complain(f"{lines} left out of the timeline.")
