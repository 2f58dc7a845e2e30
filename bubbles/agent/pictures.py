"""Pictures that a model does not take. It gets their messages without them: a picture stays in the history, and one
damaged file, or a model that reads text only, must not end a session (B093).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from bubbles.providers.contract import Message, ToolMessage, UserMessage

REMARK = "[{} picture(s) are left out here: the model did not take them.]"


class Pictures:
    """For one model. What was refused is known as long as its messages are in memory; the history stays as it is."""

    def __init__(self) -> None:
        self._without: WeakKeyDictionary[Message, Message] = WeakKeyDictionary()

    def taken(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages without what was refused: the same objects each time, and ``messages`` itself if that is so."""
        if not any(message in self._without for message in messages):
            return messages
        return [self._without.get(message, message) for message in messages]

    def refuse(self, messages: Iterable[Message]) -> Sequence[Message]:
        """Leave out all pictures of these from now on; those that had any which were not left out before."""
        found = [
            message
            for message in messages
            if isinstance(message, UserMessage | ToolMessage) and message.images and message not in self._without
        ]
        for message in found:
            text = f"{message.text}\n{REMARK.format(len(message.images))}".lstrip("\n")
            self._without[message] = replace(message, text=text, images=())
        return found

    def allow(self, messages: Iterable[Message]) -> None:
        """They were not what was wrong."""
        for message in messages:
            self._without.pop(message, None)
