"""The form of the lane's table: a :class:`Tool` for each program or sub-command, in data. Open this file first.

What is not written in an entry takes a command out of the lane. Options are matched whole, never abbreviated, so that
what GNU and argparse would complete is not accepted by mistake.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.places import real_roots
from bubbles.controller.policy.shell.reading import UNKNOWN, Directories, Hole

T = TypeVar("T")

UNLISTED = "is not among the commands that run without asking"
"""The ``why`` of a tool of which only the version is asked."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a command would run."""

    context: Context
    roots: tuple[str, ...]
    """The roots with links followed."""
    places: tuple[str, ...]
    """The directories that it may run in, links followed; none if that is not known."""

    @classmethod
    def of(cls, directories: Directories, context: Context) -> Site:
        return cls(context, real_roots(context), tuple(map(context.resolve, directories or ())))

    def lead(self, path: str) -> tuple[str, ...]:
        """As ``places.lead_to``, without resolving the directories again for each path."""
        if UNKNOWN in path:
            return ()
        resolve = self.context.resolve
        if path[:1] == "/":
            return (resolve(path),)
        return tuple([resolve(f"{place}/{path}" if place != "/" else f"/{path}") for place in self.places])

    def moved(self, path: str) -> Site:
        """The site once the tool has changed to ``path``."""
        return Site(self.context, self.roots, self.lead(path))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """What a value may be. Two kinds are the same only if they are one object: they are keys of the table."""

    check: Callable[[str, Site], str | None]
    """A clause why the text may not stand here, or None."""
    globs: bool = False
    """An unquoted pattern will do: each of its matches would."""
    dashed: bool = False
    """The tool takes the next word for the value even if it begins with a dash."""
    loose: Hole = Hole.NONE
    """What need not be known of it."""
    free: bool = False
    """Any text will do."""
    words: int = 1
    """How many words the option takes; the check gets the last of them."""
    at: bool = False
    """A leading ``@`` is part of the value. Many tools take ``@file`` for a file of further arguments."""
    moves: bool = False
    """The tool changes to this directory, and reads the rest of the command there."""
    into: Mapping[str, Tool] | None = None
    """The value names another tool, and the rest of the command is its."""


class Arity(enum.Enum):
    FLAG = enum.auto()
    TAKES = enum.auto()
    """``--name value``, ``--name=value``, ``-nvalue``."""
    MAYBE = enum.auto()
    """``--name`` or ``--name=value``; a number may also be the next word (``-j 4``)."""
    JOINED = enum.auto()
    """``--name`` or ``--name=value``: the next word is never its own."""
    LAST = enum.auto()
    """As TAKES, but the value may be left out where no word follows or the next is an option."""


Option = tuple[Arity, Kind | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """An entry. Names in the strings are separated by spaces."""

    like: tuple[Tool, ...] = ()
    """Their options, and the reasons against others, hold here as well."""
    flags: str = ""
    """Options without a value, or with this very one (``--watch=false``). ``-NUM`` stands for ``-5`` and kin."""
    takes: Mapping[Kind, str] = field(default_factory=dict)
    maybe: Mapping[Kind, str] = field(default_factory=dict)
    joined: Mapping[Kind, str] = field(default_factory=dict)
    last: Mapping[Kind, str] = field(default_factory=dict)
    traps: Mapping[str, str] = field(default_factory=dict)
    """Option or sub-command -> why it is not accepted, for the person."""
    verbs: Mapping[str, Tool] = field(default_factory=dict)
    """What the first operand may be: a sub-command, or the program that a runner runs."""
    lead: tuple[Kind, ...] = ()
    """What the first operands are, where they differ from the others."""
    lead_unless: str = ""
    """With any of these options there are no leading operands."""
    operands: Kind | None = None
    most: int | None = None
    least: int = 0
    operands_need: str = ""
    """Operands are accepted only with one of these options."""
    needs: str = ""
    """One of these options must be there."""
    why: str = ""
    """What is wrong without ``needs``, without ``least`` operands, or without a sub-command."""
    bare: bool = False
    """Fine without a sub-command."""
    after: Tool | None = None
    """Reads what follows ``--``; without it, that is further operands."""
    dashes: bool = True
    """``--`` is understood at all."""
    rest: Tool | None = None
    """Reads what follows the leading operands."""
    bundles: bool = True
    """``-xvs`` is ``-x -v -s``, ``-n4`` is ``-n 4``. Otherwise ``-name`` is one option."""
    glued: str = ""
    """Without bundles: the options whose value may follow at once (``-j4``)."""
    permutes: bool = True
    """Options may follow operands."""
    plain: bool = False
    """There are no options: every word is an operand."""
    tame: bool = False
    """No option at all writes, runs or waits: a pattern may match a file that is named like one."""
    only_verbs: bool = field(init=False)
    """The first operand must be a sub-command."""
    options: dict[str, Option] = field(init=False, repr=False)
    subtools: dict[str, Tool] = field(init=False, repr=False)
    reasons: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        options: dict[str, Option] = {}
        reasons: dict[str, str] = {}
        for other in self.like:
            options |= other.options
            reasons |= other.reasons
        options |= dict.fromkeys(self.flags.split(), (Arity.FLAG, None))
        for arity, kinds in (
            (Arity.TAKES, self.takes),
            (Arity.MAYBE, self.maybe),
            (Arity.JOINED, self.joined),
            (Arity.LAST, self.last),
        ):
            for kind, names in kinds.items():
                options |= dict.fromkeys(names.split(), (arity, kind))
        object.__setattr__(self, "only_verbs", bool(self.verbs) and self.operands is None and not self.lead)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "subtools", spread(self.verbs))
        object.__setattr__(self, "reasons", reasons | spread(self.traps))


def spread(table: Mapping[str, T]) -> dict[str, T]:
    """``{"a b": x}`` as ``{"a": x, "b": x}``."""
    return {name: value for names, value in table.items() for name in names.split()}
