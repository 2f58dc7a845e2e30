"""Rules that a person wrote: the ``.rules`` language of Codex, its layers, and what a command falls under."""

from bubbles.controller.policy.rules.book import Rulebook, Suspicion, bind, resolve_precedence
from bubbles.controller.policy.rules.model import Notice, Parsed, Rule
from bubbles.controller.policy.rules.parse import parse_rules

__all__ = ["Notice", "Parsed", "Rule", "Rulebook", "Suspicion", "bind", "parse_rules", "resolve_precedence"]
