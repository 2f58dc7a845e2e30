"""Which lines are commands. Those of a session are the dispatcher's; the rest are the conversation's own. Pure."""

from __future__ import annotations

import difflib
import re

OF_SESSION = {
    "/config": "show what this session sets for itself, or set it: /config KEY VALUE",
    "/prompt": "print the system prompt exactly as it is sent",
    "/compact": "summarise the older part of this conversation",
    "/status": "show what is in force here",
    "/heartbeat": "show or set how often the assistant looks by itself: /heartbeat 30m, /heartbeat off",
    "/stop": "stop what runs; /stop ID a task in the background, /stop all everything",
    "/help": "show the commands",
}
OF_CARDS = ("/approve", "/deny")
"""They answer a question, and the dispatcher takes them."""
SESSION = "/session"
OWN = {SESSION: "show the sessions, or go to one, new or not: /session NAME", "exit": "leave (quit and Ctrl-D too)"}
LEAVE = frozenset({"exit", "quit", "/exit", "/quit"})
ALL = (*OF_SESSION, SESSION, *OF_CARDS, "/exit", "/quit")

COMMAND = re.compile(r"(/[A-Za-z][A-Za-z_-]{0,30})(?:\s|$)")
"""A path such as ``/etc/hosts`` is none."""


def command_of(text: str) -> str | None:
    """The command that a message is, known or not; None for what the model is to read."""
    found = COMMAND.match(text.lstrip())
    return found[1] if found else None


def of_session(text: str) -> bool:
    """Whether the dispatcher answers it, and no model."""
    return command_of(text) in OF_SESSION


def unknown(text: str) -> str | None:
    """What to say of a command that there is not."""
    command = command_of(text)
    if command is None or command in ALL:
        return None
    close = difflib.get_close_matches(command.casefold(), ALL, n=1)
    meant = f" Did you mean {close[0]}?" if close else " /help shows those there are."
    return f"There is no command {command}.{meant} To send it as it is, write a second slash in front: /{command}."


def literal(text: str) -> str:
    """What is sent for a message that only looks like a command: ``//x`` is ``/x``.

    The name of a command keeps its second slash: the dispatcher takes ``/status`` for the command, wherever it is from.
    """
    if not text.startswith("//"):
        return text
    return text if command_of(text[1:]) in ALL else text[1:]
