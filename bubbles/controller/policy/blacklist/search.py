"""Looking at every command in a script for what must be refused or always asked about (DEC-01, DEC-02)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import filter as matching

from bubbles.controller.policy.blacklist import carriers, deletion, devices, files
from bubbles.controller.policy.blacklist.finding import Call, Finding, Hit, destructive, high_risk
from bubbles.controller.policy.blacklist.ground import LONGEST_PATTERN, Ground
from bubbles.controller.policy.blacklist.tables import CHECKERS, VERSIONED
from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.places import beneath
from bubbles.controller.policy.shell.reading import UNKNOWN, Directories, Reading, Segment

_DEPTH = 4
"""Programs that start programs that start programs: deeper ones are not followed."""
_PATTERN = re.compile(r"[*?\[\0]")
_FORK_BOMB = re.compile(r"([\w:.!]{1,40})\s{0,9}\(\s{0,9}\)\s{0,9}\{\s{0,9}\1\s{0,9}[|&]\s{0,9}\1\b|:\(\)\{ ?:\|:& ?\}")
_LONGEST_CRUDE = 20_000
"""Characters of a broken script that are searched for a fork bomb."""


def find(reading: Reading, context: Context) -> tuple[Finding, ...]:
    """Everything that the blacklist holds against the script, the worst first; each once."""
    found: dict[tuple[Hit, str], Finding] = {}
    search = _Search(Ground(context))
    for segment in reading.everything:
        for hit in search.judge(segment):
            found.setdefault((hit, segment.source), Finding(hit.tier, hit.reason, segment))
    if reading.broken and _FORK_BOMB.search(reading.script[:_LONGEST_CRUDE]):
        hit = destructive("a fork bomb: it starts processes without end")
        segment = Segment(words=(), core=(), guess=(), source=reading.script[:200])
        found.setdefault((hit, segment.source), Finding(hit.tier, hit.reason, segment))
    return tuple(sorted(found.values(), key=lambda finding: -finding.tier))


class _Search:
    """One script's worth of looking."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._strange: dict[Directories, bool] = {}

    def judge(self, segment: Segment) -> Iterator[Hit]:
        guess = segment.guess
        program = base_name(guess[0]) if guess else ""
        call = Call(program, guess[1:], segment, self._ground)
        if (
            segment.via
            and (segment.upstream or segment.background)
            and f"function {guess[0] if guess else ''}" in segment.via
        ):
            yield destructive(f"a fork bomb: {guess[0]} starts itself without end")
        for redirect in segment.redirects:
            yield from devices.redirected(redirect)
            yield from files.redirected(call, redirect)
        if guess:
            yield from self._judge_call(call, 0)

    def _judge_call(self, call: Call, depth: int) -> Iterator[Hit]:
        for checker in CHECKERS.get(call.program, ()):
            yield from checker(call)
        if call.args and (files.worth_a_look("\n".join(call.args)) or self._elsewhere(call.segment.directories)):
            yield from files.named(call)
        if call.program in carriers.CARRIERS and depth < _DEPTH:
            for argv in carriers.carried(call):
                yield from self._judge_call(Call(base_name(argv[0]), argv[1:], call.segment, self._ground), depth + 1)
        if call.program not in CHECKERS and _PATTERN.search(call.program):
            yield from self._judge_unknown(call)

    def _judge_unknown(self, call: Call) -> Iterator[Hit]:
        """The program's name is a pattern or holds what is not known: it may be any that fits."""
        yield from deletion.rm_of_anything(call)
        pattern = call.program.replace(UNKNOWN, "*")
        if not pattern.strip("*?"):
            return
        if len(pattern) > LONGEST_PATTERN:
            yield high_risk("the program's name is hidden in a long pattern")
            return
        for name in matching(CHECKERS, pattern):
            for checker in CHECKERS[name]:
                for hit in checker(call.of(name, *call.args)):
                    yield high_risk(f"what may be {name}: {hit.reason}")

    def _elsewhere(self, directories: Directories) -> bool:
        """It may run outside the roots, where a plain file name may be one of note."""
        strange = self._strange.get(directories)
        if strange is None:
            # By text alone: to follow links here would cost more than all the rest.
            roots = self._ground.context.roots
            strange = directories is None or not all(beneath(directory, roots) for directory in directories)
            self._strange[directories] = strange
        return strange


def base_name(name: str) -> str:
    """The program that a name stands for: ``/bin/RM`` and ``rm.exe`` are rm, ``python3.11`` is python."""
    name = name.rpartition("/")[2].lstrip("\\").lower()
    if name in CHECKERS:
        return name
    name = name.removesuffix(".exe")
    if name[-1:].isdigit() and (plain := name.rstrip("0123456789.-")) in VERSIONED:
        return plain
    family = name.partition(".")[0]
    return family if family in ("mkfs", "newfs", "fsck") else name
