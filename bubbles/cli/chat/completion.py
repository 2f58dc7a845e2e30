"""What Tab offers at the prompt: commands, settings of a session, names of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bubbles.cli.chat.commands import LEAVE, OF_SESSION, OWN, SESSION

Choices = Callable[[str], Iterable[str]]
"""The values that a setting can have, where they are a written few."""


class CommandCompleter(Completer):
    """``sessions`` gives names as they are known now; ``settings`` those of a session, ``values`` of one of them."""

    def __init__(self, sessions: Callable[[], Iterable[str]], settings: Iterable[str], values: Choices) -> None:
        self._sessions = sessions
        self._settings = tuple(settings)
        self._values = values

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        del complete_event
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        *before, word = typed.split(" ")
        for text, what in self._choices(before):
            if text.startswith(word):
                yield Completion(text, start_position=-len(word), display_meta=what)

    def _choices(self, before: list[str]) -> Iterator[tuple[str, str]]:
        match before:
            case []:
                yield from OF_SESSION.items()
                yield from ((name, what) for name, what in OWN.items() if name.startswith("/"))
                yield from ((name, "leave") for name in sorted(LEAVE) if name.startswith("/"))
            case [command] if command == SESSION:
                yield from ((name, "") for name in self._sessions())
            case ["/config"]:
                yield from ((name, "") for name in self._settings)
            case ["/config", name]:
                yield from ((value, "") for value in (*self._values(name), "default"))
