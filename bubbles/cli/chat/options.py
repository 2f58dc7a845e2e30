"""What a person said on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.bus import Address, InboundMessage
from bubbles.cli.chat.commands import literal

if TYPE_CHECKING:
    from bubbles.cli.logs import Log

CLI = "cli"
ME = "me"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    session: str
    """Its key."""
    project: Path | None = None
    """Absolute."""
    backend: str | None = None
    log: Log | None = None

    def learn(self, secret: str) -> None:
        """No line of the log has it from now on."""
        if self.log is not None:
            self.log.learn(secret)


def message_for(session: str, text: str) -> InboundMessage:
    """What the person at this terminal says in a session."""
    return InboundMessage(
        address=Address(channel=CLI, chat_id=session), sender=ME, text=literal(text), session_key=session
    )
