"""What is refused or always asked about, whatever a rule says (DEC-02)."""

from bubbles.controller.policy.blacklist.finding import Finding, Tier
from bubbles.controller.policy.blacklist.search import find

__all__ = ["Finding", "Tier", "find"]
