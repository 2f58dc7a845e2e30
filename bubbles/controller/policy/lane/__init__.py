"""The lane: local, low-risk validation that runs without a card (DEC-03). ``table.py`` gives the form, the families the
entries, ``walk.py`` reads a command by them.
"""

from bubbles.controller.policy.lane.judge import judge
from bubbles.controller.policy.lane.surroundings import harmless, inert

__all__ = ["harmless", "inert", "judge"]
