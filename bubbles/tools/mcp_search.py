"""Finds tools of MCP servers by words. Names and descriptions are hostile text; work and answer are bounded."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bubbles.controller.approvals.card import shown_line
from bubbles.mcp.contract import ServerTool
from bubbles.tools.mcp_arguments import signature

MAX_FOUND = 8
MAX_WORDS = 20
"""Of a query."""
MAX_DESCRIPTION = 600
MAX_SCHEMA = 4_000
"""Characters of a schema that are shown, unless its tool is the only one that is found."""
MAX_TEXT = 24_000
"""Characters of an answer."""
MAX_LISTED = 150
"""Names that are listed when no tool is found."""
IN_NAME, IN_SERVER, IN_ARGUMENT, IN_DESCRIPTION = 8.0, 3.0, 2.0, 1.0
PART = 0.4
"""Of what a word is worth, if it is only a part of another: ``issue`` in ``subissues``."""
MIN_PART, MIN_STEM = 2, 3
"""Characters: a Chinese word has two."""
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    tools: tuple[ServerTool, ...]
    """Most relevant first."""
    more: int
    """How many match beside these."""


def search(tools: Sequence[ServerTool], query: str) -> Found:
    """Those that have a word of ``query``, by how much they have of it. A tool that is named exactly comes alone."""
    wanted = query.strip().lower()
    if exact := [tool for tool in tools if wanted in (tool.offered_as.lower(), tool.name.lower())]:
        return Found(tools=tuple(exact[:MAX_FOUND]), more=max(len(exact) - MAX_FOUND, 0))
    words = list(dict.fromkeys(_words(query)))[:MAX_WORDS]
    stems = [_stem(word) for word in words]
    scores: dict[int, list[float]] = {}
    for place, tool in enumerate(tools):
        fields = _fields(tool)
        whole = "\n".join(text for _, text in fields).lower()
        if any(stem in whole for stem in stems):
            scores[place] = _scores(words, stems, fields)
    having = Counter(number for row in scores.values() for number, score in enumerate(row) if score)
    rare = [math.log(1 + len(tools) / (1 + having[number])) for number in range(len(words))]
    totals = {place: sum(score * rare[number] for number, score in enumerate(row)) for place, row in scores.items()}
    ranked = sorted((place for place, total in totals.items() if total), key=lambda place: -totals[place])
    return Found(tools=tuple(tools[place] for place in ranked[:MAX_FOUND]), more=max(len(ranked) - MAX_FOUND, 0))


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > MIN_STEM and word.endswith("s") else word


def _fields(tool: ServerTool) -> list[tuple[float, str]]:
    properties = tool.schema.get("properties")
    names = [name for name in properties if isinstance(name, str)] if isinstance(properties, Mapping) else []
    return [
        (IN_NAME, tool.name),
        (IN_SERVER, tool.server),
        (IN_ARGUMENT, " ".join(names)[:MAX_DESCRIPTION]),
        (IN_DESCRIPTION, tool.description[:MAX_DESCRIPTION]),
    ]


def _scores(words: Sequence[str], stems: Sequence[str], fields: Sequence[tuple[float, str]]) -> list[float]:
    """For each word what it is worth: all of it as a word of its own, a part inside another."""
    totals = [0.0] * len(words)
    for weight, text in fields:
        there, whole = set(_words(text)), text.lower()
        for number, word in enumerate(words):
            if word in there or stems[number] in there:
                totals[number] += weight
            elif len(word) >= MIN_PART and stems[number] in whole:
                totals[number] += PART * weight
    return totals


def shown(found: Found) -> str:
    """Names, descriptions and schemas, as much of them as there is room for."""
    whole = len(found.tools) == 1
    parts: list[str] = []
    room = MAX_TEXT
    for tool in found.tools:
        part = _entry(tool, whole=whole)
        if len(part) > room:
            part = f"{tool.offered_as}\n  arguments: {signature(tool.schema)}"
        parts.append(part)
        room -= len(part)
    return "\n\n".join(parts)


def _entry(tool: ServerTool, *, whole: bool) -> str:
    description = " ".join(tool.description.split())
    if len(description) > MAX_DESCRIPTION and not whole:
        description = f"{description[: MAX_DESCRIPTION - 1]}…"
    try:
        schema = json.dumps(tool.schema, ensure_ascii=False, separators=(",", ":"), default=dict)
    except (ValueError, TypeError, RecursionError):
        schema = signature(tool.schema)
    if len(schema) > MAX_SCHEMA and not whole:
        schema = f"{signature(tool.schema)} (shortened: find {tool.offered_as} alone for all of it)"
    lines = [tool.offered_as, f"  {description}" if description else "", f"  arguments: {schema}"]
    return "\n".join(line for line in lines if line)


def listed(tools: Sequence[ServerTool]) -> str:
    """Names by server, for a query that finds nothing."""
    by_server: dict[str, list[str]] = {}
    for tool in tools[:MAX_LISTED]:
        by_server.setdefault(tool.server, []).append(shown_line(tool.name))
    lines = [f"{server}: {', '.join(names)}" for server, names in by_server.items()]
    if len(tools) > MAX_LISTED:
        lines.append(f"and {len(tools) - MAX_LISTED} more")
    return "\n".join(lines)
