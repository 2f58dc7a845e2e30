"""What is not sent, whoever asks for it (SEC-03)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from bubbles.tools.contract import ToolError


def refuse_keys(text: str, mask: Callable[[str], str]) -> None:
    """Raises ``ToolError`` if a text that is to leave this machine holds a key of the owner's."""
    for form in (text, unquote(text)):
        if mask(form) != form:
            raise ToolError("One of the owner's keys is in it, and those are sent to nobody: leave it out.")
