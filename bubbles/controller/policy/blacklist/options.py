"""Taking the arguments of a program apart, for suspicion: bundles, abbreviations and every way to give a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from bubbles.controller.policy.shell.reading import UNKNOWN


@dataclass(frozen=True, slots=True)
class Options:
    given: frozenset[str]
    """Short letters and full long names."""
    values: tuple[tuple[str, str], ...]
    """Option and value, in order."""
    operands: tuple[str, ...]
    guessed: bool
    """A word of unknown text stands where an option may stand."""

    def has(self, *names: str) -> bool:
        return not self.given.isdisjoint(names)

    def of(self, *names: str) -> tuple[str, ...]:
        """Every value given to one of ``names``."""
        return tuple(value for name, value in self.values if name in names)


@dataclass(slots=True)
class _Taken:
    given: set[str] = field(default_factory=set)
    values: list[tuple[str, str]] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program's options look like, as far as it matters. Names that are not given here are taken as flags."""

    valued: str = ""
    """Short options that take a value."""
    longs: tuple[str, ...] = ()
    """Long options that may be abbreviated, as GNU does."""
    valued_longs: tuple[str, ...] = ()

    def take(self, args: tuple[str, ...]) -> Options:
        taken = _Taken()
        position, ended, guessed = 0, False, False
        while position < len(args):
            word = args[position]
            position += 1
            if ended or len(word) < 2 or word[0] != "-":
                guessed = guessed or (not ended and word.startswith(UNKNOWN))
                taken.operands.append(word)
            elif word == "--":
                ended = True
            else:
                waiting = self._long(word[2:], taken) if word[1] == "-" else self._bundle(word[1:], taken)
                if waiting and position < len(args):
                    taken.values.append((waiting, args[position]))
                    position += 1
        return Options(frozenset(taken.given), tuple(taken.values), tuple(taken.operands), guessed)

    def _long(self, text: str, taken: _Taken) -> str:
        """The option whose value is the next word, or nothing."""
        name, equals, value = text.partition("=")
        full = self._full(name)
        taken.given.add(full)
        if equals:
            taken.values.append((full, value))
            return ""
        return full if full in self.valued_longs else ""

    def _bundle(self, letters: str, taken: _Taken) -> str:
        for position, letter in enumerate(letters):
            taken.given.add(letter)
            if letter in self.valued:
                if rest := letters[position + 1 :]:
                    taken.values.append((letter, rest.removeprefix("=")))
                    return ""
                return letter
        return ""

    def _full(self, name: str) -> str:
        known = self.longs + self.valued_longs
        if name in known or not name:
            return name
        return next((full for full in known if full.startswith(name)), name)


def shape(valued: str = "", longs: str = "", valued_longs: str = "") -> Shape:
    return Shape(valued, tuple(longs.split()), tuple(valued_longs.split()))


PLAIN = Shape()
