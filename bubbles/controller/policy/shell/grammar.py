"""Tokens to commands: bash's grammar as far as it is read for certain, and a tolerant walk through the rest.

For certain: simple commands, pipelines, ``&&``, ``||``, ``;``, newlines, subshells, groups, ``!``, plain redirects.
What else bash knows (loops, functions, here-documents, …) is a doubt, and its commands are looked for all the same.
Source: bash's manual, "Shell Grammar"; POSIX.1-2017, XCU 2.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bubbles.controller.policy.shell.reading import Assignment, Directories, Hole, Redirect, Segment, Word
from bubbles.controller.policy.shell.simple import (
    DECLARES,
    NOTABLE,
    assignment_of,
    changes_meaning,
    directories_after,
    guess_of,
    timed,
)
from bubbles.controller.policy.shell.stream import ASSIGNMENT, Stream
from bubbles.controller.policy.shell.tokens import Token
from bubbles.controller.policy.shell.wrappers import core_of

MAX_SEGMENTS = 200
MAX_DESCRIPTOR = 3
"""Digits. bash takes a number past the largest int for a word; a real descriptor is far shorter."""
MAX_NESTED = 30
"""Groups, subshells and constructs inside one another."""

_SKIPPED = frozenset("if then elif else fi while until do done esac coproc".split())
"""Reserved words after which a command may stand."""
_RESERVED = _SKIPPED | frozenset("for select case function [[ ]] in } {".split())
_REDIRECTS = frozenset("> >> < >| &> &>> >& <& <> << <<- <<<".split())
_JOINS = frozenset((";", "\n", "&"))
_CASE_ENDS = frozenset((";;", ";&", ";;&"))
_ENDS = _CASE_ENDS | {")"}


@dataclass(slots=True)
class Grammar(Stream):
    """One reading of ``text``: ``segments`` in order, and ``doubts``."""

    def read(self, directories: Directories) -> None:
        """Read the whole text, begun in ``directories``."""
        here = directories
        while True:
            succeeded, failed = self._list(here, ())
            here = _either(succeeded, failed)
            if self.at >= len(self.tokens):
                return
            if self.operator() in _CASE_ENDS and "'case'" in self.doubts:
                self.at += 1
                self._case_pattern()
                continue
            self.fail(f"{self.operator() or self.word_text()!r} where no command ends")
            self.at += 1

    def _list(self, directories: Directories, closers: tuple[str, ...]) -> tuple[Directories, Directories]:
        """``a; b & c``; where it may stand if the last one succeeded, and if it failed."""
        succeeded = failed = directories
        need_command = bool(closers)
        while True:
            self.skip_newlines()
            operator = self.operator()
            if operator == "end" or operator in _ENDS or operator in closers:
                break
            if self.word_text() in closers:
                break
            at, first = self.at, len(self.segments)
            before = _either(succeeded, failed)
            succeeded, failed = self._and_or(before)
            need_command = False
            operator = self.operator()
            if operator == "&":
                self.segments[first:] = [one._replace(background=True) for one in self.segments[first:]]
                succeeded = failed = before
            if operator in _JOINS:
                self.at += 1
            elif self.at == at and operator != "end" and operator not in _ENDS and operator not in closers:
                self.fail(f"{operator or self.word_text()!r} where a command should be")
                self.at += 1
        if need_command:
            self.fail("an empty group")
        return succeeded, failed

    def _and_or(self, directories: Directories) -> tuple[Directories, Directories]:
        succeeded, failed = self._pipeline(directories)
        while (operator := self.operator()) in ("&&", "||"):
            self.at += 1
            self.skip_newlines()
            self._expect_command(operator)
            if operator == "&&":
                succeeded, late = self._pipeline(succeeded)
                failed = _either(failed, late)
            else:
                late, failed = self._pipeline(failed)
                succeeded = _either(succeeded, late)
        return succeeded, failed

    def _expect_command(self, after: str) -> None:
        operator = self.operator()
        if operator == "end" or (operator and operator != "(" and operator not in _REDIRECTS):
            self.fail(f"nothing to run after {after}")

    def _pipeline(self, directories: Directories) -> tuple[Directories, Directories]:
        negated = False
        while (word := self.word_text()) == "!" or (word == "time" and self._times_more_than_a_command()):
            if word == "!":
                negated = not negated
            else:
                self.doubt("'time' before more than a command")
            self.at += 1
            self._expect_command(word)
        outer = self.upstream
        first = len(self.segments)
        succeeded, failed = self._command(directories)
        piped = False
        while (operator := self.operator()) in ("|", "|&"):
            piped = True
            self.at += 1
            self.skip_newlines()
            self._expect_command(operator)
            self.upstream = outer + tuple(segment.guess for segment in self.segments[first:])
            self._command(directories)
        self.upstream = outer
        if piped:
            return directories, directories
        return (failed, succeeded) if negated else (succeeded, failed)

    def _times_more_than_a_command(self) -> bool:
        """``time`` is a reserved word: a group, a ``!``, or assignments may follow. Else it is read as a wrapper."""
        if self.at + 1 >= len(self.tokens):
            return False
        token = self.tokens[self.at + 1]
        written = self.text[token.start : token.end]
        return (
            token.operator == "("
            or written in ("{", "!", "time", "--", "[[")
            or written in _RESERVED
            or ASSIGNMENT.match(written) is not None
        )

    def _command(self, directories: Directories) -> tuple[Directories, Directories]:
        if self.nested >= MAX_NESTED:
            self.fail("it is nested too deeply to be read whole")
            self.at = len(self.tokens)
            return None, None
        self.nested += 1
        try:
            return self._any_command(directories)
        finally:
            self.nested -= 1

    def _any_command(self, directories: Directories) -> tuple[Directories, Directories]:
        operator = self.operator()
        word = self.word_text()
        if operator == "(":
            return self._subshell(directories)
        if word == "{":
            return self._group(directories)
        if word in _RESERVED:
            return self._construct(word, directories)
        return self._simple(directories)

    def _subshell(self, directories: Directories) -> tuple[Directories, Directories]:
        start = self.tokens[self.at].start
        self.at += 1
        if self.operator() == "(" and self.tokens[self.at].start == start + 1:
            self.doubt("arithmetic in (( ))")
        self._list(directories, (")",))
        self._close(")", start, directories)
        return directories, directories

    def _group(self, directories: Directories) -> tuple[Directories, Directories]:
        start = self.tokens[self.at].start
        self.at += 1
        ends = self._list(directories, ("}",))
        if self.word_text() == "}" and self.tokens[self.at - 1].operator not in (";", "\n", "&", ")"):
            self.fail("a } that does not end a group")
        self._close("}", start, directories)
        return ends

    def _close(self, closer: str, start: int, directories: Directories) -> None:
        if closer not in (self.operator(), self.word_text()):
            self.fail(f"no {closer} for what is opened")
            return
        self.at += 1
        redirects = self._redirects()
        if redirects:
            end = self.tokens[self.at - 1].end
            self._segment(start, end, (), (), redirects, directories)
        if self.operator() == "" and self.word_text() != "}" and self.word_text() not in _RESERVED:
            self.fail("a word after the end of a group")

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while (redirect := self._redirect()) is not None:
            found.append(redirect)
        return tuple(found)

    def _redirect(self) -> Redirect | None:
        """The redirect that stands here, if one does."""
        descriptor = ""
        at = self.at
        if self.operator() == "" and at + 1 < len(self.tokens):
            token, following = self.tokens[at], self.tokens[at + 1]
            text = self.word_text()
            if following.operator not in _REDIRECTS or following.start != token.end:
                return None
            if following.operator[0] == "&" or not (text.isascii() and text.isdigit()):
                if following.operator[0] != "&" and re.fullmatch(r"\{\w+\}", text):
                    self.doubt("a descriptor kept in a variable")
                else:
                    return None
            if len(text) > MAX_DESCRIPTOR:
                self.doubt("a number before a redirect that bash may take for a word")
                return None
            descriptor = text
            at += 1
        operator = self.tokens[at].operator if at < len(self.tokens) else "end"
        if operator not in _REDIRECTS:
            return None
        self.at = at + 1
        if self.operator() != "":
            self.fail(f"nothing after {operator}")
            return Redirect(operator, descriptor, Word("", Hole.VARIABLE))
        token = self.tokens[self.at]
        self.at += 1
        if operator in ("<<", "<<-"):
            self.doubt("a here-document")
            return Redirect("<<", descriptor, Word(token.guess, Hole.VARIABLE))
        if len(token.words) != 1:
            self.fail("a redirect to several files")
        return Redirect(operator, descriptor, token.words[0])

    def _construct(self, word: str, directories: Directories) -> tuple[Directories, Directories]:
        """What is not read for certain: step over its framework, look at the commands in it."""
        self.doubt(f"'{word}'")
        self.at += 1
        if word in ("for", "select"):
            self._loop_header()
        elif word == "case":
            self._until("in")
            self._case_pattern()
        elif word == "[[":
            self._until("]]")
        elif word == "coproc" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].plain == "{":
            self.skip()  # its name
        elif word == "function" and self.operator() == "":
            self._function(self.word_text() or "?")
            return None, None
        elif word not in _SKIPPED:
            return None, None
        if self.operator() == "" or self.operator() == "(":
            self._and_or(directories)
        return None, None

    def _loop_header(self) -> None:
        while self.operator() not in (";", "\n", "end") and self.word_text() != "do":
            self.at += 1

    def _until(self, closer: str) -> None:
        while self.operator() != "end" and self.word_text() != closer:
            self.skip()
        self.skip()

    def _case_pattern(self) -> None:
        self.skip_newlines()
        while self.operator() not in (")", "end", "\n") and self.word_text() != "esac":
            self.at += 1
        if self.operator() == ")":
            self.at += 1

    def _function(self, name: str) -> None:
        """The body of ``function name {…}``: the next token is the name or what follows it."""
        if self.word_text() == name:
            self.at += 1
        if self.operator() == "(":
            self.skip(2)
        self.skip_newlines()
        outer, self.via = self.via, (*self.via, f"function {name}")
        self._command(None)
        self.via = outer

    def _simple(self, directories: Directories) -> tuple[Directories, Directories]:
        start = self.tokens[self.at].start if self.at < len(self.tokens) else len(self.text)
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        words: list[Token] = []
        operators, tokens = self.operators, self.tokens
        while True:
            operator = self.operator()
            if (operator in _REDIRECTS or (not operator and operators[self.at + 1] in _REDIRECTS)) and (
                redirect := self._redirect()
            ) is not None:
                redirects.append(redirect)
            elif operator:
                break
            else:
                token = tokens[self.at]
                self.at += 1
                if words or not self._assign(token, assignments):
                    words.append(token)
        end = tokens[self.at - 1].end if self.at else start
        if not (words or assignments or redirects):
            return directories, directories
        if self.operator() == "(" and self.at < len(self.tokens):
            return self._paren_after(words, assignments)
        return self._segment(start, end, tuple(words), tuple(assignments), tuple(redirects), directories)

    def _paren_after(self, words: list[Token], assignments: list[Assignment]) -> tuple[Directories, Directories]:
        """``name()`` begins a function, ``name=(`` an array; anything else is no script."""
        closes = self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].operator == ")"
        if len(words) == 1 and not assignments and closes:
            self.doubt("a function")
            self._function(words[0].words[0].text)
        elif assignments and not words:
            self.doubt("an array")
            depth = 0
            while self.operator() != "end":
                depth += {"(": 1, ")": -1}.get(self.operator(), 0)
                self.at += 1
                if depth == 0:
                    break
        else:
            self.fail("a parenthesis after a word")
            self.at += 1
        return None, None

    def _assign(self, token: Token, assignments: list[Assignment]) -> bool:
        """Whether ``token`` is an assignment; if so it is noted."""
        found = assignment_of(token, self.text[token.start : token.end])
        if found is None:
            return False
        assignment, doubt = found
        if doubt:
            self.doubt(doubt)
        assignments.append(assignment)
        return True

    # -- one command

    def _segment(
        self,
        start: int,
        end: int,
        tokens: tuple[Token, ...],
        assignments: tuple[Assignment, ...],
        redirects: tuple[Redirect, ...],
        directories: Directories,
    ) -> tuple[Directories, Directories]:
        """Note one simple command; where the shell may stand afterwards."""
        if len(self.segments) >= MAX_SEGMENTS:
            self.fail(f"it holds more than {MAX_SEGMENTS} commands")
            return None, None
        words = tuple([word for token in tokens for word in token.words])
        guess = guess_of(tokens, self.home)
        core = core_of(words)
        if core is not words:
            guess = guess[len(words) - len(core) :]
        after = before = directories
        if words and (words[0].text in NOTABLE or not words[0].exact):
            after, before, declared = self._notable(timed(words), tokens, directories)
            assignments += declared
        self.segments.append(
            Segment(
                words=words,
                core=core,
                guess=guess,
                assignments=assignments,
                redirects=redirects,
                directories=directories,
                source=self.text[start:end],
                via=self.via,
                upstream=self.upstream,
            )
        )
        return after, before

    def _notable(
        self, words: tuple[Word, ...], tokens: tuple[Token, ...], directories: Directories
    ) -> tuple[Directories, Directories, tuple[Assignment, ...]]:
        """What a builtin, or a program that is not known, may do to the shell: where it stands afterwards if it
        succeeds, and if it fails, and what it assigns.
        """
        name = words[0].text if words and words[0].exact else ""
        if changing := changes_meaning(words):
            self.doubt(f"'{changing}', which may change what other commands mean")
        declared: list[Assignment] = []
        if name in DECLARES:  # ``export A=1`` assigns as ``A=1`` does
            for token in tokens[1:]:
                self._assign(token, declared)
        after = directories_after(words, directories, self.home)
        return after, directories if name == "cd" else after, tuple(declared)


def _either(one: Directories, other: Directories) -> Directories:
    return None if one is None or other is None else one | other
