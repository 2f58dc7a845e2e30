"""Ends a turn without a word (TOOL-10). Only there in a turn that nobody began: a person gets an answer."""

from __future__ import annotations

import logging
from typing import Annotated

from pydantic import Field

from bubbles.bus import Origin, Trigger
from bubbles.controller.approvals.card import shown_line
from bubbles.tools.contract import Args, ToolResult

MAX_REASON = 500
MAX_LOGGED = 200
SILENT = frozenset({Trigger.CRON, Trigger.HEARTBEAT})

_log = logging.getLogger(__name__)


class StaySilentArgs(Args):
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """In a few words, for the log; nobody is shown it."""


class StaySilent:
    name = "stay_silent"
    description = (
        "End this turn without a word: nothing is sent to anybody. Use it when there is nothing that the person would "
        "want to be disturbed for. What you did before stays done. Later you will not know of this turn: write into a "
        "file first what you must remember."
    )
    args = StaySilentArgs

    def offered(self, origin: Origin) -> bool:
        """A task reports to its turn, whatever began that."""
        return origin.trigger in SILENT and not origin.task

    def hint(self, args: StaySilentArgs) -> str:
        del args
        return f"{self.name}()"

    async def run(self, args: StaySilentArgs, origin: Origin) -> ToolResult:
        _log.info("a turn of session %s is silent: %s", origin.session_key, shown_line(args.reason[:MAX_LOGGED]) or "-")
        return ToolResult(text="Nothing is sent.", silent=True)
