"""Settings of chat channels. Each is closed to everybody until its owner opens it (CHAN-02)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from bubbles.config.values import Key, Section, Text


def _as_text(value: object) -> object:
    """Ids that are numbers may be written as such."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Ident = Annotated[Text, BeforeValidator(_as_text)]


class ChannelSettings(Section):
    """What all channels have."""

    enabled: bool = False
    allow_from: tuple[Ident, ...] = ()
    """Ids of the people who may use the assistant here, or ``*`` for everybody; empty means nobody."""
    group_policy: Literal["mention", "all", "off"] = "mention"
    """In groups: what mentions the assistant or replies to it is answered, or everything, or nothing (CHAN-03)."""


class TelegramSettings(ChannelSettings):
    token: Key = None
    """Of the bot, from @BotFather."""
    proxy: Annotated[str, Field(pattern=r"^(https?|socks5h?)://\S+$")] | None = Field(default=None, repr=False)
    """``http://host:port`` or ``socks5://host:port``; it may hold a password."""
    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] = "https://api.telegram.org"
    """Of the Bot API, if it is a server of your own."""
