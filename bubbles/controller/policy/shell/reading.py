"""What the reader finds in a shell script. Open this file first."""

from __future__ import annotations

import enum
from typing import NamedTuple

UNKNOWN = "\0"
"""Stands in a text where the value is not known: no argument of a program can hold it."""


class Hole(enum.Flag):
    """What is not certain about a word."""

    NONE = 0
    INTEGER = enum.auto()
    """``$?``, ``$#``, ``$$``: a number, whichever."""
    GLOB = enum.auto()
    """An unquoted pattern: any number of existing paths that match it. The text is the pattern as written."""
    VARIABLE = enum.auto()
    SUBSTITUTION = enum.auto()
    """``$(…)``, backquotes, ``<(…)``, arithmetic: something runs, or may run, to make the word."""
    TILDE = enum.auto()
    """``~user``, ``~+``: another directory than the home."""
    BRACE = enum.auto()
    """A brace expansion that was not expanded."""


class Word(NamedTuple):
    """One word of a command. ``exact``: the program gets this text as one argument, for certain."""

    text: str
    """The value, quotes removed and known expansions done; UNKNOWN where it is not known."""
    holes: Hole = Hole.NONE
    literal: bool = True
    """Every character was written as it is: no quotes, backslashes or expansions."""

    @property
    def exact(self) -> bool:
        return self.holes is Hole.NONE


class Assignment(NamedTuple):
    name: str
    value: Word
    append: bool = False
    """``NAME+=value``."""


class Redirect(NamedTuple):
    operator: str
    """``>``, ``>>``, ``<``, ``>|``, ``&>``, ``&>>``, ``>&``, ``<&``, ``<>``, ``<<``, ``<<<``."""
    descriptor: str
    """As written before the operator: digits, ``{name}``, or nothing."""
    target: Word
    """For ``>&`` and ``<&`` digits or ``-`` mean a descriptor; for ``<<`` it is the body."""


Directories = frozenset[str] | None
"""The directories that a command may run in, absolute and lexically normal; ``None`` is unknown."""


class Segment(NamedTuple):
    """One simple command, wherever in the text it stands."""

    words: tuple[Word, ...]
    """Name and arguments as the shell would make them, wrappers included. Empty for bare assignments or redirects."""
    core: tuple[Word, ...]
    """``words`` without the wrappers that change nothing of what runs (``timeout 60``, ``time``, ``nice``).

    The same object as ``words`` if there are none."""
    guess: tuple[str, ...]
    """For suspicion only: what the argv may turn out to be, every guess taken. UNKNOWN where nothing is known."""
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    directories: Directories = None
    source: str = ""
    """As written."""
    via: tuple[str, ...] = ()
    """What it stands inside, outermost first: ``sudo``, ``xargs``, ``bash -c``, ``$(…)``, ``function f``."""
    upstream: tuple[tuple[str, ...], ...] = ()
    """The guesses of the commands before it in its pipeline, the nearest last."""
    background: bool = False


class Reading(NamedTuple):
    """A script, read."""

    script: str
    segments: tuple[Segment, ...] = ()
    """The commands that run for certain in plain sight: an allow must answer for each of them."""
    hidden: tuple[Segment, ...] = ()
    """Every further command that was found or suspected: behind wrappers, in substitutions, functions, branches.
    Only forbidding and asking look here."""
    doubts: tuple[str, ...] = ()
    """Why the text is not understood to the last character, each fit for a person. Any one bars an allow."""
    broken: bool = False
    """Not a script that bash would run at all, or too large to be read: no setting lifts the question."""
    sole: str | None = None
    """The inner script, if all that ``script`` does is to give it to a shell (``bash -lc '…'``)."""

    @property
    def everything(self) -> tuple[Segment, ...]:
        return self.segments + self.hidden
