"""Reads a rule file: text in, rules and notices out. Never raises, whatever the text.

A file is evaluated as a whole. What cannot be part of that is left out with a warning, statement by statement, and the
rest counts: a damaged statement must not take a restriction of its neighbours away, and must not grant anything itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bubbles.controller.policy.contract import Effect, Layer
from bubbles.controller.policy.rules.bounds import Scales, TooMuchError, parse_statement
from bubbles.controller.policy.rules.calls import CallError, Draft, Example, draft_rule, host_executable
from bubbles.controller.policy.rules.carriers import barred_forms, is_carrier
from bubbles.controller.policy.rules.interpreter import Call, Evaluation, EvaluationError, check_syntax
from bubbles.controller.policy.rules.model import Notice, Parsed, Rule
from bubbles.controller.policy.rules.scripts import plain_command, scripts_of
from bubbles.controller.policy.rules.statements import Statement, cut_again, doubt, split

MAX_BYTES = 1_048_576
MAX_RULES = 10_000
"""In one file."""
_RENAMES = re.compile(r"\bdef\s+prefix_rule\b|\bprefix_rule\s*=(?!=)")
MAX_NOTICES = 20
MAX_LINES = 15_000
"""Lines and semicolons: each may be a damaged statement, which takes some tenths of a millisecond to look through."""
MAX_ROUNDS = 6
MAX_CUTS = 30
MEND = "Correct it or remove it"

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_COMMENT_OR_TEXT = re.compile(
    r"#[^\n]*"
    r'|"{3}[^"\\]*+(?:(?:\\.|"{1,2}(?!"))[^"\\]*+){0,2000}"{3}'
    r"|'{3}[^'\\]*+(?:(?:\\.|'{1,2}(?!'))[^'\\]*+){0,2000}'{3}"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
    r"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'",
    re.DOTALL,
)
_STRANGE = re.compile("[\0\ud800-\udfff]|\r(?!\n)")


def parse_rules(text: str, *, file: str, layer: Layer) -> Parsed:
    """The rules of one file. Bytes that are no UTF-8 may be in ``text`` as lone surrogates (``surrogateescape``)."""
    return _Reader(file, layer).read(text)


@dataclass(frozen=True, slots=True)
class _Made:
    """A call, and the statement that made it."""

    call: Call
    statement: Statement
    failed: bool = False
    """The statement did not come to its end."""


@dataclass(slots=True)
class _Reader:
    file: str
    layer: Layer
    notices: list[Notice] = field(default_factory=list)
    hosts: dict[str, frozenset[str]] = field(default_factory=dict)

    def read(self, text: str) -> Parsed:
        if len(text) > MAX_BYTES:
            return self._refused(f"it is longer than the {MAX_BYTES:,} bytes that a rule file may have")
        text = self._cleaned(text)
        if text.count("\n") + text.count(";") > MAX_LINES:
            return self._refused(f"it has more than the {MAX_LINES:,} lines and semicolons that a rule file may have")
        statements, faults = self._checked(text)
        for statement, fault in zip(statements, faults, strict=True):
            if fault:
                self._say(statement.line, f"This is not understood, and not used: {fault}. {MEND}.")
        made = self._evaluated(text, statements, faults)
        if len(made) > MAX_RULES:
            return self._refused(f"it makes more than the {MAX_RULES:,} rules that a file may have")
        drafts = self._drafts(made)
        rules = [rule for draft, whence in drafts if (rule := self._rule(draft, whence.doubtful)) is not None]
        return Parsed(rules=tuple(rules), notices=self._told())

    def _say(self, line: int, text: str, *, fault: bool = True) -> None:
        self.notices.append(Notice(file=self.file, line=line, text=text, fault=fault))

    def _refused(self, why: str) -> Parsed:
        text = f"None of its rules is in force, restrictions included: {why}. Split it, or remove what is not needed."
        return Parsed(rules=(), notices=(Notice(file=self.file, line=0, text=text),))

    def _told(self) -> tuple[Notice, ...]:
        faults = sorted((notice for notice in self.notices if notice.fault), key=lambda notice: notice.line)
        others = [notice for notice in self.notices if not notice.fault]
        if len(faults) > MAX_NOTICES:
            rest = len(faults) - MAX_NOTICES
            faults = faults[:MAX_NOTICES]
            more = f"{rest:,} more places of this file, after line {faults[-1].line}, are not used. {MEND} one by one."
            faults.append(Notice(file=self.file, line=0, text=more))
        return (*faults, *others)

    def _cleaned(self, text: str) -> str:
        if text.startswith(_BOM):
            text = text[1:]
            self._say(1, "The file begins with a byte-order mark, which is left out. Save it as UTF-8 without one.")
        if _STRANGE.search(text) is None:
            return text

        def harmless(found: re.Match[str]) -> str:
            return _STRANGE.sub("?", found.group()) if found.group().startswith("#") else found.group()

        cleaned = _COMMENT_OR_TEXT.sub(harmless, text)
        if cleaned != text:
            at = next(index for index, (old, new) in enumerate(zip(text, cleaned, strict=True)) if old != new)
            line = text.count("\n", 0, at) + 1
            self._say(
                line, f"A comment holds {_strange_name(text[at])}. Save the file as UTF-8 with ordinary line ends."
            )
        return cleaned

    # -- statements ---------------------------------------------------------------------------------------------------

    def _checked(self, text: str) -> tuple[list[Statement], list[str]]:
        """The statements, each with what is wrong with it."""
        statements: list[Statement] = []
        faults: list[str] = []
        scales = Scales()
        for statement in split(text):
            fault = _fault(text, statement, scales)
            pieces = [statement]
            if fault and not statement.fault and statement.last_line > statement.line:
                pieces = cut_again(text, statement.start, statement.end) or pieces
            found = [fault] if len(pieces) == 1 else [_fault(text, piece, scales) for piece in pieces]
            if len(pieces) == 1 and fault and statement.first.startswith(("if", "for")):
                pieces, found = _beginning(text, statement, fault, scales)
            statements += pieces
            faults += found
        return doubt(statements, [bool(fault) for fault in faults]), faults

    def _evaluated(self, text: str, statements: Sequence[Statement], faults: Sequence[str]) -> list[_Made]:
        """The calls that were made."""
        used = [each for each, fault in zip(statements, faults, strict=True) if not fault]
        places = _places(used)
        if places is None:
            return self._one_by_one(text, used)
        spoilt: list[_Made] = []
        for _ in range(MAX_ROUNDS):
            evaluation = Evaluation()
            try:
                evaluation.run(_only(text, used))
            except EvaluationError as error:
                failed = places.get(error.line)
                if failed is None or failed not in used:
                    break
                self._failed(failed, error)
                spoilt += [
                    _Made(call, failed, failed=True)
                    for call in evaluation.calls
                    if places.get(call.statement_line) is failed
                ]
                used.remove(failed)
            else:
                made = [_Made(call, places[call.statement_line]) for call in evaluation.calls]
                return sorted([*made, *spoilt], key=lambda each: each.statement.start) if spoilt else made
        return [*self._one_by_one(text, used), *spoilt]

    def _one_by_one(self, text: str, used: Sequence[Statement]) -> list[_Made]:
        made: list[_Made] = []
        evaluation = Evaluation()
        for statement in used:
            evaluation.calls.clear()
            failed = False
            try:
                evaluation.run(text[statement.start : statement.end] + "\n", statement.line)
            except EvaluationError as error:
                self._failed(statement, error)
                failed = True
            made += [_Made(call, statement, failed) for call in evaluation.calls]
        return made

    def _failed(self, statement: Statement, error: EvaluationError) -> None:
        self._say(error.line or statement.line, f"This does not work, and is not used: {error}. {MEND}.")

    # -- rules --------------------------------------------------------------------------------------------------------

    def _drafts(self, made: Sequence[_Made]) -> list[tuple[Draft, Statement]]:
        drafts: list[tuple[Draft, Statement]] = []
        ignored: dict[str, int] = {}
        bad: set[int] = set()
        for each in made:
            call = each.call
            try:
                if call.function == "prefix_rule":
                    draft = draft_rule(call)
                    if each.failed:
                        draft.fault = draft.fault or "its statement fails"
                    drafts.append((draft, each.statement))
                    continue
                ignored.setdefault(call.function, call.line)
                if call.function == "host_executable":
                    name, paths = host_executable(call)
                    self.hosts[name] = paths
            except CallError as error:
                bad.add(each.statement.start)
                self._say(call.line, f"This is not understood, and not used: {error}. {MEND}.")
        if ignored:
            verb = "has" if len(ignored) == 1 else "have"
            names = " and ".join(ignored)
            self._say(min(ignored.values()), f"{names} {verb} no effect here; only prefix_rule has.", fault=False)
        for draft, statement in drafts:
            if statement.start in bad:
                draft.fault = draft.fault or "its statement makes another rule that is not understood"
        return drafts

    def _rule(self, draft: Draft, doubtful: bool) -> Rule | None:
        fault = draft.fault or self._contradiction(draft)
        if not fault and doubtful:
            fault = "it may be a part of the damaged statement beside it"
        allow = draft.effect is Effect.ALLOW
        if fault:
            used = "not used" if allow else "used as a restriction, but lifts nothing of a weaker layer"
            self._say(draft.line, f"This {draft.effect} rule is {used}: {fault}. {MEND}.")
            if allow:
                return None
        rule = Rule(
            pattern=draft.pattern,
            effect=draft.effect,
            justification=draft.justification,
            file=self.file,
            line=draft.line,
            layer=self.layer,
            flaw=fault,
            scripts=scripts_of(draft.pattern),
        )
        return self._with_grants(rule) if rule.scripts or allow else rule

    def _contradiction(self, draft: Draft) -> str:
        for example in draft.match:
            if not self._matches(draft, example):
                return f"its own example {' '.join(example)!r} in match is not matched by it"
        for example in draft.not_match:
            if self._matches(draft, example):
                return f"its own example {' '.join(example)!r} in not_match is matched by it"
        return ""

    def _matches(self, draft: Draft, example: Example) -> bool:
        """As Codex tries examples: a program given by its path may count as its name."""
        forms = [example]
        directory, slash, name = example[0].rpartition("/")
        if slash and (directory.startswith("/") or not directory):
            allowed = self.hosts.get(name)
            if allowed is None or example[0] in allowed:
                forms.append((name, *example[1:]))
        length = len(draft.pattern)
        return any(len(form) >= length and all(form[at] in draft.pattern[at] for at in range(length)) for form in forms)

    def _with_grants(self, rule: Rule) -> Rule:
        """What an allow rule must not grant, and what a rule that names a script says of plain commands."""
        blank = next((text for text in rule.pattern[0] if " " in text.strip()), None)
        if blank is not None and "/" not in blank:
            parts = ", ".join(f'"{part}"' for part in blank.split())
            self._say(rule.line, f'"{blank}" is the name of no program, so this matches nothing. Write [{parts}].')
        commands = [command for script in rule.scripts if (command := plain_command(script)) is not None]
        if rule.effect is not Effect.ALLOW:
            return replace(rule, commands=tuple(commands))
        commands = [command for command in commands if not is_carrier(command)]
        barred = barred_forms(rule.pattern)
        if barred is None or barred:
            what = "Nothing is" if barred is None else "Not everything in this rule is"
            form = min(barred, default=()) if barred else tuple(texts[0] for texts in rule.pattern)
            self._say(
                rule.line,
                f"{what} allowed by it: what follows {' '.join(form)!r} may be any program or code. "
                "Name the program, script or module that it may run.",
            )
        return replace(rule, commands=tuple(commands), barred=barred)


def _fault(text: str, statement: Statement, scales: Scales) -> str:
    """Why a statement cannot be evaluated, or nothing."""
    body = text[statement.start : statement.end]
    strange = _STRANGE.search(body)
    if strange is not None:
        return f"it holds {_strange_name(strange.group())}"
    if statement.fault:
        return statement.fault
    if _RENAMES.search(body):
        return "it gives a word of the rule language another meaning"
    try:
        nodes = [] if statement.plain else parse_statement(body)
        check_syntax(body + "\n")
        scales.weigh(nodes)
    except TooMuchError as error:
        return str(error)
    except EvaluationError as error:
        return str(error)
    return ""


def _beginning(text: str, statement: Statement, fault: str, scales: Scales) -> tuple[list[Statement], list[str]]:
    """A damaged block, cut where it would be whole: what it restricts until there is still meant."""
    ends = [found.start() for found in re.finditer("\n", text[: statement.end]) if found.start() > statement.start]
    for end in ends[: -MAX_CUTS - 1 : -1]:
        body = text[statement.start : end].rstrip()
        last_line = statement.line + body.count("\n")
        kept = replace(statement, end=statement.start + len(body), last_line=last_line, doubtful=True)
        if last_line > statement.line and not _fault(text, kept, scales):
            return [kept, replace(statement, start=end + 1, line=last_line + 1, fault=fault)], ["", fault]
    return [statement], [fault]


def _strange_name(character: str) -> str:
    if character == "\0":
        return "a NUL character"
    return "a carriage return without a line feed" if character == "\r" else "bytes that are not UTF-8"


def _only(text: str, statements: Iterable[Statement]) -> str:
    """The text without all but ``statements``: these stay on their lines."""
    pieces: list[str] = []
    at = 0
    for statement in statements:
        pieces += ["\n" * text.count("\n", at, statement.start), text[statement.start : statement.end]]
        at = statement.end
    return "".join((*pieces, "\n"))


def _places(statements: Iterable[Statement]) -> dict[int, Statement] | None:
    """Which statement stands on a line; ``None`` if there are lines with several."""
    places: dict[int, Statement] = {}
    for each in statements:
        for line in range(each.line, each.last_line + 1):
            if line in places:
                return None
            places[line] = each
    return places
