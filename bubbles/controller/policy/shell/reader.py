"""Shell text to a Reading: every command in it, in plain sight or hidden, and every doubt.

Two readers must agree before a text counts as understood: ``grammar``, which follows bash's own rules for a written
subset, and tree-sitter (``agreement``). Inner scripts (``bash -c '…'``, substitutions) and the commands behind wrappers
(``sudo``, ``xargs``, …) are read in turn, to a bounded depth.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.shell.agreement import disagreement, parses
from bubbles.controller.policy.shell.grammar import Grammar
from bubbles.controller.policy.shell.reading import Directories, Reading, Segment, Word
from bubbles.controller.policy.shell.wrappers import Inner, core_of, shell_script, unwrap

MAX_TEXT = 10_000
"""Characters. A longer script is read in part only, for suspicion."""
MAX_WORK = 40_000
"""Characters that are read in all, those of inner scripts once more at each depth."""
MAX_DEPTH = 8
MAX_HIDDEN = 400


def read(script: str, context: Context) -> Reading:
    """What ``script`` runs when bash gets it by ``-c`` in ``context.cwd``. Never raises."""
    return _Reader(context).read(script)


def read_argv(argv: tuple[str, ...], context: Context) -> Reading:
    """The same for a program that is started without a shell."""
    words = tuple(Word(text) for text in argv)
    core = core_of(words)
    segment = Segment(
        words=words,
        core=core,
        guess=argv[len(words) - len(core) :],
        directories=frozenset((context.cwd,)),
        source=shlex.join(argv),
    )
    reader = _Reader(context)
    strange = _strange(" ".join(argv))
    if not argv or not argv[0]:
        strange = "there is nothing to run"
    return reader.finish("", (segment,), (strange,) if strange else (), broken=bool(strange))


@dataclass(slots=True)
class _Reader:
    context: Context
    hidden: list[Segment] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    broken: bool = False
    work: int = 0

    def read(self, script: str) -> Reading:
        directories: Directories = frozenset((self.context.cwd,))
        grammar = self._grammar(script, directories, {}, ())
        doubts = list(grammar.doubts)
        broken = grammar.broken
        strange = _strange(script)
        if strange:
            doubts.insert(0, strange)
            broken = True
        if len(script) > MAX_TEXT:
            doubts.insert(0, f"it is longer than {MAX_TEXT:,} characters")
            broken = True
        elif doubts:
            broken = broken or not parses(script)
        elif (differ := disagreement(script, grammar.lexer.tokens)) is not None:
            doubts.append(differ)
            broken = True
        if not grammar.segments and not doubts:
            doubts.append("there is nothing to run")
            broken = True
        return self.finish(script, tuple(grammar.segments), tuple(doubts), broken=broken, grammar=grammar)

    def finish(
        self,
        script: str,
        segments: tuple[Segment, ...],
        doubts: tuple[str, ...],
        *,
        broken: bool,
        grammar: Grammar | None = None,
    ) -> Reading:
        """Look behind wrappers and into inner scripts; shells in plain sight give way to what they run."""
        sole = None
        plain: list[Segment] = []
        self.doubts.extend(doubts)
        self.broken = broken
        for segment in segments:
            inner = self._in_plain_sight(segment)
            if inner is None:
                plain.append(segment)
                self._look_behind(segment, 0)
                continue
            self.hidden.append(segment)
            plain.extend(inner.segments)
            if len(segments) == 1:
                sole = inner.script
        if grammar is not None:
            self._substitutions(grammar, (), 0)
        return Reading(
            script=script,
            segments=tuple(plain),
            hidden=tuple(self.hidden),
            doubts=tuple(self.doubts),
            broken=self.broken,
            sole=sole,
        )

    def _in_plain_sight(self, segment: Segment) -> Reading | None:
        """The reading of the script if ``segment`` is a shell with nothing but ``-c`` and an exact script."""
        found = shell_script(segment.words)
        if found is None or segment.upstream or len(segment.via) >= 3:
            return None
        if segment.assignments or segment.redirects or segment.directories is None or len(segment.directories) != 1:
            return None
        shell, script = found
        (cwd,) = segment.directories
        inner = _Reader(replace(self.context, cwd=cwd)).read(script)
        via = (*segment.via, shell)
        self.hidden.extend(one._replace(via=via + one.via) for one in inner.hidden)
        self.doubts.extend(inner.doubts)
        self.broken = self.broken or inner.broken
        return inner._replace(
            segments=tuple(
                one._replace(via=via + one.via, background=one.background or segment.background)
                for one in inner.segments
            ),
        )

    # -- for suspicion

    def _grammar(
        self, script: str, directories: Directories, values: Mapping[str, str], via: tuple[str, ...]
    ) -> Grammar:
        self.work += len(script)
        if self.work > MAX_WORK + MAX_TEXT:
            self._too_much()
            script = ""
        grammar = Grammar(script[:MAX_TEXT], self.context.home, {"HOME": self.context.home, **values}, via)
        grammar.read(directories)
        return grammar

    def _hide(self, segment: Segment, depth: int) -> None:
        if len(self.hidden) >= MAX_HIDDEN:
            self._too_much()
            return
        self.hidden.append(segment)
        self._look_behind(segment, depth)

    def _too_much(self) -> None:
        self.broken = True
        if (doubt := "it is nested too deeply to be read whole") not in self.doubts:
            self.doubts.append(doubt)

    def _look_behind(self, segment: Segment, depth: int) -> None:
        for inner in unwrap(segment):
            if depth >= MAX_DEPTH:
                self._too_much()
                return
            self._inner(inner, segment, depth + 1)

    def _inner(self, inner: Inner, outer: Segment, depth: int) -> None:
        via = (*outer.via, inner.via)
        if inner.script is not None:
            grammar = self._grammar(inner.script, outer.directories, inner.values, via)
            for segment in grammar.segments:
                upstream = segment.upstream or outer.upstream
                self._hide(segment._replace(upstream=upstream), depth)
            self._substitutions(grammar, via, depth)
            return
        self._hide(
            outer._replace(
                words=(),
                core=(),
                guess=inner.argv,
                assignments=(),
                via=via,
                directories=outer.directories,
            ),
            depth,
        )

    def _substitutions(self, grammar: Grammar, via: tuple[str, ...], depth: int) -> None:
        for kind, script in grammar.lexer.inner:
            if depth >= MAX_DEPTH:
                self._too_much()
                return
            inner = self._grammar(script, frozenset((self.context.cwd,)), grammar.values, (*via, kind))
            for segment in inner.segments:
                self._hide(segment, depth + 1)
            self._substitutions(inner, (*via, kind), depth + 1)


def _strange(script: str) -> str | None:
    """Why a card could not show the text as it is."""
    text = script.replace("\n", "").replace("\t", "")
    if text.isprintable():
        return None
    found = next(character for character in text if not character.isprintable())
    return f"it holds a character that does not show (U+{ord(found):04X})"
