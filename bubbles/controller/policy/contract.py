"""What a decision is made of. Open this file first.

``decide(command, context, rulebook) -> Decision`` is a pure function: it starts nothing, waits for nothing and reads no
file. What it must know of the world is in :class:`Context`; rules come loaded, in a ``Rulebook``.

Certainty is asymmetric (``SPEC.md`` 5): an allow needs a command that is understood to the last character, a refusal
only a suspicion.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass

SHELL = ("/bin/bash", "--noprofile", "--norc", "-c")
"""A script is run as ``(*SHELL, script)``: the shell that the engine reads for (DEC-12)."""


class Verdict(enum.IntEnum):
    """The verdict on a whole is the greatest of its parts."""

    ALLOW = 0
    ASK = 1
    DENY = 2


class Stage(enum.StrEnum):
    """Where a verdict was reached, in the order of the stages (DEC-01)."""

    BLACKLIST = "blacklist"
    LANE = "lane"
    RULES = "rules"
    DEFAULT = "default"


class Policy(enum.StrEnum):
    """The name that the timeline records (AUD-01)."""

    HIGH_RISK = "high_risk"
    """On the blacklist: declined if destructive, else a person decides."""
    LOCAL_SELF_VALIDATION = "local_self_validation"
    RULES_ALLOW = "rules_allow"
    RULES_PROMPT = "rules_prompt"
    RULES_FORBIDDEN = "rules_forbidden"
    MCP_ALLOW_LIST = "mcp_allow_list"
    """Of the server's own (DEC-11)."""
    TRUST_SANDBOX = "trust_sandbox"
    APPROVALS_OFF = "approvals_off"
    NOT_UNDERSTOOD = "not_understood"
    NO_RULE = "no_rule"


class Layer(enum.StrEnum):
    """Whose rule it is. A later one overrides an earlier one (DEC-07)."""

    GLOBAL = "global"
    ASSISTANT = "assistant"
    SESSION = "session"


class Effect(enum.StrEnum):
    """What a rule says, in the words of the rule language."""

    ALLOW = "allow"
    PROMPT = "prompt"
    FORBIDDEN = "forbidden"


class Mode(enum.StrEnum):
    """``tools.approvals.mode``: what stage 4 does."""

    ASK = "ask"
    TRUST_SANDBOX = "trust_sandbox"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A rule that fired."""

    effect: Effect
    prefix: tuple[str, ...]
    """The tokens that matched."""
    layer: Layer
    file: str
    line: int
    """1-based."""
    justification: str = ""
    overridden: bool = False
    """A rule of a stronger layer speaks instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What would be run, byte for byte (DEC-12)."""

    argv: tuple[str, ...]

    @classmethod
    def of_script(cls, script: str) -> Command:
        return cls(argv=(*SHELL, script))

    @property
    def script(self) -> str | None:
        """The text given to our shell, if that is what it is."""
        return self.argv[4] if len(self.argv) == 5 and self.argv[:4] == SHELL else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the decision must know of where the command would run. Paths are absolute."""

    cwd: str
    roots: tuple[str, ...]
    home: str
    """What ``~`` and ``$HOME`` mean to the command."""
    person_home: str
    """The home of the person, which may be another."""
    contained: bool = False
    """The sandbox enforces what is seen of the file system: leaving the roots is its concern then, not a card's."""
    offline: bool = False
    """The sandbox enforces what is reached of the network."""
    mode: Mode = Mode.ASK
    resolve: Callable[[str], str] = os.path.normpath
    """Where an absolute path really leads, links followed. The default knows of no links."""
    real_roots: tuple[str, ...] = ()
    """``roots`` with links followed; ``decide`` fills it in, once for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    stage: Stage
    policy: Policy
    reason: str
    """One sentence for the person; never blank."""
    segment: str = ""
    """The part of the command, as written, that the verdict is due to."""
    matches: tuple[Match, ...] = ()
    """Every rule that fired, overridden ones included."""
