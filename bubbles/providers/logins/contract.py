"""What a login is, and what a client needs of it. Open this file first.

Tokens are secrets: no ``repr``, log, error or prompt has one (SEC-03).

LoginError (a BubblesError)    asking again changes nothing, such as an account without Copilot or a full disk
├── NotLoggedInError           there is no login, or it no longer counts: the message names the command that mends it
└── LoginBusyError             another process refreshes it and does not end; it may well succeed a little later

What passes at the vendor's (no connection, 5xx, 429) is a ``ProviderError``, as for any other request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from bubbles.errors import BubblesError

NOTHING: Mapping[str, str] = MappingProxyType({})
API = "api"
"""In ``more`` of GitHub Copilot: where its API is, without a ``/`` at the end."""
PLAN = "plan"
"""In ``more`` of OpenAI Codex: the kind of subscription, such as ``plus``; may be empty."""
ISSUER = "issuer"
"""In ``more``: who gave the tokens. They are sent to no other one."""


class LoginError(BubblesError):
    """A login could not be made, kept or renewed; one sentence for the person, without a secret."""


class NotLoggedInError(LoginError):
    def __init__(self, provider: str, why: str = "there is no login") -> None:
        super().__init__(f"{provider}: {why}. Log in: bubbles provider login {provider}")


class LoginBusyError(LoginError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What is kept of a login, in ``<data_dir>/logins/<provider>.json`` (0600)."""

    provider: str
    """The registry's name."""
    refresh_token: str = field(repr=False)
    """What lasts: the refresh token of OpenAI, the OAuth token of GitHub."""
    access_token: str = field(default="", repr=False)
    """What requests are made with; empty until the first."""
    expires_at: datetime | None = None
    """Of the access token, aware. None: not known."""
    account: str = ""
    """The account's id where requests must name it (OpenAI); a secret to nobody, but not shown whole."""
    person: str = ""
    """Who it is, for ``status``: a mail address or a user name."""
    more: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False)
    """What else the vendor's requests need, such as the address of its API."""
    made_at: datetime | None = None
    """When the person logged in."""
    renewed_at: datetime | None = None
    """When the vendor gave the access token, by the clock of this machine."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(token for token in (self.refresh_token, self.access_token) if token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one request is made with."""

    token: str = field(repr=False)
    account: str = ""
    more: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False)


class AccessSource(Protocol):
    """Gives a token that counts, renewed before it ends. Safe for concurrent use, and between processes."""

    async def access(self, *, refused: Access | None = None) -> Access:
        """``refused``: the one that the server has just turned down (401); it is renewed unless somebody has done so
        meanwhile, or unless it has just replaced another one that was turned down: then it comes back as it is.

        Raises ``LoginError``, and ``ProviderError`` for what passes at the vendor's. Whoever is cancelled while a
        renewal is under way may wait a moment for its end: an answer that gets lost logs the person out.
        """
        ...
