"""Which checkers look at which program."""

from __future__ import annotations

from bubbles.controller.policy.blacklist import deletion, devices, files, git, remote, services, system
from bubbles.controller.policy.blacklist.finding import Checker


def _joined() -> dict[str, tuple[Checker, ...]]:
    joined: dict[str, tuple[Checker, ...]] = {}
    for family in (deletion, devices, system, remote, files, git, services):
        for program, checker in family.TABLE.items():
            joined[program] = (*joined.get(program, ()), checker)
    return joined


CHECKERS = _joined()
VERSIONED = frozenset(remote.SHELLS) | frozenset(remote.SPEAKERS)
"""Programs whose name often ends in a version."""
