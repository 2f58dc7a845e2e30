"""A card as plain text, such that what a person reads is what would run.

A command may try to look like another: by control characters, by letters without width, by characters that turn the
direction of writing, by 400 spaces before its end, by lines that look like ours.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.controller.policy.contract import Command

MAX_SHOWN = 60_000
"""Characters of a command as shown. Nobody reads more before they answer."""
MAX_INDENT = 24
MAX_GAP = 8
MAX_BLANK_LINES = 2
MAX_MARKS = 2
"""Accents on one letter: Vietnamese has two."""

# Printable by name, but nothing is seen of them: fillers, blanks, selectors (Unicode's Default_Ignorable_Code_Point and
# the empty Braille pattern).
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
GAP = re.compile(rf"[ \t]{{{MAX_GAP + 1},}}")
BLANK_LINES = re.compile(rf"\n(?:[ \t]*\n){{{MAX_BLANK_LINES + 1},}}")
RIGHT_TO_LEFT = frozenset({"R", "AL"})


def command_text(command: Command) -> str:
    """The command for people and records: the script as it is, or the argv with the quotes that a shell would need."""
    return shlex.join(command.argv) if command.script is None else command.script


def shown_line(text: str) -> str:
    """``text`` on one line, with everything in it visible."""
    return _escaped(_counted(text), keep_lines=False)


def shown_lines(text: str) -> str:
    """``text`` with everything in it visible and its lines kept, but for long runs of blank ones."""
    squeezed = BLANK_LINES.sub(lambda run: f"\n[… {run[0].count(chr(10)) - 1} blank lines …]\n", text)
    return _escaped("\n".join(_counted(line) for line in squeezed.split("\n")), keep_lines=True)


def readable(card: ApprovalCard) -> bool:
    """Whether the whole command can be put before a person."""
    return len(card.command) <= MAX_SHOWN and len(shown_lines(card.command)) <= MAX_SHOWN


def render(card: ApprovalCard) -> str:
    """The card in plain text, without how to answer it. Lines of the command begin with ``|``, ours never do."""
    command = shown_lines(card.command)
    lines = [f"May this run? [{card.id}]", *(f"  | {line}" for line in command.split("\n"))]
    if _turns(card.command):
        lines.append("  It holds right-to-left writing: parts of a line may be shown in another order.")
    if card.segment and card.segment.strip() != card.command.strip():
        lines.append(f"  because of: {shown_line(card.segment)}")
    lines += [
        f"  why:        {shown_line(card.reason)}",
        f"  where:      {shown_line(card.directory)}",
        f"  sandbox:    {shown_line(card.sandbox)}, network: {shown_line(card.network)}",
    ]
    return "\n".join(lines)


def how_to_answer(card: ApprovalCard, timeout_s: float) -> str:
    """The line below a card in a chat."""
    return f"OK or no; by id: /approve {card.id} or /deny {card.id}. No answer in {timeout_s:g} seconds means no."


def _escaped(text: str, *, keep_lines: bool) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        seen = character.isprintable() and marks <= MAX_MARKS and not UNSEEN.match(character)
        if seen or (keep_lines and character == "\n"):
            shown.append(character)
        else:
            shown.append(character.encode("unicode_escape", "surrogatepass").decode())
    return "".join(shown)


def _counted(line: str) -> str:
    """``line`` with the length of long gaps in their stead: else its end may be where nobody looks."""

    def number(run: re.Match[str]) -> str:
        width = len(run[0])
        if run.start() == 0 and width <= MAX_INDENT:
            return run[0]
        return f"[… {width} {'tabs and spaces' if chr(9) in run[0] else 'spaces'} …]"

    return GAP.sub(number, line)


def _turns(text: str) -> bool:
    return not text.isascii() and any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text)
