"""What was last learnt of each server, kept in ``<data_dir>/mcp/<name>.json``.

The next program offers tools at once by it, and ``bubbles status`` shows servers without starting any.

A file that is damaged, or of a server that is configured otherwise by now, counts as none. No secret is in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bubbles.config.files import content, replace, writing
from bubbles.config.schema import McpServerSettings
from bubbles.errors import BubblesError
from bubbles.mcp.client.catalogue import Catalogue, clean_text, rows_of
from bubbles.mcp.contract import ServerInfo, ServerState, ServerTool

FOLDER = "mcp"
MAX_BYTES = 64 << 20
"""More than any catalogue takes: 8 million characters, each of up to six bytes."""
MAX_PROBLEM = 500
MAX_SEEN = 40

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What is known of a server."""

    tools: tuple[ServerTool, ...] = ()
    seen: str = ""
    """When they were learnt, ISO 8601."""
    problem: str = ""
    """What was wrong at last, or is."""


NOTHING = Learnt()


class Shelf:
    """Every method blocks."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def read(self, name: str, settings: McpServerSettings) -> Learnt:
        """``NOTHING`` if there is nothing that can be used. Never raises."""
        try:
            found = json.loads(content(self._folder / f"{name}.json", MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return NOTHING
        if not isinstance(found, dict) or found.get("fingerprint") != fingerprint(settings):
            return NOTHING
        catalogue = Catalogue(name, settings.tools)
        catalogue.take(found.get("tools"))
        return Learnt(
            tools=catalogue.tools,
            seen=clean_text(found.get("seen"), MAX_SEEN),
            problem=clean_text(found.get("problem"), MAX_PROBLEM),
        )

    def write(self, name: str, settings: McpServerSettings, learnt: Learnt) -> None:
        """A disk that does not take it costs the next start some seconds, and nothing else."""
        kept: Mapping[str, Any] = {
            "fingerprint": fingerprint(settings),
            "seen": learnt.seen,
            "problem": learnt.problem,
            "tools": rows_of(learnt.tools),
        }
        try:
            with writing(self._folder / f"{name}.json") as real:
                replace(real, json.dumps(kept))
        except BubblesError as error:
            _log.warning("What the MCP server %s offers could not be kept: %s", name, error)


def fingerprint(settings: McpServerSettings) -> str:
    """Changes with the server that is meant, not with its keys."""
    url = urlsplit(settings.url or "")
    meant = [settings.command, settings.args, url.scheme, url.netloc.rpartition("@")[2], url.path, settings.sandboxed]
    return hashlib.sha256(json.dumps(meant).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def kind_of(settings: McpServerSettings) -> str:
    if settings.url is not None:
        return "http"
    return "stdio in the sandbox" if settings.sandboxed else "stdio"


def last_seen(data_dir: Path, settings: Mapping[str, McpServerSettings]) -> tuple[ServerInfo, ...]:
    """Every configured server by what was last learnt; starts nothing. Blocks."""
    shelf = Shelf(data_dir)
    return tuple(info_of(name, server, shelf.read(name, server)) for name, server in settings.items())


def info_of(name: str, settings: McpServerSettings, learnt: Learnt) -> ServerInfo:
    """Of a server that does not run."""
    if not settings.enabled:
        return ServerInfo(name=name, kind=kind_of(settings), state=ServerState.OFF)
    return ServerInfo(
        name=name,
        kind=kind_of(settings),
        state=ServerState.IDLE,
        tools=len(learnt.tools),
        problem=learnt.problem,
        seen=learnt.seen,
    )
