"""A card as plain text, such that what a person reads is what would run.

A command may try to look like another: by control characters, by letters without width, by characters that turn the
direction of writing, by 400 spaces before its end, by lines that look like ours, by lines so long that a terminal
breaks them where they look like ours.

What stands in for something, or is put in between, is in ``⟨`` and ``⟩``; where a command has these itself they are
written as escapes. So a TAB, ``⟨\\t⟩``, is told from a backslash and a ``t``, and no command can write it.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.controller.policy.contract import Command

MAX_SHOWN = 60_000
"""Characters of a command as shown. Nobody reads more before they answer."""
MAX_ROWS = 1_000
"""Rows of a command in a terminal of ``WIDTH`` columns. Many terminals keep no more to scroll back to."""
WIDTH = 80
MIN_WIDTH = 20
"""Columns that a card needs at least."""
MAX_INDENT = 24
MAX_GAP = 8
MAX_BLANK_LINES = 2

COMMAND_MARK = "  | "
"""Begins each row of the command, and no other."""
VALUE_MARK = "    "
GOES_ON = "⟨…⟩"
"""Begins a row that goes on with the line above it: where a line ends, a comment does."""
LABEL_WIDTH = 14
LINES_BELOW = 4
"""What a terminal writes below a card: how to answer, perhaps broken, and the line for the answer."""

# Printable by name, but nothing is seen of them: Hangul letters that only join others, fillers, the empty Braille
# pattern. Marks that join the letter before them (categories Mn and Me, selectors among them) are seen too late or not.
UNSEEN = re.compile("[\u115f-\u11ff\u2800\u3164\ud7b0-\ud7ff\uffa0]")
JOINING = frozenset({"Mn", "Me"})
OURS = frozenset("⟨⟩")
GAP = re.compile(rf"[ \t]{{{MAX_GAP + 1},}}")
BLANK_LINES = re.compile(rf"\n(?:[ \t]*\n){{{MAX_BLANK_LINES + 1},}}")
PIECE = re.compile("⟨[^⟩]*⟩|.")
RIGHT_TO_LEFT = frozenset({"R", "AL"})
NARROW = frozenset({"Na", "N", "H"})


def command_text(command: Command) -> str:
    """The command for people and records: the script as it is, or the argv with the quotes that a shell would need."""
    return shlex.join(command.argv) if command.script is None else command.script


def shown_line(text: str) -> str:
    """``text`` on one line, with everything in it visible, and long gaps as their length: else its end may be where
    nobody looks.
    """
    if text.isascii() and text.isprintable() and not GAP.search(text):
        return text
    shown, done = [], 0
    for gap in GAP.finditer(text):
        if gap.start() == 0 and len(gap[0]) <= MAX_INDENT:
            continue
        kind = "tabs and spaces" if "\t" in gap[0] else "spaces"
        shown += [_escaped(text[done : gap.start()]), f"⟨{len(gap[0])} {kind}⟩"]
        done = gap.end()
    return "".join([*shown, _escaped(text[done:])])


def shown_lines(text: str) -> str:
    """``text`` with everything in it visible and its lines kept, but for long runs of blank ones."""
    lines, done = [], 0
    for run in BLANK_LINES.finditer(text):
        lines += [shown_line(line) for line in text[done : run.start()].split("\n")]
        lines.append(f"⟨{run[0].count(chr(10)) - 1} blank lines⟩")
        done = run.end()
    return "\n".join([*lines, *(shown_line(line) for line in text[done:].split("\n"))])


def readable(card: ApprovalCard) -> bool:
    """Whether the whole command can be put before a person."""
    if len(card.command) > MAX_SHOWN:
        return False
    shown = shown_lines(card.command)
    return len(shown) <= MAX_SHOWN and len(_Paper(width=WIDTH).command(shown)) <= MAX_ROWS


def render(card: ApprovalCard, width: int = WIDTH, *, height: int | None = None, encoding: str = "utf-8") -> str:
    """The card in plain text, without how to answer it.

    Every row fits in ``width`` columns (at least ``MIN_WIDTH``), so that no terminal breaks one. ``height`` counts the
    rows of the screen: a card that needs more says so at its end. What ``encoding`` lacks is written as escapes.
    """
    paper = _Paper(width=max(width, MIN_WIDTH), encoding=encoding)
    command = paper.command(shown_lines(card.command))
    question = f"May this run? [{shown_line(card.id)}]"
    rows = [*paper.broken(question), *command]
    if _turns(card.command):
        rows += paper.broken("  It holds right-to-left writing: parts of a line may be shown in another order.")
    for name, value in _details(card, len(command)):
        rows += paper.detail(name, value)
    if height is not None and len(rows) > height - LINES_BELOW:
        told = f"  These are {len(rows)} rows and the screen has {height}: scroll up to where they begin."
        rows += [*paper.broken(told), *paper.broken(question)]
    return "\n".join(rows)


def how_to_answer(card: ApprovalCard, timeout_s: float) -> str:
    """The line below a card in a chat."""
    return f"OK or no; by id: /approve {card.id} or /deny {card.id}. No answer in {timeout_s:g} seconds means no."


def how_to_answer_in_group(card: ApprovalCard, timeout_s: float) -> str:
    """The same where people talk to each other: an OK that is meant for somebody else must not run anything."""
    return (
        f"Reply to this with OK or no; or /approve {card.id}, /deny {card.id}. "
        f"No answer in {timeout_s:g} seconds means no."
    )


def _details(card: ApprovalCard, rows: int) -> Iterator[tuple[str, str]]:
    if card.segment and card.segment.strip() != card.command.strip():
        yield "because of", shown_line(card.segment)
    if card.task:
        yield "wanted by", f"{shown_line(card.task)}, a task in the background"
    yield "why", shown_line(card.reason)
    yield "where", shown_line(card.directory)
    yield "sandbox", f"{shown_line(card.sandbox)}, network: {shown_line(card.network)}"
    lines = card.command.count("\n") + 1
    size = f"{_number(lines, 'line')}, {_number(len(card.command), 'character')}"
    yield "size", size if rows == lines else f"{size}, shown in {_number(rows, 'row')}"


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paper:
    """Breaks lines into rows of less than ``width`` columns: terminals differ in what they do with a full row."""

    width: int
    encoding: str = "utf-8"

    def command(self, shown: str) -> list[str]:
        return [row for line in shown.split("\n") for row in self.broken(line, COMMAND_MARK)]

    def detail(self, name: str, value: str) -> list[str]:
        """Beside its name, or below it if it is too long for that."""
        label = f"  {name + ':':{LABEL_WIDTH - 2}}"
        beside = self.broken(label + value)
        return beside if len(beside) == 1 else [label.rstrip(), *self.broken(value, VALUE_MARK)]

    def broken(self, line: str, mark: str = "") -> list[str]:
        """Each row begins with ``mark``; those that go on with the line say so."""
        if line.isascii() and len(mark + line) < self.width:
            return [mark + line]
        more = mark + self._encodable(GOES_ON)
        rows, row = [], mark
        used = start = _width(mark)
        for piece in PIECE.findall(self._encodable(line)):
            for part in (piece,) if _width(more + piece) < self.width else piece:
                columns = _width(part)
                if used + columns >= self.width and used > start:
                    rows.append(row)
                    row, used = more, _width(more)
                    start = used
                row += part
                used += columns
        return [*rows, row]

    def _encodable(self, text: str) -> str:
        return text if text.isascii() else text.encode(self.encoding, "backslashreplace").decode(self.encoding)


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    """As many as any terminal uses: some show pictures, and letters that old Asian sets have, two columns wide."""
    if character.isascii():
        return 1
    narrow = unicodedata.east_asian_width(character) in NARROW and unicodedata.category(character) != "So"
    return 1 if narrow else 2


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _seen(character) else f"⟨{_escape(character)}⟩" for character in text)


def _seen(character: str) -> bool:
    return character.isprintable() and not (
        character in OURS or UNSEEN.match(character) or unicodedata.category(character) in JOINING
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def _turns(text: str) -> bool:
    return not text.isascii() and any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text)
