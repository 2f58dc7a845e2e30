"""Finds people of this group by name (TOOL-08), so that a reply can mention them (CHAN-06)."""

from __future__ import annotations

import asyncio
import difflib
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from pydantic import Field

from bubbles.bus import Origin
from bubbles.controller.approvals.card import shown_line
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.files import quoted
from bubbles.tools.services import Member, Members, ServiceError

MAX_FOUND = 20
MAX_NAMES = 3
"""Of one person, as shown."""
MAX_SHOWN = 60
MAX_NAME = 200
"""Characters of a name, or an id, that are looked at: the platform's, and anybody's choice."""
MAX_LOOKED_AT = 10
"""Names of one person."""
CLOSE = 0.6
"""Likeness from which on a name is taken for a misspelt one."""
MAX_LIKENED = 2_000
"""Members whose names are looked through for a misspelt one: that takes far longer than to find a name."""
MAX_LIKE = 40
"""Characters of a name that are compared for it."""
NOBODY = "There are no members here: this is a private conversation, not a group."


class FindPersonArgs(Args):
    name: Annotated[str, Field(max_length=MAX_NAME)] = ""
    """A name or a part of one; left out, everybody is listed."""


class FindPerson:
    name = "find_person"
    description = (
        "Find members of this group by name. Put the <@id> that comes back into your reply to mention that person. "
        "In a private chat there is nobody to find."
    )
    args = FindPersonArgs

    def __init__(self, members: Members | None = None) -> None:
        """Without ``members`` no chat is a group, as at a terminal."""
        self._members = members

    def offered(self, origin: Origin) -> bool:
        del origin
        return True

    def hint(self, args: FindPersonArgs) -> str:
        return f"find_person({quoted(args.name[:MAX_SHOWN])})"

    async def run(self, args: FindPersonArgs, origin: Origin) -> ToolResult:
        try:
            members = None if self._members is None else await self._members.of(origin.address)
        except ServiceError as error:
            raise ToolError(str(error)) from None
        if members is None:
            return ToolResult(text=NOBODY)
        usable = [member for member in members if _is_id(member.id)]
        found = await asyncio.to_thread(matching, usable, args.name)
        if not found:
            return ToolResult(text=f"Nobody of the {len(usable)} members here is called that.")
        lines = [f"<@{member.id}> {_named(member)}" for member in found[:MAX_FOUND]]
        if len(found) > MAX_FOUND:
            lines.append(f"and {len(found) - MAX_FOUND} more: say more of the name")
        return ToolResult(text="\n".join(lines))


def matching(members: Sequence[Member], name: str) -> list[Member]:
    """Those whose name is it, then those whose name begins with it, then holds it, each group in order.

    If there are none, those whose name is like it.
    """
    wanted = _plain(name)
    if not wanted:
        return list(members)
    ranked = [(rank, member) for member in members if (rank := _rank(member, wanted)) is not None]
    if ranked:
        return [member for _, member in sorted(ranked, key=lambda each: each[0])]
    like = difflib.SequenceMatcher(None, "", wanted[:MAX_LIKE])
    return [member for member in islice(members, MAX_LIKENED) if any(_is_like(like, each) for each in _names(member))]


def _rank(member: Member, wanted: str) -> int | None:
    ranks = []
    for name in _names(member):
        if name == wanted:
            ranks.append(0)
        elif name.startswith(wanted):
            ranks.append(1)
        elif any(word.startswith(wanted) for word in name.split()):
            ranks.append(2)
        elif wanted in name:
            ranks.append(3)
    return min(ranks, default=None)


def _names(member: Member) -> list[str]:
    return [_plain(text) for text in (*member.names[:MAX_LOOKED_AT], member.id)]


def _is_like(wanted: difflib.SequenceMatcher[str], name: str) -> bool:
    wanted.set_seq1(name[:MAX_LIKE])
    return wanted.real_quick_ratio() >= CLOSE and wanted.quick_ratio() >= CLOSE and wanted.ratio() >= CLOSE


def _plain(text: str) -> str:
    """Without case, accents and a leading @, and with one blank between words."""
    letters = unicodedata.normalize("NFKD", text[:MAX_NAME].casefold())[:MAX_NAME]
    return " ".join("".join(each for each in letters if not unicodedata.combining(each)).removeprefix("@").split())


def _is_id(ident: str) -> bool:
    """Whether ``<@id>`` would be one mention and nothing else."""
    return bool(ident) and len(ident) <= MAX_NAME and ident.isprintable() and not set(ident) & set("<>@ ")


def _named(member: Member) -> str:
    names = [shown_line(name[:MAX_SHOWN]) for name in member.names[:MAX_NAMES] if name.strip()]
    return ", ".join(names) or "(without a name)"
