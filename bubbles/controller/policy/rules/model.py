"""A rule, and what is said about a rule file. Open this file first."""

from __future__ import annotations

from dataclasses import dataclass

from bubbles.controller.policy.contract import Effect, Layer

Pattern = tuple[tuple[str, ...], ...]
"""For each token of a command, from its first on, the texts that it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One ``prefix_rule``, understood."""

    pattern: Pattern
    effect: Effect
    file: str
    line: int
    """1-based: where the call stands."""
    layer: Layer
    justification: str = ""
    flaw: str = ""
    """Why a restriction is only half trusted: it restricts, but lifts nothing of a weaker layer. Never on an allow."""
    barred: frozenset[tuple[str, ...]] | None = frozenset()
    """The forms of an allow that grant nothing, since what follows them would be any program; ``None`` is all."""
    scripts: tuple[str, ...] = ()
    """The whole scripts that it speaks of, where the pattern is a shell with ``-c``."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Those of ``scripts`` that are one plain command, as the prefix of an argv."""

    @property
    def grants(self) -> bool:
        """Whether it can allow anything at all."""
        return self.effect is Effect.ALLOW and self.barred is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A sentence about a rule file."""

    file: str
    line: int
    """1-based; 0 is the file as a whole."""
    text: str
    fault: bool = True
    """Something in the file is wrong; else it is only worth knowing."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A rule file, read."""

    rules: tuple[Rule, ...]
    """In the order of the file."""
    notices: tuple[Notice, ...] = ()

    @property
    def warnings(self) -> tuple[Notice, ...]:
        return tuple(notice for notice in self.notices if notice.fault)
