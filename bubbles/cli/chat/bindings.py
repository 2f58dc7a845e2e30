"""Which keys do what at the prompt."""

from __future__ import annotations

from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys


class Typed(Protocol):
    def entered(self) -> None: ...
    def interrupted(self) -> None: ...
    def ended(self) -> None: ...


def bindings(typed: Typed, talking: Condition) -> KeyBindings:
    """``talking`` holds while no question is open."""
    made = KeyBindings()
    editing = has_focus(DEFAULT_BUFFER)

    @made.add("enter", filter=editing)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if talking() and buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            typed.entered()

    @made.add("escape", "enter", filter=editing & talking)
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @made.add("c-c")
    @made.add(Keys.SIGINT)
    def _interrupt(event: KeyPressEvent) -> None:
        del event
        typed.interrupted()

    @made.add("c-d", filter=editing & Condition(lambda: not talking() or not get_app().current_buffer.text))
    def _end(event: KeyPressEvent) -> None:
        del event
        typed.ended()

    @made.add(Keys.BracketedPaste, filter=~talking)
    def _paste(event: KeyPressEvent) -> None:
        del event  # nothing that was copied elsewhere answers a question

    return made
