"""Logging in to OpenAI for Codex: authorization code with PKCE (RFC 7636, RFC 8252), and what follows from it.

The browser comes back to this machine, or the person pastes the address at which it ended; both are waited for at once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from bubbles.providers.contract import ProviderError
from bubbles.providers.failures import broken
from bubbles.providers.logins.callback import (
    MAX_CODE,
    CallbackServer,
    RefusedReturnError,
    Returned,
    callback_server,
    read_query,
)
from bubbles.providers.logins.claims import claims, lifetime, text_of
from bubbles.providers.logins.contract import ISSUER, PLAN, Login, LoginError, NotLoggedInError
from bubbles.providers.logins.issuers import CODEX, CodexIssuer
from bubbles.providers.logins.web import Answer, Web

LIMIT_S = 600.0
"""For the person to log in."""
MAX_TRIES = 20
"""Of pasting."""
REVOKE_S = 10.0
_AUTH = "https://api.openai.com/auth"
_PROFILE = "https://api.openai.com/profile"
_SPENT = frozenset({"invalid_grant", "refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated"})


class Talk(Protocol):
    """The person who logs in."""

    def say(self, line: str) -> None: ...
    def opened(self, url: str) -> bool:
        """Show the page in a browser, if there is one; whether there is."""
        ...

    def pasted(self) -> AsyncGenerator[str, None]:
        """Lines that the person enters. It ends when nobody can enter any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The secrets of one login, which no other one uses."""

    verifier: str = field(repr=False)
    state: str = field(repr=False)

    @classmethod
    def new(cls) -> Grant:
        return cls(verifier=secrets.token_urlsafe(64), state=secrets.token_urlsafe(32))

    @property
    def challenge(self) -> str:
        """Method S256, RFC 7636 4.2."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()


class CodexVendor:
    """How a login at OpenAI is made, renewed and ended."""

    provider = CODEX

    def __init__(self, issuer: CodexIssuer) -> None:
        self._issuer = issuer
        self.issuer = issuer.origin

    async def log_in(self, web: Web, talk: Talk, now: datetime, *, limit_s: float = LIMIT_S) -> Login:
        """Raises ``LoginError``. Cancelling ends it, and nothing stays behind."""
        grant = Grant.new()
        try:
            async with asyncio.timeout(limit_s), callback_server(self._issuer.ports, grant.state) as server:
                redirect_uri = server.redirect_uri if server else self._usual_redirect
                returned = await self._brought_back(server, talk, grant, redirect_uri)
        except TimeoutError:
            said = f"nobody logged in within {limit_s / 60:g} minutes"
            raise LoginError(f"{CODEX}: {said}. Begin again: bubbles provider login {CODEX}") from None
        if returned.denied:
            raise LoginError(f"{CODEX}: the login was not granted ({returned.denied}). Nothing was changed.")
        return await self._exchanged(web, returned.code, grant, redirect_uri, now)

    async def renewed(self, web: Web, login: Login, now: datetime) -> Login:
        """With the refresh token, which counts once: the new one must be kept.

        Raises ``NotLoggedInError`` if it counts no more, and ``ProviderError``.
        """
        sent = {
            "client_id": self._issuer.client_id,
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token,
        }
        answer = await web.post(self._issuer.token_url, body=sent, secrets=login.secrets)
        if answer.status == 401 or answer.code in _SPENT:
            raise NotLoggedInError(CODEX, f"OpenAI no longer accepts the login ({answer.code or 'status 401'})")
        if not answer.ok:
            raise answer.failure()
        return self._with_tokens(answer, login, now)

    async def revoked(self, web: Web, login: Login) -> str:
        """Empty if it was; else what the person should know. Raises ``ProviderError``."""
        sent = {"token": login.refresh_token, "token_type_hint": "refresh_token", "client_id": self._issuer.client_id}
        try:
            async with asyncio.timeout(REVOKE_S):
                answer = await web.post(self._issuer.revoke_url, body=sent, secrets=login.secrets)
        except TimeoutError:
            raise broken(f"{urlsplit(self.issuer).netloc} did not answer within {REVOKE_S:g} s") from None
        if not answer.ok:
            raise answer.failure()
        return ""

    def authorize_url(self, grant: Grant, redirect_uri: str) -> str:
        """The page where the person logs in."""
        asked = {
            "response_type": "code",
            "client_id": self._issuer.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._issuer.scope,
            "code_challenge": grant.challenge,
            "code_challenge_method": "S256",
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "state": grant.state,
            "originator": self._issuer.originator,
        }
        return f"{self._issuer.authorize_url}?{urlencode(asked)}"

    @property
    def _usual_redirect(self) -> str:
        return f"http://localhost:{self._issuer.ports[0]}/auth/callback"

    async def _brought_back(
        self, server: CallbackServer | None, talk: Talk, grant: Grant, redirect_uri: str
    ) -> Returned:
        url = self.authorize_url(grant, redirect_uri)
        talk.say(f"Log in to OpenAI at this address:\n\n  {url}\n")
        if server is None:
            talk.say("No port for the browser to come back to is free, so that the last page will not load.")
        elif talk.opened(url):
            talk.say("A browser has been opened there. What follows happens by itself.")
        talk.say("If the browser runs elsewhere, or its last page does not load: paste here the address that it shows.")
        waiting = {asyncio.ensure_future(_pasted(talk, grant.state))}
        if server is not None:
            waiting.add(asyncio.ensure_future(server.returned()))
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    if (returned := one.result()) is not None:
                        return returned
        finally:
            for one in waiting:
                one.cancel()
            if waiting:
                await asyncio.wait(waiting)
        raise LoginError(f"{CODEX}: no address was pasted. Begin again in a terminal: bubbles provider login {CODEX}")

    async def _exchanged(self, web: Web, code: str, grant: Grant, redirect_uri: str, now: datetime) -> Login:
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._issuer.client_id,
            "code_verifier": grant.verifier,
        }
        try:
            answer = await web.post(self._issuer.token_url, form=sent, secrets=(code, grant.verifier))
            if not answer.ok:
                raise answer.failure()
            login = Login(provider=CODEX, refresh_token=answer.token("refresh_token"), made_at=now)
            if not login.refresh_token or not answer.token("access_token"):
                raise broken("the answer has no tokens")
            return self._with_tokens(answer, login, now)
        except ProviderError as error:
            fault = LoginError(f"{CODEX}: OpenAI gave no login ({error}). Begin again: bubbles provider login {CODEX}")
        raise fault

    def _with_tokens(self, answer: Answer, login: Login, now: datetime) -> Login:
        """What an answer leaves out stays as it was. Raises ``ProviderError``."""
        access_token = answer.token("access_token")
        if not access_token:
            raise broken("the answer has no access token")
        found = (claims(answer.token("id_token")), claims(access_token))
        given_s = answer.seconds("expires_in", 0.0, 0.0, 1e9)
        lasts = timedelta(seconds=given_s) if given_s else lifetime(found[1])
        account = [text_of(each, _AUTH, "chatgpt_account_id") for each in found]
        person = (text_of(found[0], "email"), text_of(found[1], _PROFILE, "email"))
        plan = [text_of(each, _AUTH, "chatgpt_plan_type") for each in found]
        return replace(
            login,
            refresh_token=answer.token("refresh_token") or login.refresh_token,
            access_token=access_token,
            expires_at=None if lasts is None else now + lasts,
            renewed_at=now,
            account=next(filter(None, account), login.account),
            person=next(filter(None, person), login.person),
            more={**login.more, ISSUER: self.issuer, PLAN: next(filter(None, plan), login.more.get(PLAN, ""))},
        )


async def _pasted(talk: Talk, state: str) -> Returned | None:
    """What the person pastes, once it makes sense; None if nothing comes any more."""
    tries = 0
    async with aclosing(talk.pasted()) as lines:
        async for line in lines:
            if not line.strip():
                continue
            try:
                return read_pasted(line, state)
            except RefusedReturnError as error:
                tries += 1
                if tries == MAX_TRIES:
                    break
                talk.say(f"{error} Paste the whole address at which the browser ended.")
    return None


def read_pasted(text: str, state: str) -> Returned:
    """The whole address, what stands behind its ``?``, or the code alone. Raises ``RefusedReturnError``."""
    text = text.strip().strip("'\"<>")
    if "?" in text or "=" in text:
        query = text.partition("?")[2] if "?" in text else text
        return read_query(query.partition("#")[0], state)
    if len(text) > MAX_CODE or not (text.isascii() and text.isprintable()) or " " in text or "/" in text:
        raise RefusedReturnError("That is neither an address nor a code.")
    return Returned(code=text)
