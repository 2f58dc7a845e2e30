"""A message as the model gets it. Pure.

In a group each message begins with who speaks, and nothing in a name or a text can look like the beginning of another
message, or like a line of the program: what goes on below the first line is set in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from bubbles.bus import InboundMessage
from bubbles.channels.markup import MENTION
from bubbles.controller.approvals.card import shown_line
from bubbles.sessions.wellformed import clean

MAX_TEXT = 200_000
"""Characters of one message. No platform takes as much; nobody types it."""
TOO_LONG = f"[The message is longer: what is here are its first {MAX_TEXT:,} characters.]"
NOTHING = "[There is nothing in this message that can be read here.]"
MAX_NAME = 60
"""Characters of a name as it is shown."""
MAX_LOOKED_AT = 200
MAX_ID = 200
MAX_EXCERPT = 60

SET_IN = "  "
IN_NAMES = frozenset(" -_.'’")  # noqa: RUF001 - as names are written
"""Beside letters, digits and pictures. Nothing with which a name could go on like what we write behind it."""
IN_IDS = re.compile(r"[^\w.:@+=/!#$%&*~-]")


def composed(text: str, lines: Sequence[str], speaker: str = "") -> str:
    """``text``, then ``lines`` of the program. ``speaker`` is as ``speaking`` says; empty in private chats."""
    cut = clean(text[:MAX_TEXT])
    notes = [*([TOO_LONG] if len(text) > MAX_TEXT else []), *lines]
    if speaker:
        cut = f"{speaker}: {f'{chr(10)}{SET_IN}'.join(cut.splitlines())}".rstrip()
    return "\n".join([*([cut] if cut.strip() else []), *notes]) or NOTHING


def speaking(name: str, ident: str) -> str:
    """Who speaks in a group, on one line: ``Ann (<@123>)``."""
    normal = unicodedata.normalize("NFKC", name[:MAX_LOOKED_AT])
    plain = shown_name("".join(each if _in_names(each) else " " for each in normal))
    mention = f"<@{IN_IDS.sub('_', ident[:MAX_ID])}>"
    return f"{plain} ({mention})" if plain else mention


def shown_name(name: str) -> str:
    """On one line, with everything in it visible, and not long."""
    return shown_line(" ".join(name[:MAX_LOOKED_AT].split()))[:MAX_NAME].rstrip()


def excerpt(message: InboundMessage) -> str:
    """How a message begins, for who wrote it: on one line, and no markup, so that nobody is called by it again."""
    text = message.text.partition(": ")[2] if message.is_group and ": " in message.text else message.text
    plain = MENTION.sub(r"@\1", text[: 20 * MAX_EXCERPT]).replace("<@", "@").replace("`", "'")
    words = " ".join(plain.split())
    return shown_line(words if len(words) <= MAX_EXCERPT else f"{words[:MAX_EXCERPT].rstrip()}…")


def _in_names(character: str) -> bool:
    category = unicodedata.category(character)
    return character in IN_NAMES or category[0] in "LNM" or category == "So"
