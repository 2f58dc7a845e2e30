"""Time zones, and which moment a local time is where clocks are put forward or back (SPEC 7.3)."""

from __future__ import annotations

import difflib
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

from bubbles.controller.approvals.card import shown_line
from bubbles.cron.contract import JobError

MAX_NAME = 64
_NO_ZONES = ("localtime", "posixrules", "Factory")
_OTHER_TREES = ("right/", "posix/")
"""Some systems keep the whole data base there again, once with leap seconds, which no clock here has."""
_SECOND = timedelta(seconds=1)
_NEAR = 3


class MachineZone(tzinfo):
    """The machine's own zone as its C library has it: of ``/etc/localtime``, or of the environment it started with.

    Unlike a zone of the data base it need not have a name.
    """

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:  # noqa: ARG002 - unknown, and nothing asks
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        local = moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
        is_second = local.astimezone(UTC) != moment.replace(tzinfo=UTC)
        return local.replace(tzinfo=self, fold=int(is_second))


MACHINE = MachineZone()


def zone_of(name: str | None) -> tzinfo:
    """Reads the disk the first time. Raises ``JobError`` with names that are near it."""
    if name is None:
        return MACHINE
    if name not in _NO_ZONES and not name.startswith(_OTHER_TREES) and len(name) <= MAX_NAME:
        try:
            return zoneinfo.ZoneInfo(name)
        # A directory of the data base is IsADirectoryError on some systems, a file of another kind ValueError.
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise JobError(f"zone cannot be '{shown_line(name[:MAX_NAME])}': {_mend(name[:MAX_NAME])}.")


def _mend(name: str) -> str:
    known = {zone.casefold(): zone for zone in zoneinfo.available_timezones() if zone not in _NO_ZONES}
    if not known:
        return "this machine has no time zone data; install the system's tzdata, or leave zone out"
    wanted = name.strip().replace(" ", "_").casefold()
    near = [zone for folded, zone in sorted(known.items()) if wanted in (folded, folded.rpartition("/")[2])]
    near = near or [known[folded] for folded in difflib.get_close_matches(wanted, known, _NEAR)]
    example = " or ".join(near[:_NEAR]) if near else "Europe/Berlin"
    return f"write a name of the IANA data base, such as {example}"


def first(local: datetime, zone: tzinfo) -> datetime:
    """The moment in UTC at which clocks in ``zone`` show ``local``: the first, if they do twice; the end of the gap, if
    they never do. ``local`` has no zone.
    """
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    # In a gap, fold=1 gives a moment before the change and fold=0 one after it. Source: PEP 495.
    before, after = local.replace(tzinfo=zone, fold=1).astimezone(UTC), moment
    old = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


def repeated(local: datetime, zone: tzinfo) -> timedelta:
    """How far the two moments lie apart at which clocks in ``zone`` show ``local``; zero unless they do twice."""
    apart = local.replace(tzinfo=zone, fold=1).astimezone(UTC) - local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return max(apart, timedelta(0))
