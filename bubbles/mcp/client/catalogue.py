"""The tools that a server says it has, checked one by one (B084): what is unusable is left out and counted.

The same check is made of what a file says that a server had.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bubbles.controller.calls import named
from bubbles.mcp.client.schemas import SchemaError, usable
from bubbles.mcp.contract import ServerTool
from bubbles.sessions.tokens import estimate

MAX_NAME = 128
MAX_OFFERED = 64
MAX_DESCRIPTION = 2_000
MAX_TOOLS = 10_000
MAX_CHARACTERS = 8_000_000
"""Of all schemas and descriptions of one server."""
MAX_SHOWN = 3
"""Reasons that are named to the person."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")


class Catalogue:
    """Of one server, taken in page by page. Blocks: a large page takes a second."""

    def __init__(self, server: str, patterns: Sequence[str] = ("*",), mask: Callable[[str], str] = str) -> None:
        """``patterns`` say which tools there are at all; ``mask`` takes the server's own secrets out of texts."""
        self._server = server
        self._patterns = patterns
        self._mask = mask
        self._tools: dict[str, ServerTool] = {}
        self._offered: set[str] = set()
        self._left_out: Counter[str] = Counter()
        self._faults: list[str] = []
        self._characters = 0

    @property
    def full(self) -> bool:
        return len(self._tools) >= MAX_TOOLS or self._characters >= MAX_CHARACTERS

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        return tuple(self._tools.values())

    @property
    def problem(self) -> str:
        """What was left out, as a part of a sentence; empty if nothing was."""
        said = list(dict.fromkeys(self._faults))
        if self._left_out:
            count = self._left_out.total()
            reasons = ", ".join(reason for reason, _ in self._left_out.most_common(MAX_SHOWN))
            said.append(f"{count} of its tools {'is' if count == 1 else 'are'} left out ({reasons})")
        return "; ".join(said)

    def take(self, rows: object) -> None:
        """A list as ``tools/list`` gives it; never raises for what is in it."""
        if not isinstance(rows, list):
            self.fault("what it says that its tools are is no list")
            return
        for row in rows:
            try:
                if self.full:
                    raise SchemaError("there are too many")
                self._add(row)
            except SchemaError as error:
                self._left_out[str(error)] += 1

    def fault(self, what: str) -> None:
        """Something is wrong with the list itself."""
        if len(self._faults) < MAX_SHOWN:
            self._faults.append(what)

    def _add(self, row: object) -> None:
        if not isinstance(row, dict):
            raise SchemaError("what stands for a tool is no object")
        name = row.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable() or name.isspace():
            raise SchemaError("its name cannot be used")
        if named(name, self._patterns) is None:
            return
        if self._mask(name) != name:
            raise SchemaError("its name holds a secret of yours")
        if name in self._tools:
            raise SchemaError("there are two of its name")
        schema, text = usable(row.get("inputSchema", row.get("input_schema")))
        description = self._mask(clean_text(row.get("description"), MAX_DESCRIPTION))
        if (masked := self._mask(text)) != text:
            schema = _reread(masked)
        offered_as = offered_name(self._server, name)
        if offered_as in self._offered:
            raise SchemaError("its name cannot be told from another's")
        self._offered.add(offered_as)
        self._characters += len(text) + len(description)
        self._tools[name] = ServerTool(
            server=self._server,
            name=name,
            offered_as=offered_as,
            description=description,
            schema=schema,
            tokens=estimate(offered_as) + estimate(description) + estimate(text),
        )


def _reread(masked: str) -> dict[str, Any]:
    try:
        schema, _ = usable(json.loads(masked))
    except ValueError as error:
        raise SchemaError("its schema holds a secret of yours") from error
    return schema


def clean_text(value: object, most: int) -> str:
    """At most ``most`` characters of a text that a server chose, without what cannot be seen; empty for no text."""
    if not isinstance(value, str):
        return ""
    seen = "".join(c for c in value[: 2 * most] if c in "\n\t" or unicodedata.category(c)[0] != "C").strip()
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


def offered_name(server: str, tool: str) -> str:
    """``mcp__SERVER__TOOL``, as vendors take it. No two tools of any servers get the same, as far as a hash can tell:
    where the plain name would be too long, or could be read in two ways, one is a part of it.
    """
    plain = f"mcp__{server}__{tool}"
    cleaned = _ODD.sub("_", plain)
    ambiguous = "__" in server or server.endswith("_") or tool.startswith("_")
    if cleaned == plain and len(plain) <= MAX_OFFERED and not ambiguous:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{cleaned[: MAX_OFFERED - 9]}_{digest}"


def rows_of(tools: Sequence[ServerTool]) -> list[Mapping[str, Any]]:
    """As ``take`` takes them again."""
    return [{"name": tool.name, "description": tool.description, "inputSchema": tool.schema} for tool in tools]
