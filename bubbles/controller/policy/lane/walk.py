"""Reads a command's words by the table. It knows no tool."""

from __future__ import annotations

import re
import unicodedata

from bubbles.controller.policy.lane.table import UNLISTED, Arity, Kind, Option, Site, Tool
from bubbles.controller.policy.shell.reading import UNKNOWN, Hole, Word

_VERSION = {"--version"}
_MOST_OPERANDS = 64
"""Each path is looked up for each folder that the command may run in, and that takes time."""

# Whatever such a pattern matches is this same option with another value.
_SETS_OPTION = re.compile(r"--[a-z][a-z-]*=[^(]*", re.ASCII).fullmatch


def shown(text: str) -> str:
    """``text`` as it may stand in a sentence: short, on one line, nothing that repaints a terminal."""
    clean = "".join(c if c.isprintable() else "…" for c in text)
    return clean if len(clean) <= 60 else clean[:59] + "…"


def tame(pattern: str, first: bool) -> bool:
    """Whether no match of an unquoted pattern can be taken for an option or lie above the folder it names.

    ``first``: the pattern's first character is also that of a word that may be an option.
    """
    if UNKNOWN in pattern or "(" in pattern or (first and pattern[0] in "*?["):
        return False
    # Before 5.2 bash lets .* match the directory above.
    return not any(
        part[:1] == "." and part not in (".", "..") and ("*" in part or "?" in part or "[" in part)
        for part in pattern.split("/")
    )


class Walk:
    """One reading of ``words`` from ``at`` on; ``name`` is what they are the arguments of."""

    __slots__ = ("at", "entered", "hole", "name", "plain_at", "site", "words")

    def __init__(self, words: tuple[Word, ...], site: Site, name: str, *, plain_at: bool = False) -> None:
        self.words = words
        self.at = 1
        self.site = site
        self.name = name
        self.plain_at = plain_at
        """The program takes a word that begins with ``@`` as it is."""
        self.hole = Hole.NONE
        """What is not certain about the option that is looked at."""
        self.entered = False
        """An option has named the tool that the rest belongs to."""

    def run(self, tool: Tool) -> str | None:
        """Why ``tool`` does not accept the words from here on, or None."""
        words, start, end = self.words, self.at, len(self.words)
        seen: set[str] = set()
        operands: list[Word] = []
        closed = -1
        while self.at < end:
            word = words[self.at]
            text = word.text
            self.at += 1
            sub = None if operands or not word.exact else tool.subtools.get(text)
            if sub is not None and (text[:1] != "-" or self.at == start + 1):
                self.name += f" {text}"
                return self.run(sub)
            if closed >= 0 or text[:1] != "-" or text == "-" or tool.plain:
                operands.append(word)
                if tool.only_verbs:
                    return self._stray(tool, word)
                if tool.rest is not None and len(operands) == len(tool.lead):
                    return self._operands(tool, operands, closed, seen) or self.run(tool.rest)
            elif text != "--":
                if (reason := self._option(tool, word, seen, operands)) is not None:
                    return reason
            elif tool.after is not None:
                self.name += " --"
                seen.update(tool.needs.split())
                return self.run(tool.after) or self._operands(tool, operands, closed, seen)
            elif tool.dashes:
                closed = len(operands)
            else:
                return f"{self.name} does not heed --"
        return self._operands(tool, operands, closed, seen)

    # options ---------------------------------------------------------------------------------------------------------

    def _option(self, tool: Tool, word: Word, seen: set[str], operands: list[Word]) -> str | None:
        text = word.text
        if operands and not tool.permutes:
            return f"{self.name} takes no option after {shown(operands[0].text)}"
        self.hole = word.holes
        if word.holes is Hole.INTEGER:
            text = text.replace(UNKNOWN, "1")
        elif word.holes and not (word.holes is Hole.GLOB and _SETS_OPTION(text)):
            return f"{shown(text)} is not known before it runs"
        options = tool.options
        if (option := options.get(text)) is not None:
            seen.add(text)
            return self._flag(text) if option[0] is Arity.FLAG else self._next(option, text)
        name, equals, value = text.partition("=")
        if equals and (text.startswith("--") or not tool.bundles) and (option := options.get(name)) is not None:
            seen.add(name)
            if option[1] is None and tool.why == UNLISTED:
                return f"{self.name} {UNLISTED}"
            return f"{self.name} {name} takes no value" if option[1] is None else self._value(option[1], name, value)
        if text.startswith("--"):
            return self._unlisted(tool, name)
        if text[1:].isdecimal() and text.isascii() and "-NUM" in options:
            return None
        if tool.bundles:
            return self._bundle(tool, text, seen)
        if text[:2] in tool.glued.split() and (option := options.get(text[:2])) is not None and option[1] is not None:
            seen.add(text[:2])
            return self._value(option[1], text[:2], text[2:])
        return self._unlisted(tool, name)

    def _bundle(self, tool: Tool, text: str, seen: set[str]) -> str | None:
        for i in range(1, len(text)):
            name = "-" + text[i]
            option = tool.options.get(name)
            if option is None:
                return self._unlisted(tool, name, text)
            seen.add(name)
            arity, kind = option
            if kind is None:
                continue
            if i + 1 < len(text) and kind.words == 1:
                return self._value(kind, name, text[i + 1 :])
            return self._next((arity, kind), name)
        return None

    def _next(self, option: Option, name: str) -> str | None:
        """The value is the next word, if there is to be one."""
        arity, kind = option
        assert kind is not None
        following = self.words[self.at] if self.at < len(self.words) else None
        if arity is Arity.MAYBE:
            if following is not None and following.exact and following.text.isdecimal() and following.text.isascii():
                self.at += 1
                return self._value(kind, name, following.text)
            return None
        if arity is Arity.JOINED:
            return None
        if arity is Arity.LAST and (following is None or following.text[:1] == "-"):
            return None
        taken = self.words[self.at : self.at + kind.words]
        self.at += kind.words
        if len(taken) < kind.words:
            return f"{self.name} {name} lacks its value"
        for word in taken:
            if word.holes and word.holes not in kind.loose:
                return f"{shown(word.text)}, given to {name}, is not known before it runs"
        text = taken[-1].text.replace(UNKNOWN, "1")
        if text[:1] == "-" and not kind.dashed:
            return f"{self.name} {name} is followed by {shown(text)}"
        self.hole = Hole.NONE
        return self._value(kind, name, text)

    def _flag(self, text: str) -> str | None:
        return f"{shown(text)} is not known before it runs" if self.hole else None

    def _value(self, kind: Kind, name: str, value: str) -> str | None:
        """``value`` may hold a pattern only where any text will do: whatever it matches, the option is the same."""
        if self.hole and self.hole not in kind.loose and not (self.hole is Hole.GLOB and kind.free):
            return f"{shown(value)}, given to {name}, is not known before it runs"
        if kind.into is not None:
            sub = kind.into.get(value)
            self.entered = True
            self.name += f" {name} {shown(value)}"
            return f"{self.name} {UNLISTED}" if sub is None else self.run(sub)
        if value[:1] == "@" and not (kind.at or self.plain_at):
            return f"{self.name} {name}: {shown(value)} may name a file of further arguments"
        if (reason := kind.check(value, self.site)) is not None:
            return f"{self.name} {name}: {reason}"
        if kind.moves:
            self.site = self.site.moved(value)
        return None

    def _unlisted(self, tool: Tool, name: str, text: str = "") -> str:
        if (why := tool.reasons.get(name) or tool.reasons.get(name[:2])) is not None:
            return f"{self.name} {name} {why}"
        if tool.why == UNLISTED:
            return f"{self.name} {UNLISTED}"
        inside = f" (in {shown(text)})" if len(text) > 2 else ""
        return f"{shown(name)}{inside} is not among the options of {self.name} that run without asking"

    # operands --------------------------------------------------------------------------------------------------------

    def _operands(self, tool: Tool, operands: list[Word], closed: int, seen: set[str]) -> str | None:
        if not operands and seen == _VERSION:
            return None
        if tool.needs and seen.isdisjoint(tool.needs.split()):
            return f"{self.name} {tool.why}"
        if len(operands) < tool.least or not (operands or not tool.subtools or tool.needs or tool.bare or self.entered):
            return f"{self.name} {tool.why or f'without more {UNLISTED}'}"
        if not operands:
            return None
        if len(operands) > _MOST_OPERANDS and not tool.plain:
            return f"{self.name} is given more than {_MOST_OPERANDS} operands"
        lead = () if tool.lead_unless and not seen.isdisjoint(tool.lead_unless.split()) else tool.lead
        if tool.operands is None and len(operands) > len(lead):
            return self._stray(tool, operands[len(lead)])
        if tool.operands_need and seen.isdisjoint(tool.operands_need.split()):
            return self._stray(tool, operands[0])
        if tool.most is not None and len(operands) > tool.most:
            return f"{self.name} is given more than {tool.most} operand{'s' if tool.most > 1 else ''}"
        for i, word in enumerate(operands):
            kind = lead[i] if i < len(lead) else tool.operands
            assert kind is not None
            if (reason := self._operand(tool, kind, word, first=closed < 0 or i < closed)) is not None:
                return reason
        return None

    def _operand(self, tool: Tool, kind: Kind, word: Word, *, first: bool) -> str | None:
        text = word.text
        if not text.isascii() and unicodedata.category(text[0]) == "Pd":
            return f"{shown(text)} begins with a dash that is not the ASCII one"
        if word.holes and word.holes not in kind.loose:
            if word.holes is not Hole.GLOB or not kind.globs or tool.most is not None:
                return f"{shown(text)} is not known before it runs"
            if not tame(text, first and not tool.tame):
                return f"{shown(text)} may match a file whose name is read as an option"
        if word.holes is Hole.INTEGER:
            text = text.replace(UNKNOWN, "1")
        if text[:1] == "@" and not (kind.at or self.plain_at):
            return f"{self.name}: {shown(text)} may name a file of further arguments"
        if (why := tool.reasons.get(text)) is not None:
            return f"{self.name} {text} {why}"
        if (reason := kind.check(text, self.site)) is not None:
            return f"{self.name}: {reason}"
        return None

    def _stray(self, tool: Tool, word: Word) -> str:
        if (why := tool.reasons.get(word.text)) is not None:
            return f"{self.name} {word.text} {why}"
        if tool.why == UNLISTED:
            return f"{self.name} {UNLISTED}"
        return f"{self.name} {shown(word.text)} {UNLISTED}"
