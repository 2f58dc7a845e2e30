"""The lane: local, low-risk validation that runs without a card (DEC-03). ``table.py`` gives the form, the families the
entries, ``walk.py`` reads a command by them.
"""

from bubbles.controller.policy.lane.judge import PROGRAMS, judge
from bubbles.controller.policy.lane.surroundings import harmless, inert

__all__ = ["harmless", "inert", "judge", "takes_data"]


def takes_data(program: str) -> bool:
    """Whether the words behind this program are known to be no command of their own, or one that is seen through."""
    return program.rpartition("/")[2] in PROGRAMS
