"""Where each vendor's logins are made and renewed.

The addresses, ids and scopes are those of the vendors' own programs: of openai/codex (``codex-rs/login``), and of the
editors' Copilot plug-ins. ``providers.NAME.loginUrl`` leads elsewhere: to a GitHub Enterprise, or to a test's server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from bubbles.config.schema import Settings
from bubbles.errors import ConfigError
from bubbles.providers.proxies import is_loopback

CODEX = "openai_codex"
COPILOT = "github_copilot"
NAMES = (CODEX, COPILOT)
"""The providers that are used by login, as the registry spells them."""

OPENAI = "https://auth.openai.com"
GITHUB = "https://github.com"
_GHE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.ghe\.com")
"""GitHub Enterprise Cloud with data residency: ``api.`` and ``copilot-api.`` stand before the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexIssuer:
    origin: str
    """Where tokens come from; they go back there and nowhere else."""
    client_id: str = "app_EMoamEEZ73f0CkXaXp7hrann"
    scope: str = "openid profile email offline_access"
    originator: str = "bubbles"
    ports: tuple[int, ...] = (1455, 1457)
    """Of 127.0.0.1, where the browser comes back to: the two that OpenAI knows of this client. 0: any free one."""

    @property
    def authorize_url(self) -> str:
        return f"{self.origin}/oauth/authorize"

    @property
    def token_url(self) -> str:
        return f"{self.origin}/oauth/token"

    @property
    def revoke_url(self) -> str:
        return f"{self.origin}/oauth/revoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopilotIssuer:
    origin: str
    """Where one logs in."""
    rest_url: str
    """Of GitHub's REST API, which gives the tokens for Copilot."""
    api: str
    """Of Copilot itself, for when the token does not say. Empty: there is no usual one."""
    client_id: str = "Iv1.b507a08c87ecfe98"
    scope: str = "read:user"

    @property
    def device_url(self) -> str:
        return f"{self.origin}/login/device/code"

    @property
    def token_url(self) -> str:
        return f"{self.origin}/login/oauth/access_token"

    @property
    def copilot_token_url(self) -> str:
        return f"{self.rest_url}/copilot_internal/v2/token"

    @property
    def user_url(self) -> str:
        return f"{self.rest_url}/user"

    @property
    def revoke_page(self) -> str:
        """Where its owner ends a login: GitHub lets no program without a secret of its own do so."""
        return f"{self.origin}/settings/apps/authorizations"


def codex_issuer(settings: Settings) -> CodexIssuer:
    """Raises ``ConfigError`` for a ``loginUrl`` that tokens must not go to."""
    origin = _origin(CODEX, settings.providers.openai_codex.login_url, OPENAI)
    return CodexIssuer(origin=origin) if origin == OPENAI else CodexIssuer(origin=origin, ports=(1455, 1457, 0))


def copilot_issuer(settings: Settings) -> CopilotIssuer:
    """Raises ``ConfigError`` for a ``loginUrl`` that tokens must not go to."""
    origin = _origin(COPILOT, settings.providers.github_copilot.login_url, GITHUB)
    host = urlsplit(origin).netloc
    if origin == GITHUB:
        return CopilotIssuer(origin=origin, rest_url="https://api.github.com", api="https://api.githubcopilot.com")
    if _GHE.fullmatch(host):
        return CopilotIssuer(origin=origin, rest_url=f"https://api.{host}", api=f"https://copilot-api.{host}")
    return CopilotIssuer(origin=origin, rest_url=f"{origin}/api/v3", api="")


def may_hold_tokens(url: str) -> bool:
    """Whether a token may be sent there: encrypted, or no further than this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _origin(provider: str, chosen: str | None, usual: str) -> str:
    if chosen is None:
        return usual
    setting = f"providers.{provider}.loginUrl"
    if not may_hold_tokens(chosen):
        raise ConfigError(f"{setting} must begin with https://, since tokens go there: correct it.")
    parts = urlsplit(chosen)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{setting} must be an address alone, such as {usual}: take out what is more.")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
