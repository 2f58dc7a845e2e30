"""What Telegram may answer beside what every platform may.

ChannelError (of the contract)
└── SecondPollerError       another program asks for the updates of this bot
SendError (of the contract)
├── NotSentError
│   ├── TokenRefusedError   it does not know the token
│   └── ConflictError       somebody else asks for updates, or a webhook gets them
└── RefusedError
    └── MovedError          the group has another id now
"""

from __future__ import annotations

from bubbles.channels.contract import ChannelError, FatalChannelError, NotSentError, RefusedError


class SecondPollerError(ChannelError):
    def __init__(self) -> None:
        super().__init__(
            "another program asks for the messages of this bot: stop that one, or set channels.telegram.token to the "
            "token of another bot"
        )


class TokenRefusedError(NotSentError):
    """401, or 404 for what has not even the shape of a token; from Telegram itself."""

    def fatal(self) -> FatalChannelError:
        return FatalChannelError(
            "channels.telegram.token is not known to Telegram: set the one that @BotFather shows for this bot."
        )


class ConflictError(NotSentError):
    """409."""


class MovedError(RefusedError):
    """The group has become a supergroup."""

    def __init__(self, chat_id: int) -> None:
        super().__init__(f"the group has become the chat {chat_id}")
        self.chat_id = chat_id
