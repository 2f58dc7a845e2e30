"""What the blacklist says of a command. Open this file first.

Every checker of this package is a function ``(call: Call) -> Iterator[Hit]``; ``tables.py`` says which programs it is
asked about, ``search.py`` asks. A checker may be wrong only in one direction: what it misses is caught later by a
person, what it finds no rule can lift.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bubbles.controller.policy.blacklist.ground import Ground
from bubbles.controller.policy.shell.reading import Segment


class Tier(enum.IntEnum):
    """How bad it is; the greater the worse."""

    HIGH_RISK = 1
    """A person is always asked."""
    DESTRUCTIVE = 2
    """Refused outright."""


class Hit(NamedTuple):
    """One thing found in one command."""

    tier: Tier
    reason: str
    """A clause for the person, without a full stop."""


@dataclass(frozen=True, slots=True)
class Finding:
    tier: Tier
    reason: str
    """A clause for the person, without a full stop: ``rm -r of the home directory``."""
    segment: Segment


@dataclass(frozen=True, slots=True)
class Call:
    """One argv to be judged: that of a segment, or one that a program would start on its behalf."""

    program: str
    """The base name, in lower case, without ``.exe``."""
    args: tuple[str, ...]
    segment: Segment
    ground: Ground

    def of(self, program: str, *args: str) -> Call:
        """The same place, another command."""
        return Call(program, args, self.segment, self.ground)


Checker = Callable[[Call], Iterator[Hit]]
Table = dict[str, Checker]


def destructive(reason: str) -> Hit:
    return Hit(Tier.DESTRUCTIVE, reason)


def high_risk(reason: str) -> Hit:
    return Hit(Tier.HIGH_RISK, reason)


def every(names: str, checker: Checker) -> Table:
    """``checker`` for each of the programs in ``names``."""
    return dict.fromkeys(names.split(), checker)
