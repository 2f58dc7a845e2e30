"""All rules in force, ready to be asked. Nothing is parsed here any more.

Allow rules are matched to the token. Restrictive ones are matched by suspicion: by the base name of the program,
through options before a sub-command, and against words whose text is not known. What only may be meant is a
:class:`Suspicion`: it asks, and never lifts a rule of a weaker layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields

from bubbles.controller.policy.contract import Effect, Layer, Match
from bubbles.controller.policy.rules.carriers import smuggles
from bubbles.controller.policy.rules.model import Pattern, Rule
from bubbles.controller.policy.rules.options import is_option, takes_value
from bubbles.controller.policy.rules.scripts import script_of
from bubbles.controller.policy.shell.reading import UNKNOWN

MAX_PLACES = 200
"""Words before a sub-command that are looked through; beyond, a rule is suspected."""
MAX_BEHIND = 40
"""Words behind a program that nothing is known of at which a command may begin."""
MAX_GUESSES = 8
"""Rules that are named where even the program is not known."""
_MAX_PAIRS = 1_000
_PATTERN = re.compile(r"\[[^]]{0,40}\]|[*?\[]")

_STRENGTH = {Layer.GLOBAL: 0, Layer.ASSISTANT: 1, Layer.SESSION: 2}
_SEVERITY = {Effect.ALLOW: 0, Effect.PROMPT: 1, Effect.FORBIDDEN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion(Match):
    """A restriction that may be meant, or whose own text is damaged: it restricts, but lifts nothing."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One pattern of a rule, made for look-ups. Entries are compared by their place in the book."""

    place: int
    rule: Rule
    pattern: Pattern
    sets: tuple[frozenset[str], ...]
    whole: bool = False
    """No further arguments: it names a script."""


_Shelf = dict[str, list[_Entry]]


@dataclass(slots=True)
class _Index:
    """Entries by their first token, and within it by their second where that is few."""

    by_second: dict[str, _Shelf] = field(default_factory=dict)
    others: _Shelf = field(default_factory=dict)
    """Of one token, or with too many alternatives to be spread out."""

    def add(self, heads: Iterable[str], entry: _Entry) -> None:
        heads = dict.fromkeys(heads)
        spread = len(entry.pattern) > 1 and len(heads) * len(entry.sets[1]) <= _MAX_PAIRS
        for head in heads:
            if spread:
                shelf = self.by_second.setdefault(head, {})
                for second in entry.sets[1]:
                    shelf.setdefault(second, []).append(entry)
            else:
                self.others.setdefault(head, []).append(entry)

    def under(self, head: str) -> Iterator[_Entry]:
        yield from self.others.get(head, ())
        for entries in self.by_second.get(head, {}).values():
            yield from entries


@dataclass(frozen=True, slots=True, eq=False)
class Rulebook:
    """Made by :func:`bind`. Its answers are in the order of the rules."""

    rules: tuple[Rule, ...] = ()
    _allows: _Index = field(default_factory=_Index)
    _restricts: _Index = field(default_factory=_Index)
    _scripts: dict[str, list[Rule]] = field(default_factory=dict)

    @property
    def restricts(self) -> bool:
        """Whether any rule could forbid or ask."""
        return bool(self._restricts.others or self._restricts.by_second)

    def allows(self, words: Sequence[str]) -> tuple[Match, ...]:
        """Allow rules whose pattern is, token by token, a prefix of ``words`` (DEC-06)."""
        if not words:
            return ()
        head = words[0]
        found: list[_Entry] = []
        shelf = self._allows.by_second.get(head)
        if shelf is None and head not in self._allows.others and not self._scripts:
            return ()
        if shelf is not None and len(words) > 1:
            found += [entry for entry in shelf.get(words[1], ()) if _fits(entry, words)]
        others = self._allows.others.get(head)
        if others is not None:
            found += [entry for entry in others if _fits(entry, words)]
        matches = [_matched(entry, tuple(words[: len(entry.pattern)])) for entry in _ordered(found)]
        script = script_of(words) if self._scripts else None
        if script is not None:
            known = {(match.file, match.line) for match in matches}
            named = [match for match in self.script_grants(script) if match.effect is Effect.ALLOW]
            matches += [match for match in named if (match.file, match.line) not in known]
        return tuple(matches)

    def script_grants(self, script: str) -> tuple[Match, ...]:
        """Rules of any effect that name this very script in a shell, whatever shell that is."""
        rules = self._scripts.get(script)
        return () if rules is None else tuple(_of_rule(rule, (script,), sure=True) for rule in rules)

    def restrictions(self, guess: Sequence[str]) -> tuple[Match, ...]:
        """Prompt and forbidden rules that ``guess`` may fall under. UNKNOWN in it stands for any text."""
        if not guess:
            return ()
        base = guess[0].rpartition("/")[2]
        index = self._restricts
        if base.startswith("git-"):
            return self.restrictions(("git", base[4:], *guess[1:]))
        if any(mark in base for mark in "*?["):
            base = _PATTERN.sub(UNKNOWN, base)
            guess = (base, *guess[1:])
        if UNKNOWN in base:
            return self._suspects(guess)
        shelf, others = index.by_second.get(base), index.others.get(base)
        if shelf is None and others is None:
            return ()
        entries = list(others or ())
        if shelf is not None and len(guess) > 1:
            entries += _within_reach(shelf, base, guess)
        found = [(entry, walk) for entry in _ordered(entries) if (walk := _walk(entry, base, guess)) is not None]
        return tuple(_of_rule(entry.rule, walk.path, sure=walk.sure) for entry, walk in found)

    def restrictions_behind(self, guess: Sequence[str]) -> tuple[Match, ...]:
        """Those that may be meant by words behind a program of which nothing is known: it may run them.

        A rule of several tokens is taken at its word. One of a single token, and what stands in one argument, may be
        data, and is only a suspicion.
        """
        found: list[Match] = []
        for at in range(1, min(len(guess), MAX_BEHIND)):
            word = guess[at]
            if " " in word:
                found += map(_doubted, self.restrictions(word.split()))
            elif not word.startswith("-"):
                found += [
                    match if len(match.prefix) > 1 else _doubted(match)
                    for match in self.restrictions(guess[at:])
                    if UNKNOWN not in word
                ]
        return tuple(dict.fromkeys(found))

    def exact_matches(self, argv: Sequence[str]) -> tuple[Match, ...]:
        """Every rule that is a prefix of ``argv`` as it stands, once an alternative: for tests of the language."""
        found: list[Match] = []
        for rule in self.rules:
            length = len(rule.pattern)
            if len(argv) >= length and all(argv[at] in rule.pattern[at] for at in range(length)):
                match = _of_rule(rule, tuple(argv[:length]), sure=True)
                found += [match] * rule.pattern[0].count(argv[0])
        return tuple(found)

    def _suspects(self, guess: Sequence[str]) -> tuple[Match, ...]:
        """Rules that an unknown program may fall under; a few are enough to ask."""
        found: list[Match] = []
        base = guess[0].rpartition("/")[2]
        for head in dict.fromkeys((*self._restricts.others, *self._restricts.by_second)):
            if not _may_be(base, head):
                continue
            for entry in self._restricts.under(head):
                walk = _walk(entry, head, guess)
                if walk is not None:
                    found.append(_of_rule(entry.rule, walk.path, sure=False))
                    if len(found) >= MAX_GUESSES:
                        return tuple(found)
        return tuple(dict.fromkeys(found))


def bind(rules: Iterable[Rule]) -> Rulebook:
    """The rules of all layers, indexed."""
    book = Rulebook(rules=tuple(rules))
    place = 0
    for rule in book.rules:
        for script in rule.scripts:
            book._scripts.setdefault(script, []).append(rule)
        patterns = [rule.pattern, *(tuple((word,) for word in command) for command in rule.commands)]
        for number, pattern in enumerate(patterns):
            place += 1
            entry = _Entry(
                place=place,
                rule=rule,
                pattern=pattern,
                sets=tuple(frozenset(alternatives) for alternatives in pattern),
                whole=number == 0 and bool(rule.scripts),
            )
            if rule.effect is not Effect.ALLOW:
                book._restricts.add((head.rpartition("/")[2] for head in pattern[0]), entry)
            elif rule.grants:
                book._allows.add(pattern[0], entry)
    return book


def _fits(entry: _Entry, words: Sequence[str]) -> bool:
    """Whether an allow rule grants ``words``."""
    length = len(entry.sets)
    if len(words) < length or (entry.whole and len(words) != length):
        return False
    for word, texts in zip(words, entry.sets, strict=False):
        if word not in texts:
            return False
    barred = entry.rule.barred
    if barred and tuple(words[:length]) in barred:
        return False
    return len(words) == length or not smuggles(words[:length], words[length:])


def _ordered(entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted({entry.place: entry for entry in entries}.values(), key=lambda entry: entry.place)


def _matched(entry: _Entry, prefix: tuple[str, ...]) -> Match:
    return _of_rule(entry.rule, prefix, sure=True)


def _of_rule(rule: Rule, prefix: tuple[str, ...], *, sure: bool) -> Match:
    kind = Match if sure and not rule.flaw else Suspicion
    return kind(
        effect=rule.effect if sure or rule.effect is Effect.ALLOW else Effect.PROMPT,
        prefix=prefix,
        layer=rule.layer,
        file=rule.file,
        line=rule.line,
        justification=rule.justification,
    )


def _doubted(match: Match) -> Match:
    """As a suspicion: what it forbids is asked about."""
    if isinstance(match, Suspicion):
        return match
    fields = {field.name: getattr(match, field.name) for field in dataclass_fields(match)}
    return Suspicion(**{**fields, "effect": Effect.PROMPT})


# -- suspicion --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Walk:
    """How a pattern may be found in a command."""

    path: tuple[str, ...]
    sure: bool


def _within_reach(shelf: _Shelf, base: str, guess: Sequence[str]) -> list[_Entry]:
    """Entries whose second token may be meant."""
    places = _reach({1: True}, base, guess, leading=True)
    if len(places) > MAX_PLACES or any(UNKNOWN in guess[at] for at in places):
        return [entry for entries in shelf.values() for entry in entries]
    return [entry for at in places for entry in shelf.get(guess[at], ())]


def _reach(starts: dict[int, bool], program: str, guess: Sequence[str], *, leading: bool) -> dict[int, bool]:
    """The places of words that may stand next when options are looked through, and whether that is certain."""
    places: dict[int, bool] = {}
    waiting = sorted(starts.items(), reverse=True)
    while waiting and len(places) <= MAX_PLACES:
        at, sure = waiting.pop()
        if at >= len(guess) or places.get(at, False) or (at in places and not sure):
            continue
        places[at] = sure
        token = guess[at]
        unknown = UNKNOWN in token
        if not unknown and not is_option(program, token):
            continue
        takes = None if unknown else takes_value(program, token, leading=leading)
        if takes is not False:
            waiting.append((at + 2, sure and takes is True))
        if takes is not True:
            waiting.append((at + 1, sure and takes is False))
    return places


def _walk(entry: _Entry, program: str, guess: Sequence[str]) -> _Walk | None:
    """The surest way in which ``guess`` may begin with the pattern."""
    first = guess[0]
    heads = [head for head in entry.pattern[0] if _may_be(first.rpartition("/")[2], head.rpartition("/")[2])]
    if not heads:
        return None
    named = first in entry.sets[0] or any("/" not in head for head in heads)
    head = first if first in entry.sets[0] else heads[0]
    ways = {1: _Walk((head,), named and UNKNOWN not in first)}
    for number, texts in enumerate(entry.sets[1:], start=1):
        starts = {at: way.sure for at, way in ways.items()}
        places = _reach(starts, program, guess, leading=number == 1)
        if len(places) > MAX_PLACES:
            return _Walk(tuple(alternatives[0] for alternatives in entry.pattern), sure=False)
        before = max(ways.values(), key=lambda way: way.sure)
        ways = {}
        for at, sure in places.items():
            meant = _meant(guess[at], texts, entry.pattern[number])
            if meant is not None:
                ways[at + 1] = _Walk((*before.path, meant), sure and UNKNOWN not in guess[at])
        if not ways:
            return None
    return max(ways.values(), key=lambda way: way.sure)


def _meant(token: str, texts: frozenset[str], alternatives: tuple[str, ...]) -> str | None:
    if UNKNOWN not in token:
        return token if token in texts else None
    return next((text for text in alternatives if _may_be(token, text)), None)


def _may_be(token: str, text: str) -> bool:
    """Whether a text with UNKNOWN in it may turn out to be ``text``."""
    if UNKNOWN not in token:
        return token == text
    first, *_, last = token.split(UNKNOWN)
    return len(first) + len(last) <= len(text) and text.startswith(first) and text.endswith(last)


# -- precedence -------------------------------------------------------------------------------------------------------


def resolve_precedence(matches: Iterable[Match]) -> tuple[Effect | None, tuple[Match, ...]]:
    """What the rules say together, and all of ``matches`` with the overridden ones marked.

    A stronger layer speaks alone; within a layer forbidden comes before prompt before allow (DEC-07). A suspicion
    restricts what its own or a weaker layer says, and lifts nothing.
    """
    matches = tuple(dict.fromkeys(matches))
    if not matches:
        return None, ()
    sure = [_STRENGTH[match.layer] for match in matches if not isinstance(match, Suspicion)]
    top = max(sure, default=-1)
    speaking = [match for match in matches if _STRENGTH[match.layer] >= top]
    effect = max((match.effect for match in speaking), key=_SEVERITY.__getitem__)
    marked = tuple(match if match in speaking else replace(match, overridden=True) for match in matches)
    return effect, marked
