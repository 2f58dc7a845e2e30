"""What a summary must hold word for word: the message that the turn is about, and the last one of the person (B055).

A summary is the model's text and, behind it, these sections, written by the program and read back by it when the next
summary is made: in a long turn the message at hand may have been summarised away long before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bubbles.agent.shorten import level
from bubbles.sessions.contract import Author, Unit
from bubbles.sessions.tokens import estimate
from bubbles.tools.truncate import cut_to_tokens

_ANSWERED = "[Before that, the person's last message. It was dealt with; word for word:]"
_OPEN = (
    "[Asked in turn {turn} and not answered yet. The turn goes on: this is what you are working on, whatever is said "
    "above; word for word:]"
)
_OPEN_LINE = re.compile(r"^\[Asked in turn (\w{1,64}) and not answered yet\. [^\n]*:\]$", re.MULTILINE)
_POSING = re.compile(r"^\[(?=Asked in turn |Before that, the person's last message)", re.MULTILINE)
_BREAK = "\n\n---\n\n"
"""Between two messages."""
WHERE = " because the message is too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    turn: str = ""
    """In which ``open`` was asked."""
    open: str = ""
    answered: str = ""

    def written(self, body: str, tokens: int) -> str:
        """The whole summary. The sections take ``tokens`` each, or twice that if there are very many messages."""
        parts = [_POSING.sub("(", body.strip())]
        if self.answered:
            parts.append(f"{_ANSWERED}\n{cut_to_tokens(_POSING.sub('(', self.answered), tokens, WHERE)}")
        if self.open:
            parts.append(f"{_OPEN.format(turn=self.turn)}\n{_within(_POSING.sub('(', self.open), tokens)}")
        return "\n\n".join(parts)


def _within(text: str, tokens: int) -> str:
    """Each of the messages shortened if need be. Of very many, those between the first and the last go."""
    messages = text.split(_BREAK)
    cap = level([estimate(message) for message in messages], tokens)
    short = [cut_to_tokens(message, cap, WHERE) for message in messages]
    while len(short) > 1 and sum(map(estimate, short)) > 2 * tokens:
        del short[1 if len(short) > 2 else 0]
    return _BREAK.join(short)


def read(summary: str | None) -> tuple[str, Standing]:
    """The model's text of an earlier summary, and what it held word for word."""
    body, turn, open_text = summary or "", "", ""
    if found := _OPEN_LINE.search(body):
        body, turn, open_text = body[: found.start()], found[1], body[found.end() :]
    body, _, answered = body.partition(_ANSWERED)
    return body.strip(), Standing(turn=turn, open=open_text.strip(), answered=answered.strip())


def standing(units: Sequence[Unit], earlier: Standing, *, kept_from: int, turn: str, since: int) -> Standing:
    """What has to be in the summary of everything before ``kept_from``.

    ``since`` is the ``seq`` with which the running turn began.
    """
    same_turn = earlier.turn == turn
    asked = [unit for unit in units if unit.author in (Author.PERSON, Author.JOB)]
    at_hand = [_text(unit) for unit in asked if since <= unit.seq < kept_from]
    open_text = _BREAK.join([earlier.open] * (same_turn and bool(earlier.open)) + at_hand)
    last = next((unit for unit in reversed(asked) if unit.author is Author.PERSON), None)
    if last is not None:
        answered = _text(last) if last.seq < min(since, kept_from) else ""
    else:
        answered = earlier.answered if same_turn else earlier.open or earlier.answered
    return Standing(turn=turn, open=open_text, answered=answered)


def _text(unit: Unit) -> str:
    message = unit.messages[0]
    pictures = len(getattr(message, "images", ()))
    return message.text + (f"\n[With {pictures} picture(s), which are not kept.]" if pictures else "")
