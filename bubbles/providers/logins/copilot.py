"""Logging in to GitHub for Copilot: the device flow (RFC 8628), and the short-lived tokens that follow from it.

What lasts is an OAuth token of GitHub; for requests to Copilot it is changed into one that counts for half an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from bubbles.providers.contract import ProviderError
from bubbles.providers.failures import broken
from bubbles.providers.logins.contract import API, ISSUER, Login, LoginError, NotLoggedInError
from bubbles.providers.logins.issuers import COPILOT, CopilotIssuer, may_hold_tokens
from bubbles.providers.logins.web import Answer, Web
from bubbles.providers.targets import USER_AGENT

USUAL_INTERVAL_S = 5.0
SLOWER_S = 5.0
"""What ``slow_down`` adds, if it does not say how long to wait (RFC 8628, 3.5)."""
LONGEST_INTERVAL_S = 300.0
LONGEST_LIFE_S = 1_800.0
"""Of a code for the person, whatever the server says."""
EARLIER_S = 60.0
"""``refresh_in`` of a Copilot token ends so long before the token does."""
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
BEGIN_AGAIN = f"Begin again: bubbles provider login {COPILOT}"
EDITOR: Mapping[str, str] = {
    "Editor-Version": USER_AGENT,
    "Editor-Plugin-Version": USER_AGENT,
}
"""Programs that ask for a token for Copilot name themselves."""


class Viewer(Protocol):
    """The person who logs in, elsewhere."""

    def code(self, url: str, code: str) -> None:
        """The person is to enter ``code`` at ``url``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    device_code: str = field(repr=False)
    user_code: str
    url: str
    lasts_s: float
    interval_s: float


class CopilotVendor:
    """How a login at GitHub is made, changed into tokens for Copilot, and ended."""

    provider = COPILOT

    def __init__(self, issuer: CopilotIssuer, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._issuer = issuer
        self._sleep = sleep
        self.issuer = issuer.origin

    async def log_in(self, web: Web, viewer: Viewer, now: datetime) -> Login:
        """A login without a token for Copilot yet. Raises ``LoginError``."""
        try:
            device = await self._device_code(web)
            viewer.code(device.url, device.user_code)
            async with asyncio.timeout(device.lasts_s):
                token = await self._token(web, device)
            return Login(
                provider=COPILOT,
                refresh_token=token,
                person=await self._person(web, token),
                more={ISSUER: self.issuer},
                made_at=now,
            )
        except TimeoutError:
            fault = LoginError(f"{COPILOT}: nobody entered the code in time. {BEGIN_AGAIN}")
        except ProviderError as error:
            fault = LoginError(f"{COPILOT}: GitHub gave no login ({error}). {BEGIN_AGAIN}")
        raise fault

    async def renewed(self, web: Web, login: Login, now: datetime) -> Login:
        """With a new token for Copilot.

        Raises ``NotLoggedInError`` if GitHub knows the login no more, ``LoginError`` if the account has no Copilot,
        and ``ProviderError``.
        """
        headers = {"Authorization": f"token {login.refresh_token}", **EDITOR}
        answer = await web.get(self._issuer.copilot_token_url, headers=headers, secrets=login.secrets)
        if answer.status == 401:
            raise NotLoggedInError(COPILOT, "GitHub no longer accepts the login")
        if answer.status in (403, 404) and not _is_limited(answer):
            raise LoginError(
                f"{COPILOT}: the account has no access to Copilot{_why(answer)}. See {self._settings_page}"
            )
        if not answer.ok:
            raise answer.failure()
        token = answer.token("token")
        if not token:
            raise broken("the answer has no token")
        return replace(
            login,
            access_token=token,
            expires_at=_end(answer, now),
            renewed_at=now,
            more={**login.more, ISSUER: self.issuer, API: self._api(answer)},
        )

    async def revoked(self, web: Web, login: Login) -> str:
        """Nothing that a program can do: what the person should know."""
        del web, login
        return f"GitHub still lists it until you revoke it at {self._issuer.revoke_page}"

    @property
    def _settings_page(self) -> str:
        return f"{self._issuer.origin}/settings/copilot"

    async def _device_code(self, web: Web) -> DeviceCode:
        sent = {"client_id": self._issuer.client_id, "scope": self._issuer.scope}
        answer = await web.post(self._issuer.device_url, form=sent)
        if not answer.ok:
            raise answer.failure()
        if answer.code:
            raise broken(f"it says {answer.code}")
        url, user_code, device_code = answer.text("verification_uri"), answer.text("user_code", 40), ""
        device_code = answer.token("device_code")
        if not (device_code and user_code) or urlsplit(url).netloc != urlsplit(self.issuer).netloc:
            raise broken("the answer has no code, or one for another server")
        return DeviceCode(
            device_code=device_code,
            user_code=user_code,
            url=url,
            lasts_s=answer.seconds("expires_in", 900.0, 1.0, LONGEST_LIFE_S),
            interval_s=answer.seconds("interval", USUAL_INTERVAL_S, 1.0, LONGEST_INTERVAL_S),
        )

    async def _token(self, web: Web, device: DeviceCode) -> str:
        """Asks as often as the server likes, until the person has entered the code. Raises ``LoginError``."""
        sent = {"client_id": self._issuer.client_id, "device_code": device.device_code, "grant_type": GRANT}
        interval_s = device.interval_s
        while True:
            await self._sleep(interval_s)
            try:
                answer = await web.post(self._issuer.token_url, form=sent, secrets=(device.device_code,))
            except ProviderError as error:
                if not error.retryable:
                    raise
                interval_s = min(interval_s * 2, LONGEST_INTERVAL_S)  # RFC 8628, 3.5
                continue
            if token := answer.token("access_token"):
                return token
            match answer.code:
                case "authorization_pending":
                    pass
                case "slow_down":
                    interval_s = answer.seconds("interval", interval_s + SLOWER_S, interval_s, LONGEST_INTERVAL_S)
                case "expired_token":
                    raise LoginError(f"{COPILOT}: the code has expired. {BEGIN_AGAIN}")
                case "access_denied":
                    raise LoginError(f"{COPILOT}: the login was not granted. Nothing was changed.")
                case "":
                    failure = broken("the answer makes no sense") if answer.ok else answer.failure()
                    if not failure.retryable or answer.ok:
                        raise failure
                    interval_s = min(interval_s * 2, LONGEST_INTERVAL_S)
                case code:
                    raise broken(f"it says {code}")

    async def _person(self, web: Web, token: str) -> str:
        """The user's name; that it cannot be had is no reason to give a login up."""
        with suppress(ProviderError):
            headers = {"Authorization": f"token {token}"}
            answer = await web.get(self._issuer.user_url, headers=headers, secrets=(token,))
            if answer.ok:
                return answer.text("login", 100)
        return ""

    def _api(self, answer: Answer) -> str:
        """Where the token is for."""
        endpoints = answer.fields.get("endpoints")
        named = endpoints.get("api") if isinstance(endpoints, Mapping) else None
        if isinstance(named, str) and len(named) <= 500 and named.isprintable() and self._may_be_named(named):
            return named.rstrip("/")
        return self._issuer.api

    def _may_be_named(self, url: str) -> bool:
        """Encrypted, or on this machine if GitHub's own server is."""
        return may_hold_tokens(url) and (url.startswith("https://") or self.issuer.startswith("http://"))


def _end(answer: Answer, now: datetime) -> datetime | None:
    """By what the server says of the time from now on, since this machine's clock may be wrong."""
    if lasts_s := answer.seconds("refresh_in", 0.0, 0.0, 86_400.0):
        return now + timedelta(seconds=lasts_s + EARLIER_S)
    ends = answer.seconds("expires_at", 0.0, 0.0, 1e11)
    return datetime.fromtimestamp(ends, UTC) if ends else None


def _is_limited(answer: Answer) -> bool:
    """GitHub says 403 to those who ask too often, too."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers


def _why(answer: Answer) -> str:
    """What GitHub says of it, for the person."""
    details = answer.fields.get("error_details")
    said = details.get("message") if isinstance(details, Mapping) else answer.fields.get("message")
    if not isinstance(said, str) or not said.strip():
        return ""
    short = "".join(letter if letter.isprintable() else " " for letter in said[:300]).strip().rstrip(".")
    return f" ({short})"
